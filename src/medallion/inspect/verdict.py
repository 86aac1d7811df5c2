"""The verdict on a lakehouse: healthy, or what is wrong with its remedy; no JVM, read-only."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from medallion.config.model import Config
from medallion.config.queries import queries, query_names
from medallion.ingest.files.listing import unread_file_warnings
from medallion.inspect import balance as accounting
from medallion.inspect import catalog, freshness, ledger_files
from medallion.inspect.edits import edited_problems, leftover_problems, waiting_tables
from medallion.inspect.ledger_files import Attention
from medallion.inspect.problems import RETRY, LakehouseVerdict, PartReader, Problem, ProblemCode
from medallion.inspect.status import QueryStatus
from medallion.quality.suites import suite_path
from medallion.state import journal, pending_work
from medallion.state.runs import FAILED, NIGHTLY, RescuedSummary, RunRecords, RunState
from medallion.storage import locks
from medallion.storage.layout import LAYERS, PUBLISH, layer_of

_LEAST_FREE = 2**30  # bytes; Spark's state and a compaction need room
_RUN = "medallion nightly"
# A nightly run that failed with one of these has no problem of its own.
_CAUSES = (ProblemCode.FAILED, ProblemCode.UNREADABLE, ProblemCode.UNBALANCED)


@dataclass(frozen=True)
class Observations:
    """The state of a lakehouse at one moment.

    Attributes:
        run_state: the recorded runs and gates.
        files: files that need attention.
        verdict: all that is wrong.
    """

    run_state: RunState
    files: Attention = field(default_factory=Attention)
    verdict: LakehouseVerdict = field(default_factory=LakehouseVerdict)


def observe(
    config: Config,
    statuses: Sequence[QueryStatus] = (),
    faults: Sequence[Problem] | None = None,
    unread: Sequence[str] | None = None,
    errors: Sequence[str] | None = None,
) -> Observations:
    """Read the records, the ledger and the tables' logs; what cannot be read is a problem.

    Args:
        statuses: the queries, for `status`, which also names left-over tables.
        faults: the problems of the balances that a run has taken; by default of settled sources.
        unread: messages about files that no source reads, if they are known.
        errors: the errors of the nightly run that ends now; by default that of the last one.
    """
    parts, runs = PartReader(), RunRecords(config.layout)
    for status in statuses:
        if not status.is_known:
            parts.add(status.query, status.error or "")
    state = parts.read_or(RunState(), "ops.runs", lambda: runs.run_state)
    files = parts.read_or(Attention(), "ops.files", lambda: ledger_files.find_attention(config))
    if faults is None:  # a problem so far would be in the figures, too
        faults = [] if parts.problems else _faults_of_settled(config, runs)
    if errors is None:
        last = state.nightly
        errors = [last.error] if last and last.state == FAILED and last.error else []
    unreadable = {problem.subject for problem in parts.problems}
    parts.problems += faults
    waiting: Collection[str] = parts.read_or({}, "tables", lambda: waiting_tables(config))
    stale = freshness.stale_problems(config, state)
    parts.collect("ops.files", (each for each in stale if each.subject not in waiting))
    parts.collect("tables", edited_problems(config))
    parts.collect("ops.runs", failed_queries(config, state, unreadable))
    parts.collect("gates", blocked_problems(config, state))
    parts.collect("ops.runs", _warned_problems(config, state))
    parts.collect("journal", unfinished_problems(config))
    parts.collect("ops.files", ledger_files.file_problems(files))
    parts.collect("ops.files", ledger_files.malformed_problems(config, files))
    parts.collect("disk", _disk_problems(config))
    parts.collect("quarantine", catalog.mostly_quarantined(config, state))
    parts.collect("quarantine", catalog.deletes_not_applied(config))
    parts.collect("tables", catalog.held_snapshots(config))
    parts.collect("tables", catalog.unlikely_times(config))
    parts.collect("ops.runs", _rescued_problems(config, state))
    parts.collect("landing", unread_problems(config, unread))
    parts.collect("tables", leftover_problems(config) if statuses else ())
    if errors and not any(problem.code in _CAUSES for problem in parts.problems):
        more = f" And {len(errors) - 1} more." if len(errors) > 1 else ""
        parts.problems.append(Problem(ProblemCode.FAILED, NIGHTLY, f"{errors[0]}{more}", RETRY))
    return Observations(state, files, LakehouseVerdict(parts.by_severity()))


def _faults_of_settled(config: Config, runs: RunRecords) -> list[Problem]:
    """Return the faults in balances of sources that no process writes, with recorded batches."""
    writers = accounting.layer_writers(config)  # one may end during the snapshot
    snapshot = accounting.take_snapshot(config, runs)
    is_written = bool(writers or accounting.layer_writers(config))
    unsettled = {*(config.sources if is_written else snapshot.unrecorded.values())}
    return [
        problem
        for problem in snapshot.problems
        if problem.code is ProblemCode.UNREADABLE
        or config.root(problem.subject.removeprefix("silver.")) not in unsettled
    ]


def failed_queries(config: Config, state: RunState, but: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each query whose last run failed, but for those with other problems."""
    for query in query_names(config, (*LAYERS, PUBLISH)):
        last = state.last.get(query)
        if last and last.state == FAILED and query not in but:
            yield Problem(ProblemCode.FAILED, query, last.error or "it failed", RETRY)


def blocked_problems(config: Config, state: RunState) -> Iterator[Problem]:
    """Yield a problem for each table whose gate blocks its rows."""
    for table, failed in pending_work.blocked_gates(config, state, LAYERS).items():
        accept = " ".join(f"--accept {name}" for name in failed.split(", "))
        remedy = f"accept the rows: {_RUN} {accept}; or {_rule_remedy(config, table)}"
        names = query_names(config, (*LAYERS, PUBLISH))
        blocked = [q for q in names if table in pending_work.blocking_gates(config, state, q)]
        effect = f"this blocks {', '.join(blocked)}" if blocked else "no table reads its rows"
        sentence = f"{state.gates[table].describe(failed)}; no later run passed; {effect}"
        yield Problem(ProblemCode.BLOCKED, table, sentence, remedy, f"{failed} failed; {effect}")


def _warned_problems(config: Config, state: RunState) -> Iterator[Problem]:
    remedy = "ask the writer of the rows, or correct the rule; the next run validates new rows"
    for table in query_names(config):
        gate = state.gates.get(table)
        if gate and gate.warned:
            sentence, detail = gate.describe(gate.warned), f"{gate.warned} failed"
            yield Problem(ProblemCode.EXPECTATION, table, sentence, remedy, detail)


def _rule_remedy(config: Config, table: str) -> str:
    suite = suite_path(config.conf_dir, table).relative_to(config.conf_dir.parent)
    remedy = f"correct the rule in {suite} and run {_RUN}"
    if layer_of(table) != "silver":
        return remedy
    return f"{remedy}; or let it quarantine (on_failure) and run medallion refresh {table}"


def unfinished_problems(config: Config) -> Iterator[Problem]:
    """Yield a problem for each command that was interrupted, and that no process completes now."""
    entries = journal.unfinished_commands(config)
    for entry in entries:
        code = ProblemCode(f"unfinished_{entry.command}")
        yield Problem(code, entry.subject, entry.title, entry.remedy)
    for killed in locks.killed_processes(config.layout, (*LAYERS, PUBLISH)):
        what = "run" if killed.command == NIGHTLY else killed.command
        sentence = f"the {what} of {killed.start} (pid {killed.pid}) was killed"
        if killed.command not in {entry.command for entry in entries}:
            remedy = "the next nightly run continues it"
            yield Problem(ProblemCode.KILLED, killed.command, sentence, remedy)


def _disk_problems(config: Config) -> Iterator[Problem]:
    free = config.layout.root.free_bytes()
    if free is not None and free < _LEAST_FREE:
        sentence = f"{free // 2**20:,} MiB are free"
        remedy = "free space; medallion maintain removes old versions of the tables"
        yield Problem(ProblemCode.DISK, str(config.layout.root), sentence, remedy)


def _rescued_problems(config: Config, state: RunState) -> Iterator[Problem]:
    for name, source in config.sources.items():
        last = state.last_busy.get(f"bronze.{name}")
        if last and last.rescued_rows and source.on_rescued != "ignore":
            summary = RescuedSummary.from_record(last.rescued_rows, last.rescued_fields)
            remedy = f"set hints or on_rescued, and run medallion refresh bronze.{name}"
            yield Problem(ProblemCode.RESCUED, name, str(summary), remedy, summary.headline)
    for query in queries(config, "silver"):
        last, source = state.last_busy.get(query.name), config.sources[query.source]
        if last and last.rescued_rows and source.on_conversion == "warn":
            remedy = "correct its SQL and run medallion apply, or set on_conversion"
            summary = RescuedSummary.from_record(last.rescued_rows, last.rescued_fields)
            for detail, sentence in summary.lost_sentences.items():
                yield Problem(ProblemCode.LOST, query.entry, sentence, remedy, detail)


def unread_problems(config: Config, unread: Sequence[str] | None = None) -> Iterator[Problem]:
    """Yield a problem for each directory with files that no source reads.

    Args:
        unread: the messages of `unread_file_warnings`, if they are known.
    """
    remedy = "move the files, or correct pattern and folders in pipeline.yaml"
    for line in unread_file_warnings(config) if unread is None else unread:
        yield Problem(ProblemCode.UNREAD, "landing", line, remedy)
