"""Converters of settings: each returns a valid value, or raises ValueError or TypeError."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar
from zoneinfo import available_timezones

T = TypeVar("T")

TYPES = ("string", "timestamp", "long", "double", "boolean", "date")
NESTED = ("struct<...>", "array<...>", "map<string,...>")
DECIMAL = "decimal(p,s)"
# Numbers since 1970, and strings of a pattern, which bronze has as timestamps.
TIME_UNITS = {"seconds": 0, "millis": 3, "micros": 6, "nanos": 9}  # digits of a second's fraction
TIME_FORMATS = (*(f"timestamp_{unit}" for unit in TIME_UNITS), "timestamp '<pattern>'")
# The pattern of numbers that a double holds exactly as text: of 15 digits, for Python and Java.
EXACT_DOUBLE = r"(?!\D*(\d\D*){16})-?(0|[1-9]\d*)(\.\d+)?"
_TIME_PATTERN = re.compile(r"timestamp '(.+)'")
# Letters of Spark's datetime patterns that it can parse, with how many of each may be in a row.
_PATTERN_LETTERS = {
    **{"G": 4, "y": 6, "M": 4, "L": 4, "d": 2, "D": 3, "a": 1, "h": 2, "H": 2, "k": 2, "K": 2},
    **{"m": 2, "s": 2, "S": 6, "V": 2, "z": 4, "O": 4, "X": 5, "x": 5, "Z": 5},
}
OLDER_NAME = "the older name of this source or table"
BOOLEAN, COUNT = "true or false", "a whole number above 0"
FIELD_PATH = "the name of a field, or a dotted path such as data.items"
DELIMITER = "one character such as ';' or \"\\t\" (or tab), but not a letter, digit or quote"
SIGN = "one character that is not a letter or digit"
SERVERS = "a list such as [localhost:9092]"
SQL, CONDITION = "a Spark SQL expression", "a condition in Spark SQL"
ARRAY = "an expression in Spark SQL that gives an array"
COLUMNS = "columns with their types"
TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")  # also the name of directories and files

_DAY = 86_400
# Seconds. Months and years are the longest ones, so that a watermark drops nothing too early.
_UNITS = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": _DAY}
_UNITS |= {"week": 7 * _DAY, "month": 31 * _DAY, "year": 366 * _DAY}
_SHORT_UNITS = {"ms": "millisecond", "s": "second", "sec": "second", "min": "minute", "h": "hour"}
DURATION = (
    "a duration in ms, seconds (s), minutes (min), hours (h), days, weeks, months or years, such "
    "as '10 minutes'"
)
CALENDAR = "1 week, 1 month, 1 quarter or 1 year"
WINDOW = (
    "a duration in ms, seconds (s), minutes (min), hours (h) or days, such as '10 minutes', or one "
    f"of {CALENDAR}"
)
_LONGEST = 100 * 366 * _DAY  # below the range of Spark's arithmetic
BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# Control characters, which no file name should have, and surrogates, which UTF-8 cannot encode.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_DECIMAL = re.compile(r"decimal\(([1-9]|[12][0-9]|3[0-8]), *[0-9]{1,2}\)")
# Spark parses the rest.
_MORE_TYPES = re.compile(rf"(struct|array|map)<.+>|{_DECIMAL.pattern}", re.DOTALL)


@dataclass(frozen=True, order=True)
class Duration:
    """A length of time; `text` is its spelling in units that all parts of Spark know."""

    seconds: float
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Parse a duration such as `10 minutes` or `15 min`; raise ValueError for anything else."""
        match = re.fullmatch(r"([1-9][0-9]*) *([a-z]+)", text.strip())
        number, unit = (int(match[1]), match[2]) if match else (0, "")
        unit = _SHORT_UNITS.get(unit, unit.removesuffix("s"))
        if unit not in _UNITS or number * _UNITS[unit] > _LONGEST:
            raise ValueError(f"{text!r} is not {DURATION}")
        seconds = number * _UNITS[unit]
        if unit in ("month", "year"):  # Spark has no fixed length for them
            number, unit = int(seconds / _DAY), "day"
        return cls(seconds, f"{number} {unit}" + ("" if number == 1 else "s"))

    @property
    def micros(self) -> int:
        """The duration in microseconds, the unit of recorded times."""
        return round(self.seconds * 1_000_000)

    def __str__(self) -> str:
        return self.text


CALENDAR_DAYS = {"day": 1, "week": 7, "month": 28, "quarter": 90, "year": 365}
"""The shortest length of each unit of the calendar."""


def window(value: Any) -> Duration:
    """Return a duration, or one unit of the calendar with its shortest length."""
    string = non_blank_string(value).strip()
    match = re.fullmatch(r"([0-9]+) *(week|month|quarter|year)s?", string)
    if match and match[1] != "1":
        raise ValueError  # `2 weeks` has no obvious start
    if match:
        return Duration(CALENDAR_DAYS[match[2]] * _DAY, f"1 {match[2]}")
    return Duration.parse(string)


def time_zone(value: Any) -> str:
    """Return the name of a time zone."""
    # The list of all zones is read from a hundred files.
    if non_blank_string(value) != "UTC" and value not in available_timezones():
        raise ValueError
    return str(value)


def fold_case(name: str) -> str:
    """Return a key that is equal for names that Spark takes for the same column.

    Spark compares character by character: dotted and dotless i are equal.
    """
    upper = (letter.upper() for letter in name)
    # The upper case of some letters has two letters in Python, and one in Java.
    one = (u if len(u) == 1 else c for c, u in zip(name, upper, strict=True))
    return "".join(letter.lower()[0] for letter in one)


def key(
    convert: Callable[[Any], Any], expected: str, default: Any = ..., name: str | None = None
) -> Any:
    """Return a field of a dataclass that is a key of pipeline.yaml; `Node.settings` reads it.

    Args:
        convert: returns the value, or raises ValueError or TypeError if it is invalid.
        expected: what the value must be, for messages and the reference.
        default: the default as pipeline.yaml spells it, or None; else the key is required.
        name: the key, if it is not the name of the field.
    """
    metadata = {"key": (convert, expected, default), "name": name}
    if default is ...:
        return field(metadata=metadata)
    return field(default=None if default is None else convert(default), metadata=metadata)


def choice_key(choices: Sequence[str]) -> Any:
    """Return a field of a dataclass that is a key with one of these words, by default the first."""
    return key(one_of(choices), f"one of {', '.join(choices)}", choices[0])


class InvalidColumnError(ValueError):
    """A mapping has an invalid column."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem


def non_blank_string(value: Any) -> str:
    """Return a string that is neither blank nor unprintable."""
    if not _is_text(value):
        raise ValueError
    return str(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not _UNPRINTABLE.search(value)


def matching(expression: str) -> Callable[[Any], str]:
    """Return a function that accepts the strings that match a regular expression."""

    def convert(value: Any) -> str:
        if not re.fullmatch(expression, non_blank_string(value)):
            raise ValueError
        return str(value)

    return convert


table_name = matching(TABLE_NAME.pattern)
file_glob = matching(r"[^._/{][^/{]*")
topic = matching(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
server = matching(r"[^\s,/@]+:[1-9][0-9]{0,4}")
field_path = matching(r"[^.]+(\.[^.]+)*")


def string_list(value: Any) -> tuple[str, ...]:
    """Return a list of strings."""
    if not isinstance(value, list):
        raise TypeError
    return tuple(non_blank_string(v) for v in value)


def distinct(convert: Callable[[Any], str]) -> Callable[[Any], tuple[str, ...]]:
    """Return a function that accepts a list, not empty, of different strings."""

    def convert_list(value: Any) -> tuple[str, ...]:
        strings = tuple(map(convert, string_list(value)))
        if not strings or len({*strings}) < len(strings):
            raise ValueError
        return strings

    return convert_list


def columns_of(value: Any) -> Mapping[str, str]:
    """Return a mapping of columns to strings, which is not empty."""
    if not isinstance(value, dict) or not value:
        raise ValueError
    for name, string in value.items():
        if not _is_text(string):
            raise InvalidColumnError(str(name), f"must be a string, not {string!r}")
    return {non_blank_string(name): string for name, string in value.items()}


def named_columns(value: Any) -> Mapping[str, str]:
    """Return a mapping of snake_case columns to strings."""
    columns = columns_of(value)
    for name in columns:
        if not TABLE_NAME.fullmatch(name):
            raise InvalidColumnError(name, "is not snake_case: a letter, then also digits and _")
    return columns


def typed_columns(value: Any) -> Mapping[str, str]:
    """Return a mapping of snake_case columns to simple types and decimals."""
    columns = named_columns(value)
    for name, type_name in columns.items():
        if type_name not in TYPES and not _DECIMAL.fullmatch(type_name):
            known = ", ".join((*TYPES, DECIMAL))
            problem = f"must be one of the types {known}, not {type_name!r}"
            raise InvalidColumnError(name, problem)
    return columns


def schema_of(value: Any) -> Mapping[str, str]:
    """Return a mapping of columns to types: simple, decimal, nested, or a time format."""
    columns = columns_of(value)
    seen: dict[str, str] = {}
    for name, type_name in columns.items():
        if pattern := _TIME_PATTERN.fullmatch(type_name):
            if problem := _time_pattern_problem(pattern[1]):
                raise InvalidColumnError(name, problem)
        elif type_name not in (*TYPES, *TIME_FORMATS) and not _MORE_TYPES.fullmatch(type_name):
            known = ", ".join((*TYPES, DECIMAL, *NESTED, *TIME_FORMATS))
            raise InvalidColumnError(name, f"must be one of the types {known}, not {type_name!r}")
        if other := seen.get(fold_case(name)):
            raise InvalidColumnError(name, f"is the same column as {other}: case is ignored")
        seen[fold_case(name)] = name
    return columns


def inferred_or_schema(value: Any) -> Mapping[str, str] | None:
    """Return what `schema_of` returns, or None for `infer`."""
    return None if value == "infer" else schema_of(value)


def _time_pattern_problem(pattern: str) -> str | None:
    """Return what is wrong with a datetime pattern of Spark, or None."""
    letters = re.sub(r"'[^']*'", "", pattern)
    for run in re.finditer(r"([A-Za-z])\1*", letters):
        longest = _PATTERN_LETTERS.get(run[1], 0)
        if len(run[0]) > longest:
            known = "".join(_PATTERN_LETTERS)
            quote_rule = f"put letters other than {known} in quotes"
            rule = f"{run[1]!r} can repeat at most {longest} times" if longest else quote_rule
            return f"has {run[0]!r} in its pattern {pattern!r}: {rule}"
    if not {"y"} <= set(letters) or not set(letters) & {"d", "D"}:
        return f"has no year and day in its pattern {pattern!r}, such as 'dd.MM.yyyy HH:mm'"
    return None


def duration(value: Any) -> Duration:
    """Return a duration such as `10 minutes`."""
    return Duration.parse(non_blank_string(value))


def count(value: Any) -> int:
    """Return a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def percentage(value: Any) -> float:
    """Return the fraction of a percentage such as `50 %`."""
    number = float(non_blank_string(value).removesuffix("%"))
    if not 0 <= number <= 100 or not value.endswith("%"):
        raise ValueError
    return number / 100


def size(value: Any) -> int:
    """Return the bytes of a size such as `1 GiB`."""
    match = re.fullmatch(r"([1-9]\d{0,6}) (KiB|MiB|GiB)", non_blank_string(value))
    if not match:
        raise ValueError
    return int(match[1]) * BYTES[match[2]]


def delimiter(value: Any) -> str:
    r"""Return the character between two fields of CSV; `\t` is a tab, as Spark spells it."""
    return _sign("\t" if value in ("\\t", "tab") else value, "\"'\\\r\n\0")


def csv_character(value: Any) -> str:
    """Return a single character with a meaning in CSV, such as a quote."""
    return _sign(value, " \r\n\t\0")


def _sign(value: Any, refused: str) -> str:
    """Return a single ASCII character that is no letter, no digit and not refused."""
    is_sign = isinstance(value, str) and len(value) == 1 and value.isascii() and not value.isalnum()
    if not is_sign or value in refused:
        raise ValueError
    return str(value)


def quote(value: Any) -> str:
    """Return the character around fields of CSV; "" if there is none."""
    return "" if value == "" else csv_character(value)


def string(value: Any) -> str:
    """Return any string."""
    if not isinstance(value, str):
        raise ValueError
    return value


def encoding(value: Any) -> str:
    """Return Python's name of a text encoding."""
    try:
        name = codecs.lookup(non_blank_string(value)).name
        "a".encode(name)  # LookupError if it does not encode text
    except LookupError:
        raise ValueError from None
    return name.removesuffix("-sig")


def boolean(value: Any) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def one_of(choices: Sequence[T]) -> Callable[[Any], T]:
    """Return a function that accepts one of these words or numbers."""

    def convert(value: Any) -> T:
        if isinstance(value, bool) or value not in choices:
            raise ValueError
        return choices[choices.index(value)]

    return convert


_WILDCARD = re.compile(r"[*?\[\]]")


def matches_pattern(name: str, pattern: str) -> bool:
    """Return True if a name, hidden or not, fits the pattern."""
    return fnmatchcase(name.lstrip("._"), pattern)


def may_overlap(one: str, other: str) -> bool:
    """Return False if the starts or ends of two patterns show that no name fits both.

    Character classes are not compared: `[a-m]*` and `[n-z]*` may overlap.
    """
    for name, pattern in ((one, other), (other, one)):
        if not _WILDCARD.search(name):
            return fnmatchcase(name, pattern)
    (start, end), (start_2, end_2) = ((p[0], p[-1]) for p in map(_WILDCARD.split, (one, other)))
    return (start.startswith(start_2) or start_2.startswith(start)) and (
        end.endswith(end_2) or end_2.endswith(end)
    )
