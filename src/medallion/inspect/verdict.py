"""The verdict on a lakehouse: healthy, or what is wrong with its remedy; no JVM, read-only."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TypeVar

from medallion.config.loader import PIPELINE
from medallion.config.model import Config
from medallion.config.queries import query_names
from medallion.errors import ITEM_ERRORS, MedallionError, error_message
from medallion.ingest.files.listing import unread_file_warnings
from medallion.ingest.schema import registry
from medallion.inspect import balance as accounting
from medallion.inspect import freshness, ledger_files
from medallion.inspect.balance import Balance, BalanceSnapshot
from medallion.inspect.catalog import (
    deletes_not_applied,
    held_snapshots,
    mostly_quarantined,
    unlikely_times,
)
from medallion.inspect.edits import waiting_tables
from medallion.inspect.freshness import StaleTable
from medallion.inspect.ledger_files import Attention
from medallion.quality.suites import suite_path
from medallion.state import journal, pending_work
from medallion.state.ledger import Entry, ReasonCode
from medallion.state.runs import FAILED, NIGHTLY, RescuedSummary, RunRecords, RunState
from medallion.storage.paths import LAYERS, PUBLISH, layer_of
from medallion.storage.text import counted

_Value = TypeVar("_Value")
_LEAST_FREE = 2**30  # bytes; Spark's state and a compaction need room
_RUN = "medallion nightly"
_RETRY = f"correct what the message names, then run {_RUN}"
_COUNT = "run medallion audit --deep, which names the files and tables that differ"
_DISMISS = "acknowledge it with medallion files --dismiss PATTERN (its path, or a glob)"


_FILE_REMEDIES: Mapping[str, str] = {
    ReasonCode.UNREADABLE: "land a repaired file",
    ReasonCode.NAME_TAKEN: "rename it if it has other rows, and delete it if it is a copy",
    ReasonCode.GREW: "land the new lines under a new name",
    ReasonCode.CHANGED_IN_ARCHIVE: "land the new lines under a new name",
}


class ProblemCode(StrEnum):
    """What is wrong, in the order of severity: the most severe is first."""

    UNREADABLE = "unreadable"
    FAILED = "failed"
    BLOCKED = "blocked"
    UNBALANCED = "unbalanced"
    EDITED = "waits_for_apply"
    UNFINISHED_ERASE = "unfinished_erase"
    UNFINISHED_REFRESH = "unfinished_refresh"
    UNFINISHED_REPLAY = "unfinished_replay"
    DELETES = "deletes_not_applied"
    SNAPSHOT = "snapshot_not_applied"
    REJECTED = "rejected"
    WAITING = "waiting"
    CHANGED = "changed"
    FOLDER = "unreadable_folder"
    STALE = "stale"
    NO_SCHEMA = "no_schema"
    DISK = "disk"
    # Warnings.
    MALFORMED = "malformed_files"
    EXPECTATION = "expectation"
    QUARANTINED = "quarantined_rows"
    RESCUED = "rescued_values"
    TIMES = "unlikely_times"
    UNREAD = "unread_files"

    @property
    def label(self) -> str:
        """The code for people."""
        return self.value.replace("_", " ")


WARNINGS = (
    ProblemCode.MALFORMED,
    ProblemCode.EXPECTATION,
    ProblemCode.QUARANTINED,
    ProblemCode.RESCUED,
    ProblemCode.TIMES,
    ProblemCode.UNREAD,
)
"""Problems with which a lakehouse is still healthy."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        code: what is wrong.
        subject: the table, query, source or path.
        sentence: what happened; it may quote values of rows.
        remedy: what to do; it quotes no values.
        detail: for a file, its reason code and its path; for alerts, which quote no values.
    """

    code: ProblemCode
    subject: str
    sentence: str
    remedy: str
    detail: str = ""

    @property
    def is_warning(self) -> bool:
        """Return whether a lakehouse with this problem is still healthy."""
        return self.code in WARNINGS


@dataclass(frozen=True)
class LakehouseVerdict:
    """All problems of a lakehouse, in the order of `ProblemCode`.

    As a string it is one line without values of rows.
    """

    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that are no warnings."""
        return tuple(problem for problem in self.problems if not problem.is_warning)

    @property
    def is_healthy(self) -> bool:
        """Return whether there are no problems but warnings."""
        return not self.errors

    def __str__(self) -> str:
        subjects: dict[ProblemCode, list[str]] = {}
        for problem in self.problems:
            subjects.setdefault(problem.code, []).append(problem.subject)
        parts = "; ".join(f"{code.label}: {', '.join(names)}" for code, names in subjects.items())
        if not self.is_healthy:
            return f"NOT HEALTHY. {parts}"
        warnings = counted(len(self.problems), "warning")
        return f"healthy, with {warnings}. {parts}" if parts else "healthy"


@dataclass(frozen=True)
class Observations:
    """The facts from which the verdict is derived.

    Attributes:
        run_state: the recorded runs and gates.
        files: files that need attention.
        stale: stale sources and gold tables.
        balances: the balances of sources whose batches are all recorded.
        quarantined: messages by quarantine table that got most rows of the last run.
        deletes: the number of deletes by quarantine table that has some.
        snapshots: messages by silver table whose newest snapshot is not applied.
        edited: the reason by table that waits for `medallion apply`.
        times: messages by silver table with event times that are hardly right.
        unread: messages about files that no source reads.
        unreadable: messages by the query or record that cannot be read.
        errors: the errors of the last nightly run.
        child_faults: messages by child table whose figures do not add up.
    """

    run_state: RunState
    files: Attention = field(default_factory=Attention)
    stale: Sequence[StaleTable] = ()
    balances: Mapping[str, Balance] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
    deletes: Mapping[str, int] = field(default_factory=dict)
    snapshots: Mapping[str, str] = field(default_factory=dict)
    edited: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, str] = field(default_factory=dict)
    unread: Sequence[str] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[str] = ()
    child_faults: Mapping[str, Sequence[str]] = field(default_factory=dict)


def observe(
    config: Config,
    unreadable: Mapping[str, str] | None = None,
    balances: Mapping[str, Balance] | None = None,
    unread: Sequence[str] | None = None,
) -> Observations:
    """Read the records, the ledger and the tables' logs; what cannot be read is an observation.

    Args:
        config: the configuration.
        unreadable: messages by the query that cannot be read, if they are known.
        balances: the balances that a run has taken; by default those of the settled sources.
        unread: messages about files that no source reads, if they are known.
    """
    errors = dict(unreadable or {})

    def read_or(default: _Value, name: str, read: Callable[[], _Value]) -> _Value:
        try:
            return read()
        except ITEM_ERRORS as error:
            if error_message(error) not in errors.values():
                errors[name] = error_message(error)
            return default

    runs = RunRecords(config.layout)
    run_state = read_or(RunState(), "ops.runs", lambda: runs.run_state)
    last = run_state.nightly
    files = read_or(Attention(), "ops.files", lambda: ledger_files.find_attention(config))
    stale: Sequence[StaleTable] = read_or(
        (), "ops.files", lambda: freshness.stale_tables(config, run_state)
    )
    edited: Mapping[str, str] = read_or({}, "tables", lambda: waiting_tables(config))
    settled = BalanceSnapshot(dict(balances or {}))
    if balances is None and not errors:  # they would be in its figures, too
        settled = read_or(settled, "tables", lambda: _settled_balances(config, runs))
    if unread is None:
        unread = read_or(list[str](), "landing", lambda: unread_file_warnings(config))
    return Observations(
        run_state=run_state,
        files=files,
        stale=[each for each in stale if each.name not in edited],
        edited=edited,
        balances=settled.balances,
        child_faults=settled.child_faults,
        quarantined=read_or({}, "quarantine", lambda: mostly_quarantined(config, run_state)),
        deletes=read_or({}, "quarantine", lambda: deletes_not_applied(config)),
        snapshots=read_or({}, "tables", lambda: held_snapshots(config)),
        times=read_or({}, "tables", lambda: unlikely_times(config)),
        unread=unread,
        unreadable=errors,
        errors=[last.error] if last and last.state == FAILED and last.error else [],
    )


def _settled_balances(config: Config, runs: RunRecords) -> BalanceSnapshot:
    """Return the balances of sources that no process writes, and whose batches are recorded.

    Raises:
        MedallionError: a table cannot be read.
    """
    writers = accounting.layer_writers(config)  # one may end during the snapshot
    snapshot = accounting.take_snapshot(config, runs)
    if snapshot.unreadable:
        raise MedallionError("; ".join(snapshot.unreadable))
    if writers or accounting.layer_writers(config):
        return BalanceSnapshot()
    settled = {n: each for n, each in snapshot.balances.items() if not snapshot.of_source(n)[1]}
    children = snapshot.child_tables.items()
    return BalanceSnapshot(settled, {n: each for n, each in children if config.root(n) in settled})


def derive_verdict(config: Config, observations: Observations) -> LakehouseVerdict:
    """Return the verdict on these observations."""
    problems = list(_problems(config, observations))
    has_failure = any(p.code in (ProblemCode.FAILED, ProblemCode.UNREADABLE) for p in problems)
    if observations.errors and not has_failure:
        more = len(observations.errors) - 1
        sentence = f"{observations.errors[0]}{f' And {more} more.' if more else ''}"
        problems.append(Problem(ProblemCode.FAILED, NIGHTLY, sentence, _RETRY))
    order = list(ProblemCode)
    return LakehouseVerdict(tuple(sorted(problems, key=lambda problem: order.index(problem.code))))


def _problems(config: Config, seen: Observations) -> Iterator[Problem]:
    for name, message in seen.unreadable.items():
        yield Problem(ProblemCode.UNREADABLE, name, message, _RETRY)
    for query in query_names(config, (*LAYERS, PUBLISH)):
        last = seen.run_state.last.get(query)
        if last and last.state == FAILED and query not in seen.unreadable:
            yield Problem(ProblemCode.FAILED, query, last.error or "it failed", _RETRY)
    yield from _gate_problems(config, seen.run_state)
    for name in accounting.unbalanced(seen.balances):
        sentence = " ".join(seen.balances[name].faults)
        yield Problem(ProblemCode.UNBALANCED, name, sentence, _COUNT)
    for name, faults in seen.child_faults.items():
        if faults:
            yield Problem(ProblemCode.UNBALANCED, f"silver.{name}", " ".join(faults), _COUNT)
    yield from _unfinished_problems(config)
    yield from _file_problems(seen.files)
    yield from _malformed_problems(config, seen.files.malformed)
    for stale in seen.stale:
        remedy = f"run {_RUN}; if it is still stale, ask the writer of its rows"
        yield Problem(ProblemCode.STALE, stale.name, stale.sentence, remedy)
    free = config.layout.root.free_bytes()
    if free is not None and free < _LEAST_FREE:
        sentence = f"{free // 2**20:,} MiB are free"
        remedy = "free space; medallion maintain removes old versions of the tables"
        yield Problem(ProblemCode.DISK, str(config.layout.root), sentence, remedy)
    if seen.edited:
        tables = ", ".join(f"{table} ({reason})" for table, reason in seen.edited.items())
        sentence = f"{counted(len(seen.edited), 'table')} wait for medallion apply: {tables}"
        remedy = "run medallion apply, which rebuilds them, or undo the edit"
        yield Problem(ProblemCode.EDITED, PIPELINE, sentence, remedy)
    for table, message in seen.quarantined.items():
        remedy = _quarantine_remedy(config, table)
        yield Problem(ProblemCode.QUARANTINED, table, message, remedy)
    for table, count in seen.deletes.items():
        silver = table.replace("quarantine", "silver")
        sentence = f"{counted(count, 'delete')} broke a rule, so {silver} keeps the rows"
        yield Problem(ProblemCode.DELETES, table, sentence, _quarantine_remedy(config, table))
    for table, message in seen.snapshots.items():
        remedy = f"land the complete file, or raise max_deletes and run medallion refresh {table}"
        yield Problem(ProblemCode.SNAPSHOT, table, message, remedy)
    yield from _rescued_problems(config, seen.run_state)
    for table, message in seen.times.items():
        name = table.partition(".")[2]
        remedy = (
            f"correct sources.{name}.silver or hints and run medallion refresh {table}; or set "
            "max_past to an interval that these times are within"
        )
        yield Problem(ProblemCode.TIMES, table, message, remedy)
    for line in seen.unread:
        remedy = "move the files, or correct pattern and folders in pipeline.yaml"
        yield Problem(ProblemCode.UNREAD, "landing", line, remedy)


def _quarantine_remedy(config: Config, table: str) -> str:
    name = table.partition(".")[2]
    command = f"refresh silver.{name}" if name in config.silver else f"replay {table}"
    return (
        "see its rows in medallion report, correct the rule or the columns in pipeline.yaml, and "
        f"run medallion {command}"
    )


def _gate_problems(config: Config, state: RunState) -> Iterator[Problem]:
    for table, failed in pending_work.blocked_gates(config, state, LAYERS).items():
        accept = " ".join(f"--accept {name}" for name in failed.split(", "))
        remedy = f"accept the rows: {_RUN} {accept}; or {_rule_remedy(config, table)}"
        names = query_names(config, (*LAYERS, PUBLISH))
        blocked = [q for q in names if table in pending_work.blocking_gates(config, state, q)]
        effect = f"this blocks {', '.join(blocked)}" if blocked else "no table reads its rows"
        sentence = f"{state.gates[table].describe(failed)}; no later run passed; {effect}"
        yield Problem(ProblemCode.BLOCKED, table, sentence, remedy)
    for table in query_names(config):
        gate = state.gates.get(table)
        if gate and gate.warned:
            sentence = gate.describe(gate.warned)
            remedy = (
                "ask the writer of the rows, or correct the rule; the next run validates new rows"
            )
            yield Problem(ProblemCode.EXPECTATION, table, sentence, remedy)


def _rule_remedy(config: Config, table: str) -> str:
    suite = suite_path(config.conf_dir, table).relative_to(config.conf_dir.parent)
    remedy = f"correct the rule in {suite} and run {_RUN}"
    if layer_of(table) != "silver":
        return remedy
    return f"{remedy}; or let it quarantine (on_failure) and run medallion refresh {table}"


def _unfinished_problems(config: Config) -> Iterator[Problem]:
    try:
        for entry in journal.unfinished_commands(config):
            code = ProblemCode(f"unfinished_{entry.command}")
            yield Problem(code, entry.subject, entry.title, entry.remedy)
    except ITEM_ERRORS as error:
        yield Problem(ProblemCode.UNREADABLE, "journal", error_message(error), _RETRY)


def _file_problems(files: Attention) -> Iterator[Problem]:
    groups = (
        (ProblemCode.REJECTED, files.rejected),
        (ProblemCode.WAITING, files.waiting),
        (ProblemCode.CHANGED, files.changed),
    )
    for code, entries in groups:
        by_reason = groupby(sorted(entries, key=_source_and_reason), _source_and_reason)
        for (source, reason), each in by_reason:
            listed = list(each)
            count = f"{counted(len(listed), 'file')}, such as " if len(listed) > 1 else ""
            moved = f"; it is in {moved_to}" if (moved_to := listed[0].moved_to) else ""
            sentence = f"{count}{listed[0].path}: {listed[0].why}{moved}"
            remedy = _FILE_REMEDIES.get(reason) or "do what the reason asks for"
            more = f" and {len(listed) - 1:,} more" if len(listed) > 1 else ""
            detail = f"{reason}, {listed[0].path}{more}"
            yield Problem(code, source, sentence, f"{remedy}, or {_DISMISS}", detail)
    for folder in files.folders:
        remedy = "create it, permit it, or remove it from folders in pipeline.yaml"
        yield Problem(ProblemCode.FOLDER, folder.path, str(folder.why), remedy)


def _source_and_reason(entry: Entry) -> tuple[str, str]:
    return entry.source, entry.reason_code or ""


def _malformed_problems(config: Config, entries: Iterable[Entry]) -> Iterator[Problem]:
    """Yield the sources with files of malformed lines; without other files they have no schema."""
    for name, listed in _by_source(entries).items():
        source, count = config.sources[name], counted(len(listed), "file")
        has_schema = registry.has_known_columns(config, source)
        code = ProblemCode.MALFORMED if has_schema else ProblemCode.NO_SCHEMA
        sentence = f"{count}, such as {listed[0].path}: no line is a row of {source.format}"
        remedy = (
            f"see _corrupt_record in bronze.{name}, correct format or options of the source, and "
            f"run medallion refresh bronze.{name}; or {_DISMISS}"
        )
        yield Problem(code, name, sentence, remedy)


def _by_source(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    result: dict[str, list[Entry]] = {}
    for entry in entries:
        result.setdefault(entry.source, []).append(entry)
    return result


def _rescued_problems(config: Config, state: RunState) -> Iterator[Problem]:
    for name, source in config.sources.items():
        last = state.last_busy.get(f"bronze.{name}")
        if last and last.rescued_rows and source.on_rescued != "ignore":
            summary = RescuedSummary.from_record(last.rescued_rows, last.rescued_fields)
            remedy = f"set hints or on_rescued, and run medallion refresh bronze.{name}"
            yield Problem(ProblemCode.RESCUED, name, str(summary), remedy)
