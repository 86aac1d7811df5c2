"""Errors that the command line prints as one message, without a stack trace."""


class MedallionError(Exception):
    """An error that the user can fix; the message says what happened and what to do."""

    exit_status = 1

    @property
    def messages(self) -> tuple[str, ...]:
        """Return the message of each problem."""
        return (str(self),)


class UnreachableError(MedallionError):
    """An external service does not answer; a later run may succeed."""


class UsageError(MedallionError):
    """Wrong use of a command, or a state in which it must not run."""

    exit_status = 2


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

    @property
    def messages(self) -> tuple[str, ...]:
        """Return the message of each problem."""
        return self.args


class NoSourceError(ConfigError):
    """pipeline.yaml has no source yet."""


ITEM_ERRORS = (MedallionError, OSError)
"""Errors confined to one item: report it and continue with the rest."""


def error_message(error: Exception) -> str:
    """Return the message of an error; for an OSError, the file and the reason."""
    if isinstance(error, OSError) and error.strerror:  # for a full disk, filename is None
        return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}."
    return str(error)
