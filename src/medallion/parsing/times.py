"""Times and dates: which texts and numbers are one, and which of them at a glance."""

from __future__ import annotations

from collections.abc import Mapping

TIMES = ("timestamp", "date")
# Before the name of a column of times: its value, if it is of the plainest form.
PLAIN_TIME = "_plain_time_"
_MOST_SECONDS = (2**63 - 1) // 1_000_000
_WHOLE = "'^-?[0-9]+$'"
_DATE = "^[+-]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"


def times_of(schema: Mapping[str, str]) -> dict[str, str]:
    """The columns of a schema that hold times."""
    return {name: kind for name, kind in schema.items() if kind in TIMES}


def plain_time(text: str, kind: str) -> str:
    """SQL: a time from its text, null if it is not of the plainest form.

    Args:
        text: SQL of the text, of a field of the line `value`.
        kind: `timestamp` or `date`.
    """
    if kind == "date":
        plain = f"{text} rlike '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$'"
        return f"case when {plain} then try_cast({text} as date) end"
    # A number counts seconds; the same digits between quotes would be a year.
    seconds = f"{text} rlike '^[0-9]{{1,12}}$' and not contains(value, concat('\"', {text}))"
    dated = f"instr({text}, '-') = 5 and substr({text}, 8, 1) = '-'"  # 2018-03 is a month to Spark
    return (
        f"case when {dated} then try_cast({text} as timestamp)"
        f" when {seconds} then timestamp_seconds(cast({text} as bigint)) end"
    )


def is_no_time(json: str) -> str:
    """SQL: whether what Spark took for a time is none: seconds out of reach, or no whole date."""
    return f"case when {json} rlike {_WHOLE} then {_wrong_seconds(json)} else {_undated(json)} end"


def is_no_date(json: str) -> str:
    """SQL: whether what Spark took for a date is none.

    Digits count days since 1970 to Spark, and a time is cut off.
    """
    return f"not trim({json}) rlike '{_DATE}$'"


def _undated(json: str) -> str:
    """SQL: whether a text lacks the year, month or day that a time has to have.

    To Spark "1234-5" is a month, and a time of day one of today.
    """
    return f"not ltrim({json}) rlike '{_DATE}([T ]|$)'"


def _wrong_seconds(json: str) -> str:
    """SQL: whether a whole number does not count seconds: it is too large, or a text.

    Seconds whose microseconds are beyond a long come out as any time at all, and few digits
    between quotes as a year. Which of the two a text is shows in the line alone, `value`.
    """
    quoted = f"contains(value, concat('\"', {json}, '\"'))"
    return (
        f"(length({json}) < 8 and {quoted}"
        f" or abs(try_cast({json} as decimal(38))) > {_MOST_SECONDS})"
    )
