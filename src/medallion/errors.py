"""The one family of errors that medallion shows to people without a stack trace."""


class MedallionError(Exception):
    """Something a person can put right; the message says what it is and what to do."""

    exit_status = 1


class UnreachableError(MedallionError):
    """Another program does not answer, which may be so for a while only."""


class UsageError(MedallionError):
    """Wrong use of a command, or a state of things in which it must not run."""

    exit_status = 2


class ConfigError(UsageError):
    """A setting is missing, unknown or not of its kind; the message names the key."""


ITEM_ERRORS = (MedallionError, OSError)
"""What keeps whoever looks at many things from one of them, and hides nothing of the others: it is
damaged, or the system refuses it."""


def error_message(fault: Exception) -> str:
    """One of these in a sentence, with the file that the system refuses."""
    if isinstance(fault, OSError) and fault.strerror:  # of a full disk there is no name
        return f"{f'{fault.filename}: ' if fault.filename else ''}{fault.strerror}."
    return str(fault)
