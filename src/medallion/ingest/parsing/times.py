"""Times, dates and decimals: parsed as strings and then converted, or tested, in SQL and Python.

Conversions are for top-level fields. Spark parses such types within structs, arrays and maps itself
(`parsing.nested`).

Valid times are in the years 1 to 9999 and have at most microseconds. Others are rescued: Spark
would truncate digits, and read a number as days or a month as a time; other readers of the tables
cannot show every year.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from medallion.config.values import TIME_UNITS
from medallion.ingest.parsing.json_text import parsed_field
from medallion.storage.table_specs import quote_identifier, string_literal

TIME_TYPES = ("timestamp", "date")
# Declared types of epoch times, with their digits of fractional seconds.
EPOCH_DIGITS = {f"timestamp_{unit}": digits for unit, digits in TIME_UNITS.items()}
# Spark's own formats drop microseconds.
_LOCAL_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
EXACT_FORMATS = {"timestampFormat": f"{_LOCAL_TIME}XXX", "timestampNTZFormat": _LOCAL_TIME}
_MICROSECONDS, NANOSECONDS = 6, 9  # digits of fractional seconds
_DAY = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_COMPLETE_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK = "[0-9]{1,2}(:[0-9]{1,2}){0,2}"
# Zone names are excluded as ambiguous: Java reads BST as the time in Dhaka.
_ZONE = " ?(Z|(UTC|GMT)?([+-][0-9]{1,2}(:?[0-9]{2}(:?[0-9]{2})?)?)?)"
_FIRST_SECOND = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_LAST_SECOND = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
# Escaped digits or signs occur only in strings, and a search for quoted digits misses them.
_ESCAPED = r"(contains(value, r'\u003') or contains(value, r'\u002'))"
_IN_RANGE = "between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z'"


@cache
def _time_pattern(digits: int) -> str:
    """Return the pattern of times with at most this many fractional digits, plus any zeros."""
    fraction = f"[.][0-9]{{0,{digits}}}0*"
    clock = f"[0-9]{{1,2}}(:[0-9]{{1,2}}(:[0-9]{{1,2}}({fraction})?)?)?"
    return f"{_DAY}([T ]({clock}{_ZONE})?)?"


def is_time_format(dtype: str) -> bool:
    """Return whether a declared type is an epoch time or a pattern, not a Spark type."""
    return dtype in EPOCH_DIGITS or dtype.startswith("timestamp '")


def column_type(dtype: str) -> str:
    """Return the type of the column for a declared type."""
    return "timestamp" if is_time_format(dtype) else dtype


def timestamp_from_format(string: str, dtype: str) -> str:
    """Return SQL for the timestamp in a value of a time format, null if it is invalid.

    Args:
        string: SQL of the value as a string.
        dtype: `timestamp_seconds`, `_millis`, `_micros`, `_nanos`, or `timestamp '<pattern>'`.
    """
    if dtype in EPOCH_DIGITS:
        micros = _epoch_micros(string, EPOCH_DIGITS[dtype])
        is_within = f"{micros} between {_FIRST_SECOND}000000 and {_LAST_SECOND}999999"
        return f"case when {is_within} then timestamp_micros(cast({micros} as bigint)) end"
    pattern = string_literal(dtype.removeprefix("timestamp '").removesuffix("'"))
    time = f"try_to_timestamp({string}, {pattern})"
    return f"case when {time} {_IN_RANGE} then {time} end"


def _epoch_micros(string: str, digits: int) -> str:
    """Return SQL for microseconds since 1970; `string` counts units of 10^-digits seconds."""
    number = f"try_cast({string} as decimal(30, 9))"
    if digits > _MICROSECONDS:
        return f"floor({number} / {10 ** (digits - _MICROSECONDS)})"
    return f"round({number} * {10 ** (_MICROSECONDS - digits)})"


def plain_time(string: str, dtype: str) -> str:
    """Return SQL for a time from its string, null if it is not of the most common form.

    Args:
        string: SQL of the string of a field of the line `value`.
        dtype: `timestamp`, `date` or a time format.
    """
    if is_time_format(dtype):
        return timestamp_from_format(string, dtype)
    # The first and last day are excluded: in UTC they may be in year 0 or 10000.
    is_within = f"{string} > '0001-01-02' and {string} < '9999-12-31'"
    if dtype == "date":
        is_plain = rf"{string} rlike r'^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}\z'"
        return f"case when {is_plain} and {is_within} then try_cast({string} as date) end"
    # A pattern for the complete string would take half as long as parsing it. Spark also accepts
    # months such as 2018-03, and trims line ends.
    has_date = f"instr({string}, '-') = 5 and locate('-', {string}, 6) = 8"
    end = f"([.][0-9]{{0,{_MICROSECONDS}}})?(Z|[+-][0-9]*(:[0-9]*)?)?"  # what follows the seconds
    has_end = rf"substr({string}, 19) rlike r'^([0-9]{end})?\z'"
    has_end += rf" and (octet_length({string}) > 19 or {string} rlike r'[0-9]Z?\z')"
    # A number is seconds; the same digits in quotes would be a year.
    is_quoted = f"contains(value, concat('\"', {string})) or {_ESCAPED}"
    is_seconds = rf"{string} rlike r'^[0-9]{{1,11}}\z' and not ({is_quoted})"
    return (
        f"case when {is_within} and {has_date} and {has_end} then try_cast({string} as timestamp)"
        f" when {is_seconds} then timestamp_seconds(try_cast({string} as bigint)) end"
    )


def is_not_timestamp(json: str, typed: str) -> str:
    """Return SQL that tests whether Spark's timestamp differs from its string or is out of range.

    Spark overflows for large numbers of seconds, and reads a few digits in quotes as a year; only
    the line shows the quotes.

    Args:
        json: SQL of the string of a field of the line `value`.
        typed: SQL of the timestamp that Spark parsed.
    """
    is_quoted = (
        f"length({json}) < 8 and (contains(value, concat('\"', {json}, '\"')) or {_ESCAPED})"
    )
    is_outside = f"not try_cast({json} as bigint) between {_FIRST_SECOND} and {_LAST_SECOND}"
    return (
        rf"case when {json} rlike r'^-?[0-9]{{1,12}}\z' then {is_quoted} or {is_outside}"
        rf" else not trim({json}) rlike r'^{_time_pattern(_MICROSECONDS)}\z'"
        f" or not {typed} {_IN_RANGE} end"
    )


def is_not_date(json: str, typed: str) -> str:
    """Return SQL that tests whether the string of a parsed date is not a date, or out of range.

    Spark reads digits as days since 1970, and truncates times.
    """
    return rf"(not trim({json}) rlike r'^{_DAY}\z' or {typed} < date'0001-01-01')"


def is_inferred_time(string: str, digits: int = _MICROSECONDS) -> bool:
    """Return whether a string is a time by which a type is inferred: its date has all digits."""
    return bool(_COMPLETE_DAY.match(string)) and is_timestamp_string(string, digits)


def is_timestamp_string(string: str, digits: int = _MICROSECONDS) -> bool:
    """Return whether a string is a date, or a time with at most this many fractional digits."""
    start = re.match(f"{_DAY}([T ]{_CLOCK})?", string)
    if not start or not re.fullmatch(_time_pattern(digits), string):
        return False
    numbers: Any = map(int, re.findall("[0-9]+", start[0]))
    try:
        return bool(datetime(*numbers))
    except ValueError:
        return False


def is_in_time_range(value: str, dtype: str) -> str:
    """Return SQL that tests whether a `timestamp` or `date` is in the years 1 to 9999."""
    if dtype == "date":
        return f"{value} between date'0001-01-01' and date'9999-12-31'"
    return f"{value} {_IN_RANGE}"


def time_from_string(string: str, dtype: str) -> str:
    """Return SQL for the `timestamp` or `date` that a string represents exactly, or null."""
    time = f"try_cast({string} as {dtype})"
    pattern = _DAY if dtype == "date" else _time_pattern(_MICROSECONDS)
    is_exact = rf"trim({string}) rlike r'^{pattern}\z' and {is_in_time_range(time, dtype)}"
    return f"case when {is_exact} then {time} end"


def timestamp_from_seconds(number: str) -> str:
    """Return SQL for the timestamp of seconds since 1970, or null outside the years 1 to 9999."""
    is_within = f"{number} between {_FIRST_SECOND} and {_LAST_SECOND}"
    return f"case when {is_within} then timestamp_seconds({number}) end"


# Prefix of columns with a converted value, null if its string does not fit. Those of times and
# dates are also null if the string is not of the most common form.
CONVERTED = "_converted_"


def is_decimal(dtype: str) -> bool:
    """Return whether a Spark type is a decimal."""
    return dtype.startswith("decimal(")


def converted_columns(schema: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a schema whose values are converted from strings."""
    return {
        name: dtype
        for name, dtype in schema.items()
        if dtype in TIME_TYPES or is_time_format(dtype) or is_decimal(dtype)
    }


def as_strings(schema: Mapping[str, str]) -> dict[str, str]:
    """Return a schema with strings for converted types, to validate the original strings."""
    return {**schema, **dict.fromkeys(converted_columns(schema), "string")}


def converted_column(name: str) -> str:
    """Return SQL for the `_converted_` column of a field."""
    return quote_identifier(CONVERTED + name)


def converted_value(string: str, dtype: str) -> str:
    """Return SQL for the value of a `_converted_` column.

    Args:
        string: SQL of the string of a field of the line `value`.
        dtype: `timestamp`, `date`, a time format or a decimal.
    """
    is_exact = is_decimal(dtype)
    return decimal_from_string(string, dtype) if is_exact else plain_time(string, dtype)


def values_fit(columns: Mapping[str, str]) -> str:
    """Return SQL that tests whether all fields of `_parsed` fit; these columns need a value."""
    fit = (f"({parsed_field(n)} is null or {converted_column(n)} is not null)" for n in columns)
    return " and ".join(["_parsed._conflict is null", *fit])


def decimal_from_string(string: str, dtype: str) -> str:
    """Return SQL for the decimal that a string represents exactly, or null.

    The string is a number as JSON has it, blanks around it are ignored. With an exponent, which
    Java writes from 10,000,000, it has 15 digits at most: as many as a double distinguishes.
    """
    value = f"try_cast({string} as {dtype})"
    scale = dtype.removesuffix(")").split(",")[1]
    fraction = rf"[.](?=[0-9])[0-9]{{0,{scale}}}0*"
    is_plain = rf"{string} rlike r'^ *-?(0|[1-9][0-9]*)({fraction})? *\z'"
    is_short = rf"{string} rlike r'^ *-?[0-9][0-9.]{{0,14}}[eE][-+]?[0-9]{{1,2}} *\z'"
    is_equal = f"cast({value} as double) = try_cast({string} as double)"
    return f"case when {is_plain} or ({is_short} and {is_equal}) then {value} end"


def value_of_type(value: str, dtype: str) -> str:
    """Return SQL for a value in a simple type, or null if it does not fit."""
    if is_decimal(dtype):
        return decimal_from_string(f"cast({value} as string)", dtype)
    return f"try_cast({value} as {dtype})"
