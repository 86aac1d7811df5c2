"""Types whose values are parsed as strings and then converted: times, dates and decimals.

They are for top-level fields. Spark parses such types within structs, arrays and maps itself
(`parsing.nested`).
"""

from collections.abc import Mapping

from medallion.ingest.parsing.json_text import parsed_field
from medallion.ingest.parsing.times import TIME_TYPES, is_time_format, plain_time
from medallion.storage.table_specs import quote_identifier

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
