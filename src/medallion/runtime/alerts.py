"""Alerts of failed runs, by a command or as JSON to a URL, without values of rows; no JVM."""

import json
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from medallion.config.model import Config
from medallion.config.operations import OnFailure
from medallion.errors import UsageError
from medallion.inspect.problems import LakehouseVerdict, problem_lines, problems_json
from medallion.storage.text import error_reason, printable

_POST_SECONDS, _COMMAND_SECONDS = 10, 60


def send_alerts(
    config: Config,
    command: str,
    status: int,
    verdict: LakehouseVerdict,
    error: Exception | None = None,
) -> Iterator[str]:
    """Send the configured alerts of a run that failed: the verdict, and problems with remedies.

    Messages of errors are part of them only with `details`, or if they are about wrong use.

    Args:
        status: its exit status.
        verdict: the verdict on the lakehouse.
        error: the error that ended the command, if any.

    Yields:
        A message for each alert that could not be sent; it has no secret.
    """
    settings = config.on_failure
    if not settings.details:
        without = (replace(each, sentence=each.detail) for each in verdict.problems)
        verdict = LakehouseVerdict(tuple(without))
    where = f"{socket.gethostname()}:{config.layout.root}"
    lines = [f"medallion {command} on {where} ended with status {status}."]
    if error and (settings.details or isinstance(error, UsageError)):
        lines.append(str(error))
    if verdict.problems:
        lines += [str(verdict), *problem_lines(verdict.errors)]
    if verdict.errors and not settings.details:
        lines.append("medallion status has the messages.")
    text = "\n".join(map(printable, lines))
    if settings.command and (problem := _run_command(settings, text)):
        yield f"on_failure.command: the alert was not sent: {problem}."
    if settings.variable and not settings.post:
        yield f"on_failure.post: the alert was not sent: {settings.variable} is not set."
    if settings.post:
        document = {
            # Slack reads <...> as links and mentions.
            "text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
            "command": command,
            "exit_status": status,
            "host": socket.gethostname(),
            "root": str(config.layout.root),
            "problems": problems_json(verdict.problems),
        }
        if problem := _post(settings.post, json.dumps(document)):
            yield f"on_failure.post: the alert was not sent: {problem}."


def _run_command(settings: OnFailure, text: str) -> str | None:
    """Run the command; return why it failed, or None."""
    try:
        given: dict[str, Any] = {"input": text.encode(errors="replace"), "capture_output": True}
        process = subprocess.run(settings.command, **given, timeout=_COMMAND_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{settings.command[0]} took longer than {_COMMAND_SECONDS} s"
    except OSError as error:
        return f"{settings.command[0]}: {error_reason(error)}"
    return f"{settings.command[0]} ended with {process.returncode}" if process.returncode else None


def _post(url: str, document: str) -> str | None:
    """Post JSON; return why it failed, or None. The URL may be a secret, so it is not named."""
    request = Request(url, document.encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=_POST_SECONDS):
            return None
    except HTTPError as error:
        return f"the server answered {error.code}"
    except URLError as error:
        reason = error.reason
        return error_reason(reason) if isinstance(reason, OSError) else "no server answers"
    except (OSError, ValueError) as error:
        return type(error).__name__
