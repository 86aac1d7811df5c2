"""Sources and gold tables without new rows for longer than `expect_every`; no JVM, read-only."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.inspect.problems import Problem, ProblemCode
from medallion.state import ledger
from medallion.state.runs import LastRun, RunState
from medallion.storage import clock


@dataclass(frozen=True)
class StaleTable:
    """A source or a gold table without new rows for longer than it should be.

    Attributes:
        name: the name of the source, or `gold.table`.
        expect_every: the longest time between new rows.
        since: when the last new rows arrived, in microseconds since 1970; None if none ever did.
    """

    name: str
    expect_every: Duration
    since: int | None

    def __str__(self) -> str:
        since = "never had a row"
        if self.since is not None:
            since = f"no new rows since {clock.format_time(self.since)}"
        return f"{since} (expect_every: {self.expect_every})"


def stale_problems(tables: Iterable[StaleTable]) -> Iterator[Problem]:
    """Yield a problem for each stale table."""
    remedy = "run medallion nightly; if it is still stale, ask the writer of its rows"
    for table in tables:
        yield Problem(ProblemCode.STALE, table.name, str(table), remedy)


def last_arrivals(config: Config, run_state: RunState) -> dict[str, int | None]:
    """Return when the last rows arrived, for each source and gold table; None if never.

    For files it is when they were written, for messages and gold the end of the last run with rows.

    Args:
        config: the configuration.
        run_state: the recorded runs.

    Raises:
        MedallionError: the ledger cannot be read.
    """
    files, busy = ledger.last_arrivals(config.layout), run_state.last_busy
    times = {
        name: _end_of(busy, f"bronze.{name}") if source.stream else files.get(name)
        for name, source in config.sources.items()
    }
    return times | {f"gold.{name}": _end_of(busy, f"gold.{name}") for name in config.gold}


def _end_of(runs: Mapping[str, LastRun], query: str) -> int | None:
    run = runs.get(query)
    return run.started_at + round((run.seconds or 0) * 1e6) if run else None


def stale_tables(config: Config, run_state: RunState) -> list[StaleTable]:
    """Return the stale sources and gold tables; the arguments are those of `last_arrivals`."""
    durations = {name: source.expect_every for name, source in config.sources.items()}
    durations |= {f"gold.{name}": table.expect_every for name, table in config.gold.items()}
    expected = {name: every for name, every in durations.items() if every}
    if not expected:
        return []
    times, now = last_arrivals(config, run_state), clock.now_micros()
    return [
        StaleTable(name, every, times[name])
        for name, every in expected.items()
        if now - (times[name] or 0) > every.micros
    ]
