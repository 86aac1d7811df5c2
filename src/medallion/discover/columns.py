"""Columns of sampled rows: names, types, and candidates for event time and keys."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from medallion.config.values import EXACT_DOUBLE, TIME_UNITS
from medallion.storage.table_specs import column_name

Row = dict[str, Any]

_MAX_LEAVES, _MAX_LEVELS = 40, 4  # of structs whose fields become columns
_NUMBER = re.compile(r"[-+]?(\d+|\d*[.,]\d+)([eE][-+]?\d+)?")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)? ?(Z|UTC|[+-]\d\d(:?\d\d)?)?")
_TIME_NAME = re.compile(
    r"(^|[^a-z])(ts|t|time|timestamp|date|datum|zeit|at|when|day|epoch|ms|millis)([^a-z]|$)|time$"
    r"|[a-z]ed(_utc|_on)?$"  # created, received_utc
)
_KEY_NAME = re.compile(r"(^|[^a-z])(id|uid|uuid|guid|key|no|nr|number|lsn|offset|oid)$")
_CHANGE_NAME = re.compile(r"updat|modif|delet|expir|end|due|birth")
_GROUPED = re.compile(r"-?[1-9]\d{0,2}([.,]\d{3})+")  # 1.500 may be 1500
# Notations of numbers and booleans that bronze keeps as strings, with SQL that converts them.
_NOTATIONS = {
    r"[-+]?[\d.]+,\d+": "try_cast(replace(replace({}, '.', ''), ',', '.') as double)",
    r"[-+]?[$€£]? ?\d[\d,]*(\.\d+)?([eE][-+]?\d+)? ?[$€£%]?": (
        "try_cast(regexp_replace({}, '[^0-9.eE+-]', '') as double)"
    ),
    "(?i:true|false|yes|no|y|n|t|f)": "try_cast({} as boolean)",
}
# Java's date patterns, in the order in which they are tried. `dd/MM` and `MM/dd` may both fit.
_DATES = (
    *("yyyy-MM-dd", "dd.MM.yyyy", "dd/MM/yyyy", "MM/dd/yyyy", "yyyy/MM/dd", "dd-MMM-yyyy"),
    *("dd/MMM/yyyy", "yyyyMMdd", "dd-MM-yyyy", "MM-dd-yyyy", "dd.MM.yy", "dd/MM/yy", "MM/dd/yy"),
    *("dd-MMM-yy", "MMM dd, yyyy"),
)
_CLOCKS = (
    *("", " HH:mm", " HH:mm:ss", ":HH:mm:ss Z", " hh:mm a", " hh:mm:ss a", "HHmmss"),
    " HH:mm:ss,SSS",
)
# The parts of Java's patterns with Python's; of two that start alike, the longer one is first.
_PARTS = {
    **{"yyyy": "%Y", "yy": "%y", "MMM": "%b", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I"},
    **{"mm": "%M", "ss": "%S", "SSS": "%f", "a": "%p", "Z": "%z"},
}
_PART = re.compile("|".join(_PARTS))
_EPOCHS = {unit: 10**digits for unit, digits in TIME_UNITS.items()}
_RANGE = (946_684_800, 4_102_444_800)  # epoch seconds of 2000 and 2100


@dataclass(frozen=True)
class TimeFormat:
    """How a column's values encode times.

    Attributes:
        hint: the type for `hints`; "" if bronze infers a timestamp.
        reason: why it fits, for the user.
        times: the values in UTC.
        other: another hint that fits as well.
    """

    hint: str
    reason: str
    times: list[datetime]
    other: str = ""


@dataclass(frozen=True, eq=False)
class Column:
    """A column of silver.

    Attributes:
        path: the names of the field and of the structs around it.
        name: the column's name in silver.
        type: its approximate type in bronze.
        values: its values in the sample that are not null.
    """

    path: tuple[str, ...]
    name: str
    type: str
    values: list[Any]

    @property
    def is_nested(self) -> bool:
        """Whether it is a field of a struct."""
        return len(self.path) > 1

    @property
    def sql(self) -> str:
        """SQL of the field over bronze's columns."""
        names = map(column_name, self.path)
        return ".".join(n if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", n) else f"`{n}`" for n in names)

    @property
    def words(self) -> str:
        """The field's own name in lower case, with `_` before each capital letter."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.path[-1]).lower()


def silver_name(path: Sequence[str]) -> str:
    """Return a snake_case name for a field; `Größe` is `grosse`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", "_".join(path)).casefold()
    words = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", words))
    name = re.sub(r"[^a-z0-9]+", "_", words).strip("_")
    return (name if name[:1].isalpha() else f"c_{name}")[:90]


def infer_columns(rows: Sequence[Row], has_types: bool) -> tuple[list[Column], list[str]]:
    """Return the columns, and the fields that are null in all rows.

    Args:
        rows: the rows.
        has_types: False if strings may be values of other types, as in CSV.
    """
    columns, empty = list[Column](), list[str]()
    # Columns of gold, and those that an entry may add.
    names = {"window_start", "window_end", "ingested_at", "row_digest", "no_key"}
    for path, values in _leaves(rows, ()):
        if not values:
            empty.append(".".join(path))
            continue
        name, number = silver_name(path), 2
        while name in names:
            name, number = f"{silver_name(path)}_{number}", number + 1
        names.add(name)
        columns.append(Column(path, name, _infer_type(values, has_types), values))
    return columns, empty


def _leaves(
    rows: Sequence[Row], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield each field with its values; a small struct is replaced by its fields."""
    fields: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            fields.setdefault(name, []).extend([] if value in (None, [], {}) else [value])
    for name, values in fields.items():
        leaves = []
        if values and len(path) < _MAX_LEVELS and all(isinstance(v, dict) for v in values):
            leaves = list(_leaves(values, (*path, name)))
        yield from leaves if 0 < len(leaves) <= _MAX_LEAVES else [((*path, name), values)]


def is_value(text: str) -> bool:
    """Return True if a string is a number or a time, which names of columns rarely are."""
    return bool(_NUMBER.fullmatch(text) or _ISO.fullmatch(text) or _match_date_pattern([text]))


def _infer_type(values: Sequence[Any], has_types: bool) -> str:
    def all_match(pattern: str) -> bool:
        return not has_types and all(re.fullmatch(pattern, str(value)) for value in values)

    if all((isinstance(v, str) and _ISO.fullmatch(v)) or isinstance(v, date) for v in values):
        return "timestamp"
    if all(isinstance(value, bool) for value in values) or all_match("true|false"):
        return "boolean"
    if all(type(value) is int for value in values) or all_match(r"-?(0|[1-9]\d{0,17})"):
        return "long"
    if all_match(_GROUPED.pattern):
        return "string"
    if all(type(value) in (int, float) for value in values) or all_match(EXACT_DOUBLE):
        return "double"
    nested = {"struct": dict, "array": list, "decimal": Decimal}
    return next((n for n, t in nested.items() if all(isinstance(v, t) for v in values)), "string")


def ambiguous_number(column: Column) -> str | None:
    """Return a value such as 1.500 if all are like it: its sign may separate thousands."""
    values = column.values if column.type == "string" else []
    are_grouped = all(_GROUPED.fullmatch(str(value)) for value in values)
    return str(values[0]) if values and are_grouped else None


def conversion_sql(column: Column) -> str | None:
    """Return SQL that converts strings such as 1.234,50, $5 and TRUE; None if they are others."""
    values = [*map(str, column.values)]
    if all(value.isdigit() for value in values):
        return None  # an identifier, with leading zeros
    if ambiguous_number(column):
        return None
    for pattern, sql in _NOTATIONS.items():
        if all(re.fullmatch(pattern, value) for value in values):
            return sql.format(column.sql)
    return None


def detect_time_format(column: Column) -> TimeFormat | None:
    """Return how a column's values encode times; None if they do not."""
    values = column.values
    times = [time for value in values if (time := _parse_iso(str(value)))]
    not_iso = len(values) - len(times)
    is_iso = not_iso * 20 <= len(values) or (not_iso == 1 and len(values) >= 5)
    if is_iso:  # bronze infers a timestamp
        return TimeFormat("", f"ISO 8601{f', except {not_iso}' if not_iso else ''}", times)
    texts = [str(value) for value in values]
    if not _TIME_NAME.search(column.words):  # 1.5.26 may be a version
        time_format = None if texts[0].isdigit() else _match_date_pattern(texts)
        return time_format if time_format and "yyyy" in time_format.hint else None
    if all(map(_NUMBER.fullmatch, texts)):
        numbers = [float(text.replace(",", ".")) for text in texts]
        for unit, factor in _EPOCHS.items():
            if all(_RANGE[0] <= number / factor < _RANGE[1] for number in numbers):
                utc = (datetime.fromtimestamp(number / factor, UTC) for number in numbers)
                times = [time.replace(tzinfo=None) for time in utc]
                return TimeFormat(f"timestamp_{unit}", f"epoch {unit}", times)
    return _match_date_pattern(texts) if isinstance(values[0], str) else None


def _parse_iso(value: str) -> datetime | None:
    if not _ISO.fullmatch(value):
        return None
    text = re.sub(r"\.(\d{1,6})\d*", lambda match: f".{match[1]:0<6}", value)
    text = re.sub(" ?(Z|UTC)$", "Z", text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=None)


def _match_date_pattern(values: list[str]) -> TimeFormat | None:
    fitting = []
    plain = [re.sub(r",\d{3}$", ",000", value).casefold() for value in values]
    for date_pattern in _DATES:
        for clock in _CLOCKS:
            java = date_pattern + clock
            python = _PART.sub(lambda part: _PARTS[part[0]], java)
            try:
                times = [datetime.strptime(value, python) for value in values]
            except ValueError:
                continue
            # Python reads one digit where Java needs two, or a pattern of one letter.
            without_millis = python.replace("%f", "000")
            if [time.strftime(without_millis).casefold() for time in times] != plain:
                padded, java = java, re.sub(r"\b(dd|MM|HH|hh)\b", lambda match: match[0][0], java)
                if java == padded:
                    continue
            fitting.append((java, [time.replace(tzinfo=None) for time in times]))
    if not fitting:
        return None
    hints = [f"timestamp '{pattern}'" for pattern, _ in fitting]
    other = hints[1] if len(hints) > 1 else ""
    return TimeFormat(hints[0], f"pattern {fitting[0][0]}", fitting[0][1], other)


def time_candidates(columns: Sequence[Column], rows: int) -> list[tuple[Column, TimeFormat]]:
    """Return the columns that may be the event time, the best first.

    Args:
        columns: all columns.
        rows: number of rows, of which nearly all must have a value.
    """

    def rank(candidate: tuple[Column, TimeFormat]) -> tuple[bool, bool, bool, bool, int]:
        column, time_format = candidate
        is_constant = rows > 1 and len({*time_format.times}) < 2
        is_named = bool(_TIME_NAME.search(column.words))
        has_clock = any(time.hour or time.minute for time in time_format.times)
        is_change = bool(_CHANGE_NAME.search(column.words))
        return is_constant, not is_named, is_change, not has_clock, len(column.path)

    mostly_filled = (column for column in columns if len(column.values) * 20 >= rows * 19)
    formats = ((column, detect_time_format(column)) for column in mostly_filled)
    return sorted(((c, time_format) for c, time_format in formats if time_format), key=rank)


def key_candidates(columns: Sequence[Column], rows: int) -> list[Column]:
    """Return the columns that identify a row of the sample, the best first.

    They are named like keys: other columns, and pairs, may be unique in a sample by chance, and
    rows with equal keys are dropped.

    Args:
        columns: all columns.
        rows: number of rows.
    """
    possible = (column for column in columns if column.type in ("string", "long"))
    unique = (column for column in possible if len({*map(str, column.values)}) == rows)
    named = (column for column in unique if _KEY_NAME.search(column.words))
    return sorted(named, key=lambda column: len(column.path))
