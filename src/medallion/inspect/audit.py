"""The audit: the balance of every source, and the differences if one is wrong; no JVM.

Only a deep audit starts Spark, for `inspect.table_checks`.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from medallion.config.model import Config, SourceConfig
from medallion.errors import ITEM_ERRORS, error_message
from medallion.ingest.formats import SOURCE_TYPES, refuse_format_change
from medallion.ingest.source import Verification
from medallion.inspect import balance as accounting
from medallion.inspect import ledger_files
from medallion.inspect.balance import Balance, BalanceSnapshot, ChildBalance
from medallion.inspect.edits import edited_problems, leftover_problems
from medallion.inspect.ledger_files import Attention
from medallion.inspect.problems import PartReader, Problem, ProblemCode
from medallion.inspect.verdict import failed_queries, unfinished_problems, unread_problems
from medallion.spark import checkpoints
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables, locks
from medallion.storage.layout import layer_of
from medallion.storage.table_specs import VALID_FROM
from medallion.storage.text import Reporter, counted

PATIENCE = 35.0  # seconds; a stream records its batches every 30
_MAX_FINDINGS, _TABLES = 20, "tables"
# Rows add up beside these problems.
_TOLERATED = (
    ProblemCode.FAILED, ProblemCode.EDITED, ProblemCode.KILLED, ProblemCode.REJECTED,
    ProblemCode.WAITING, ProblemCode.FOLDER, ProblemCode.UNCHECKED,
)  # fmt: skip
_NOTES = (ProblemCode.UNCHECKED, ProblemCode.UNREAD, ProblemCode.NOTE)


@dataclass(frozen=True)
class Audit:
    """The balance of each source, and all that the audit found.

    Attributes:
        balances: by source.
        problems: each once.
        child_tables: the balances by child table.
    """

    balances: dict[str, Balance]
    problems: tuple[Problem, ...] = ()
    child_tables: Mapping[str, ChildBalance] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[str, ...]:
        """The faults, a sentence each."""
        beside = (*_TOLERATED, *_NOTES)
        return tuple(each.sentence for each in self.problems if each.code not in beside)

    @property
    def notes(self) -> tuple[str, ...]:
        """Parts that were not checked, and lost or waiting input; not faults."""
        return tuple(each.sentence for each in self.problems if each.code in _NOTES)

    @property
    def exceptions(self) -> list[Problem]:
        """Return what needs the user's attention although the rows add up."""
        return [problem for problem in self.problems if problem.code in _TOLERATED]

    @property
    def is_balanced(self) -> bool:
        """Return whether there is no finding; each balance that does not add up is one."""
        return not self.findings


def run_audit(
    config: Config,
    everything: bool = False,
    report: Reporter = lambda _: None,
    patience: float | None = None,
) -> Audit:
    """Balance every source; if one does not add up, name the files that differ.

    Args:
        everything: count all files and tables, and compare tables with Spark, in any case.
        patience: seconds to wait beside a running stream until its batches are recorded; by
            default half a minute.
    """
    patience = PATIENCE if patience is None else patience
    snapshot, writers, checks = _stable_checks(config, everything, report, patience)
    running, interrupted = _split_by_writer(snapshot.unrecorded, writers)
    unchecked = {snapshot.unrecorded[query]: holder for query, holder in running.items()}
    holder = next(iter(writers.values()), "another process")
    unsettled = [name for name in snapshot.balances if name not in {**checks, **unchecked}]
    unchecked |= dict.fromkeys(unsettled, holder)
    parts, runs = PartReader(), RunRecords(config.layout)
    parts.collect("ops.runs", _run_problems(config, runs, running, interrupted))
    parts.collect("journal", unfinished_problems(config))
    parts.collect("tables", edited_problems(config))
    for problem in snapshot.problems:
        is_fault = problem.code is ProblemCode.UNBALANCED
        if not (is_fault and config.root(problem.subject.removeprefix("silver.")) in unchecked):
            parts.problems.append(problem)
    files = parts.read_or(Attention(), "ops.files", lambda: ledger_files.find_attention(config))
    parts.problems += ledger_files.file_problems(files)
    for name, holder in sorted(unchecked.items()):
        reason = f"{holder} is writing it, and its last batches are not recorded yet."
        problem = Problem(ProblemCode.UNCHECKED, name, f"{name}: not checked: {reason}")
        parts.problems.append(problem)
    parts.collect("landing", unread_problems(config))
    parts.problems += leftover_problems(config)
    if files.not_compared:
        older = counted(files.not_compared, "older file")
        parts.note("archive", f"{older} in archive/ not compared with the ledger.")
    if everything:
        from medallion.inspect import table_checks  # imports PySpark

        checks[_TABLES] = table_checks.verify_tables(config, unchecked, report)
    for name, result in checks.items():
        parts.problems += (Problem(ProblemCode.UNBALANCED, name, f) for f in result.findings)
        for note in result.notes:
            parts.note(name, note)
    problems: dict[str, Problem] = {}
    for problem in parts.by_severity():
        problems.setdefault(problem.sentence, problem)
    return Audit(snapshot.balances, tuple(problems.values()), snapshot.child_tables)


def _run_problems(
    config: Config, runs: RunRecords, running: Mapping[str, str], interrupted: Iterable[str]
) -> Iterator[Problem]:
    """Yield the queries whose last batches are not recorded, and those whose last run failed."""
    for name in interrupted:
        sentence = "a run was interrupted before its last batches were recorded; the next run"
        yield Problem(ProblemCode.UNBALANCED, name, f"{name}: {sentence} records them.")
    for name, holder in running.items():
        if runs.has_failed(name):
            error = runs.run_state.last[name].error
            sentence = f"failed with unrecorded batches ({error}); {holder} retries it."
            yield Problem(ProblemCode.UNBALANCED, name, f"{name}: {sentence}")
    yield from failed_queries(config, runs.run_state, running)


def _split_by_writer(
    unrecorded: Iterable[str], writers: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Split queries with unrecorded batches into running and interrupted ones.

    Args:
        unrecorded: names of queries.
        writers: the holder of each locked layer.

    Returns:
        The holder by running query, and the interrupted queries.
    """
    holders = {query: writers.get(layer_of(query)) for query in unrecorded}
    running = {query: holder for query, holder in holders.items() if holder}
    return running, [query for query in holders if query not in running]


def _stable_checks(
    config: Config, everything: bool, report: Reporter, patience: float
) -> tuple[BalanceSnapshot, dict[str, str], dict[str, Verification]]:
    """Balance and check all sources as soon as their batches are recorded, or after `patience`.

    A finding counts if the balance is still the same after it: a batch that ends between the
    snapshot and a check would make the ledger differ.

    Args:
        everything: count all files and tables.
        patience: the longest time to wait, in seconds.

    Returns:
        The snapshot, the holder of each locked layer, and the result by source, without the
        sources that are being written.
    """
    deadline, is_waiting = time.monotonic() + patience, False
    while True:
        # Before the snapshot: a writer that ends during it has recorded all batches.
        writers = accounting.layer_writers(config)
        snapshot = accounting.take_snapshot(config, RunRecords(config.layout))
        running, interrupted = _split_by_writer(snapshot.unrecorded, writers)
        has_new_writer = any(locks.lock_holder(config.layout, layer_of(q)) for q in interrupted)
        explained = {snapshot.unrecorded[query] for query in interrupted}
        unbalanced = {n for n, balance in snapshot.balances.items() if not balance.is_balanced}
        unexplained = unbalanced - explained
        is_recorded = not running and not (writers and unexplained)
        is_late = time.monotonic() > deadline
        if not is_recorded and not is_waiting:
            holders = " and ".join(dict.fromkeys(writers.values()))
            report(f"waiting until {holders} has recorded its last batches")
            is_waiting = True
        elif not has_new_writer and (is_recorded or is_late):
            busy = {snapshot.unrecorded[query] for query in running}
            idle = [name for name in snapshot.balances if name not in busy]
            checks = {n: _check(config, n, snapshot.balances[n], everything) for n in idle}
            changed = _changed_sources(config, snapshot, checks)
            if not changed or is_late:
                return snapshot, writers, {n: checks[n] for n in idle if n not in changed}
        time.sleep(0.2)


def _changed_sources(
    config: Config, snapshot: BalanceSnapshot, checks: Mapping[str, Verification]
) -> set[str]:
    """Return the sources with findings whose balance has changed since a snapshot."""
    balances = snapshot.balances
    wrong = {n for n, result in checks.items() if result.findings or not balances[n].is_balanced}
    now = accounting.take_snapshot(config, RunRecords(config.layout)) if wrong else snapshot
    return {name for name in wrong if now.of_source(name) != snapshot.of_source(name)}


def _check(config: Config, name: str, balance: Balance, everything: bool) -> Verification:
    """Compare a source's input, ledger and bronze without Spark; count them again if they differ.

    Then there is a finding for each file or partition that differs, and for duplicate keys.
    """
    source, result = config.sources[name], Verification()
    try:
        refuse_format_change(config, source)
        source_type, bronze = SOURCE_TYPES[source.format], balance.bronze_rows
        if everything or not balance.is_balanced:
            result = source_type.verify(config, source)
            result.findings += _duplicate_keys(config, source)
            if (more := len(result.findings) - _MAX_FINDINGS) > 0:
                result.findings[_MAX_FINDINGS:] = [f"{name}: and {more:,} more."]
        elif (rows := source_type.rows_in_ledger(config, source)) != bronze:
            sentence = f"{name}: the ledger has {rows:,} rows, bronze has {bronze:,}."
            result.findings.append(sentence)
        if losses := source_type.losses(config, source):
            result.notes.append(f"{name}: {'; '.join(losses)}.")
    except ITEM_ERRORS as error:  # a table cannot be read, or the source's format has changed
        result = Verification([error_message(error)])
    return result


def _duplicate_keys(config: Config, source: SourceConfig) -> list[str]:
    name = f"silver.{source.name}"
    # By the keys of the table's rows: other keys in the configuration need a refresh first.
    definition = checkpoints.read_document(config.layout.checkpoint(name), "definition") or {}
    names = definition.get("keys", source.keys)
    if source.cdc and source.cdc.stored_as_scd_type == 2:
        names = [*names, VALID_FROM]
    keys = ", ".join(f'"{key}"' for key in names)
    not_null = " and ".join(f'"{key}" is not null' for key in names)
    sql = f"where {not_null} group by {keys} having count(*) > 1 limit {_MAX_FINDINGS}"
    return [
        f"{source.name}: silver has {row[-1]} rows with the key "
        f"{dict(zip(names, row, strict=False))}."
        for row in delta_tables.select_rows(config.layout.table(name), f"{keys}, count(*)", sql)
    ]
