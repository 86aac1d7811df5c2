"""What follows a command: alerts if it failed, and the file of metrics; neither fails it."""

from collections.abc import Iterator

from medallion.config.loader import METRICS_FILE
from medallion.config.model import Config
from medallion.storage.text import error_reason

_RUNS = ("nightly", "run", "stream")


def after_command(
    config: Config, command: str, status: int, error: Exception | None = None
) -> Iterator[str]:
    """Send alerts and write metrics, if so configured.

    Args:
        command: the name of the command.
        status: its exit status.
        error: the error that ended it, if any.

    Yields:
        A message for each alert or file that failed.
    """
    has_alerts = status != 0 and command in _RUNS and config.on_failure.is_configured
    metrics_file = config.metrics_file if command in (*_RUNS, "status") else None
    if not (has_alerts or metrics_file):
        return
    from medallion.inspect.status import query_statuses  # here: most commands do not need these
    from medallion.inspect.verdict import observe
    from medallion.runtime.alerts import send_alerts

    try:
        statuses = query_statuses(config)
        seen = observe(config, statuses)
        if has_alerts:
            yield from send_alerts(config, command, status, seen.verdict, error)
        if metrics_file:
            from medallion.runtime.metrics import write_metrics

            write_metrics(config, metrics_file, statuses, seen)
    except Exception as failure:  # of a hook, which must not fail the command
        what = METRICS_FILE if isinstance(failure, OSError) else "alerts and metrics"
        yield f"{what}: {type(failure).__name__}: {error_reason(failure)}."
