"""Errors that the command line prints as one message, without a stack trace."""


class MedallionError(Exception):
    """An error that the user can fix; each message says what happened and what to do."""

    exit_status = 1

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


class UnreachableError(MedallionError):
    """An external service does not answer; a later run may succeed."""


class UsageError(MedallionError):
    """Wrong use of a command, or a state in which it must not run."""

    exit_status = 2


class StatementError(UsageError):
    """A SQL statement is wrong.

    Args:
        message: the text for the user.
        span: start and end of the wrong part of it, if known.
    """

    def __init__(
        self, message: str, statement: str = "", span: tuple[int, int] | None = None
    ) -> None:
        super().__init__(message)
        self.statement, self.span = statement, span

    @property
    def pointer(self) -> list[str]:
        """The line of the wrong part, and a line that points at it; empty if it is not known."""
        if self.span is None:
            return []
        start, end = self.span
        line_start = self.statement.rfind("\n", 0, start) + 1
        line = self.statement[line_start:].partition("\n")[0]
        length = max(1, min(end, line_start + len(line)) - start)
        return [f"  {line}", f"  {' ' * (start - line_start)}{'^' * length}"]


class ConfigError(UsageError):
    """A setting is missing, unknown or invalid; the message names the key.

    Args:
        message: the text for the user.
        key: the path of the key in pipeline.yaml, such as `sources.event.keys`.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class InvalidProjectError(UsageError):
    """All that is wrong with a project, a message each."""

    def __str__(self) -> str:
        return "\n".join(self.args)


class NoSourceError(ConfigError):
    """pipeline.yaml has no source yet."""


ITEM_ERRORS = (MedallionError, OSError)
"""Errors confined to one item: report it and continue with the rest."""


def error_message(error: Exception) -> str:
    """Return the message of an error; for an OSError, the file and the reason."""
    if isinstance(error, OSError) and error.strerror:  # for a full disk, filename is None
        return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}."
    return str(error)
