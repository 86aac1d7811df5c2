"""Sources and gold tables without new rows for longer than `expect_every`; no JVM, read-only."""

from collections.abc import Iterator, Mapping

from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.inspect.problems import Problem, ProblemCode
from medallion.state import ledger
from medallion.state.runs import LastRun, RunState
from medallion.storage import clock


def last_arrivals(config: Config, run_state: RunState) -> dict[str, int | None]:
    """Return when the last rows arrived, for each source and gold table; None if never.

    For files it is when they were written, for messages and gold the end of the last run with rows.

    Args:
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


def stale_problems(config: Config, run_state: RunState) -> Iterator[Problem]:
    """Yield the stale sources and gold tables; the arguments are those of `last_arrivals`."""
    remedy = "run medallion nightly; if it is still stale, ask the writer of its rows"
    for name, every, last in _expected(config, run_state):
        if clock.now_micros() - (last or 0) > every.micros:
            since = f"no new rows since {clock.format_time(last)}" if last else "never had a row"
            yield Problem(ProblemCode.STALE, name, f"{since} (expect_every: {every})", remedy)


def fresh_until(config: Config, run_state: RunState) -> list[int]:
    """Return when the sources and gold tables are stale next, in microseconds since 1970."""
    return [(last or 0) + every.micros for _, every, last in _expected(config, run_state)]


def _expected(config: Config, run_state: RunState) -> list[tuple[str, Duration, int | None]]:
    """Return what has `expect_every`, with that and its last arrival."""
    durations = {name: source.expect_every for name, source in config.sources.items()}
    durations |= {f"gold.{name}": table.expect_every for name, table in config.gold.items()}
    expected = {name: every for name, every in durations.items() if every}
    times = last_arrivals(config, run_state) if expected else {}
    return [(name, every, times[name]) for name, every in expected.items()]
