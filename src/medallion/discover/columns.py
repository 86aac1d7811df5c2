"""Columns of sampled rows: names, types, and candidates for event time and keys."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from medallion.config.values import EXACT_DOUBLE, TIME_UNITS
from medallion.ingest.parsing.times import NANOSECONDS, is_inferred_time
from medallion.storage.table_specs import column_name

Row = dict[str, Any]

_MAX_LEAVES, _MAX_LEVELS = 40, 4  # of structs whose fields become columns
_NUMBER = re.compile(r"[-+]?(\d+|\d*[.,]\d+)([eE][-+]?\d+)?")
_TIME_NAME = re.compile(
    r"(^|[^a-z])(ts|t|time|timestamp|date|datum|zeit|at|when|day|epoch|ms|millis|born)([^a-z]|$)|time$"
    r"|[a-z]ed(_utc|_on)?$"  # created, received_utc
)
KEY_NAME = re.compile(
    r"(^|[^a-z])(id|uid|uuid|guid|key|no|number|lsn|offset|oid|numero|numéro)$"
    r"|(nr|nummer|kennung|schl(ü|ue?)ssel)$"  # German and Dutch put words together
)
_CHANGE_NAME = re.compile(r"updat|modif|delet|expir|end|due|birth|born")
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
        mistake: what is wrong with some values, and what to do.
    """

    hint: str
    reason: str
    times: list[datetime]
    other: str = ""
    mistake: str = ""


@dataclass(frozen=True, eq=False)
class Column:
    """A column of silver.

    Attributes:
        path: the names of the field and of the structs around it.
        name: the column's name in silver.
        type: its approximate type in bronze.
        cells: its value in each row of the sample, or None.
        template: SQL of a field of a changed row by its dotted name, `{}`. Empty if the first name
            of the path is a column of bronze.
    """

    path: tuple[str, ...]
    name: str
    type: str
    cells: list[Any]
    template: str = ""

    @property
    def values(self) -> list[Any]:
        """Its values in the sample that are not null."""
        return [value for value in self.cells if value is not None]

    @property
    def is_nested(self) -> bool:
        """Whether it is a field within a column of bronze, for which there are no hints."""
        return bool(self.template) or len(self.path) > 1

    @property
    def sql(self) -> str:
        """SQL of the field over bronze's columns."""
        names = map(column_name, self.path)
        quoted = (n if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", n) else f"`{n}`" for n in names)
        return (self.template or "{}").format(".".join(quoted))

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


def infer_columns(
    rows: Sequence[Row], has_types: bool, taken: Iterable[str] = ()
) -> tuple[list[Column], list[str]]:
    """Return the columns, and the fields that are null in all rows.

    Args:
        has_types: False if strings may be values of other types, as in CSV.
        taken: names that silver's columns must not have.
    """
    columns, empty = list[Column](), list[str]()
    # Columns of gold, and those that an entry may add.
    names = {"window_start", "window_end", "ingested_at", "row_digest", "no_key", *taken}
    for path, cells in _leaves(rows, ()):
        values = [value for value in cells if value is not None]
        if not values:
            empty.append(".".join(path))
            continue
        name, number = silver_name(path), 2
        while name in names:
            name, number = f"{silver_name(path)}_{number}", number + 1
        names.add(name)
        columns.append(Column(path, name, _infer_type(values, has_types), cells))
    return columns, empty


def _leaves(
    rows: Sequence[Row], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield each field with its value in each row; a small struct is replaced by its fields."""
    for name in dict.fromkeys(name for row in rows for name in row):
        cells = [None if (v := row.get(name)) in (None, [], {}) else v for row in rows]
        values, leaves = [value for value in cells if value is not None], []
        are_structs = bool(values) and all(isinstance(value, dict) for value in values)
        # Keys that are data may be many.
        is_small = are_structs and len({key for value in values for key in value}) <= _MAX_LEAVES
        if is_small and len(path) < _MAX_LEVELS:
            leaves = list(_leaves([cell or {} for cell in cells], (*path, name)))
        yield from leaves if 0 < len(leaves) <= _MAX_LEAVES else [((*path, name), cells)]


def is_value(text: str) -> bool:
    """Return True if a string is a number or a time, which names of columns rarely are."""
    return bool(_NUMBER.fullmatch(text) or _parse_iso(text) or _match_date_pattern([text]))


def _infer_type(values: Sequence[Any], has_types: bool) -> str:
    def all_match(pattern: str) -> bool:
        return not has_types and all(re.fullmatch(pattern, str(value)) for value in values)

    if all((isinstance(v, str) and _parse_iso(v)) or isinstance(v, date) for v in values):
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
    if all(value.isdigit() for value in values) or ambiguous_number(column):
        return None  # an identifier, with leading zeros
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
    if all(map(_NUMBER.fullmatch, texts)) and (time_format := _match_epoch(texts)):
        return time_format
    time_format = _match_date_pattern(texts) if isinstance(values[0], str) else None
    if not time_format or "yyyy" in time_format.hint:
        return time_format
    # Python takes 69 for 1969, but Java, and so Spark, for 2069.
    times = [t.replace(year=t.year + 100 * (t.year < 2000)) for t in time_format.times]
    tomorrow, sql = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1), column.sql
    future = sum(time > tomorrow for time in times)
    past = f"if({sql} > _ingested_at, {sql} - interval 100 years, {sql}) reads them as past"
    mistake = f"yy is 2000 to 2099, so {future} of {len(times)} values are in the future; {past}"
    return replace(time_format, times=times, mistake=mistake if future else "")


def _match_epoch(texts: Sequence[str]) -> TimeFormat | None:
    """Return the unit of most numbers, if the others are 0 or times since 2000 in another unit."""
    numbers = [float(text.replace(",", ".")) for text in texts]
    fitting = (
        (unit for unit, factor in _EPOCHS.items() if _RANGE[0] <= number / factor < _RANGE[1])
        for number in numbers
    )
    units = [next(each, None if n else "") for n, each in zip(numbers, fitting, strict=True)]
    unit, count = Counter(units).most_common(1)[0]
    if not unit or None in units or 2 * count <= len(units):
        return None
    seconds = (number / _EPOCHS[unit] for number in numbers)
    utc = (datetime.fromtimestamp(second, UTC) for second in seconds if second < _RANGE[1])
    times = [time.replace(tzinfo=None) for time in utc]
    return TimeFormat(f"timestamp_{unit}", f"epoch {unit}", times)


def _parse_iso(value: str) -> datetime | None:
    """Return the time of a string that bronze infers to be one; None of another."""
    if not is_inferred_time(value, NANOSECONDS):
        return None
    text = re.sub(r" ?(Z|UTC|GMT)(?=[+-]|$)", "", value).replace(" +", "+")
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

    They are named like keys: pairs of columns may be unique in a sample by chance, and rows with
    equal keys are dropped.

    Args:
        columns: all columns.
        rows: number of rows.
    """
    possible = (column for column in columns if column.type in ("string", "long"))
    named = (column for column in possible if KEY_NAME.search(column.words))
    unique = (column for column in named if len({*map(str, column.values)}) == rows)
    return sorted(unique, key=lambda column: len(column.path))
