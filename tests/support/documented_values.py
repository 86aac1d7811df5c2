"""A model of how silver may represent a value, independent of the code under test.

It implements the documented conversions (`docs/values.md`) for the column types of bronze. Silver
must have one of the values of the model, or, if the model allows it, the row is quarantined under
the field's rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tests.support.changing_types import TWICE, Record

_LONG, _EXACT = 2**63, 2**53
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:]{8}([.][0-9]{0,6})?(Z|[+-].*)")


@dataclass(frozen=True)
class Fit:
    """The valid outcomes for a value in a column of some type.

    Attributes:
        values: the values that silver may have.
        may_be_rescued: the row may be in quarantine under the field's rule.
    """

    values: tuple[Any, ...] = ()
    may_be_rescued: bool = True


_RESCUED = Fit()


def _fits(*values: Any) -> Fit:
    return Fit(values, may_be_rescued=False)


class Model:
    """The valid values of silver, by the types of bronze's columns.

    Attributes:
        format: the source format: json, csv or parquet.
    """

    def __init__(self, format: str, columns: Mapping[str, Any]) -> None:
        """Store the column types, as the JSON of Delta's schema has them."""
        self.format, self._columns = format, columns

    def field(self, record: Record, path: Sequence[str]) -> Fit:
        """Return the valid outcomes for a field of a record."""
        name = path[0]
        value = _member(record.fields, name)
        type_ = self._columns[name]
        if len(path) == 1:
            return self.fit(value, type_)
        inner = self._within(value, type_, path[1])
        if self.format == "parquet" and self.fit(value, type_).may_be_rescued:
            return Fit(inner.values)  # a struct that does not fit is rescued completely
        return inner

    def _within(self, value: Any, type_: Any, name: str) -> Fit:
        """Return the outcomes for a field of a struct, or of the structs of an array."""
        if value is None:
            return _fits(None)
        if type_["type"] == "array":
            if not isinstance(value, list):
                return _RESCUED
            inner = [self._within(item, type_["elementType"], name) for item in value]
            return _combine(inner, [[]])
        if not isinstance(value, dict) or TWICE in value:
            return _RESCUED
        (field_type,) = (f["type"] for f in type_["fields"] if f["name"].lower() == name)
        return self.fit(_member(value, name), field_type)

    def fit(self, value: Any, type_: Any) -> Fit:
        """Return the outcomes for a value in a column of a type."""
        if value is None:
            return _fits(None)
        if isinstance(type_, dict):
            return self._fit_nested(value, type_)
        name = re.split("[(]", type_)[0]
        return getattr(self, f"_fit_{name}")(value, type_) if value is not None else _fits(None)

    def _fit_nested(self, value: Any, type_: Any) -> Fit:
        if type_["type"] == "array":
            if not isinstance(value, list):
                return _RESCUED
            return _combine([self.fit(item, type_["elementType"]) for item in value], [[]])
        if not isinstance(value, dict) or TWICE in value:
            return _RESCUED
        known = {field["name"].lower(): field for field in type_["fields"]}
        if any(v is not None and n.lower() not in known for n, v in value.items()):
            return _RESCUED
        fits = [self.fit(_member(value, n), field["type"]) for n, field in known.items()]
        names = [field["name"] for field in type_["fields"]]
        combined = _combine(fits, [[]])
        values = tuple(dict(zip(names, element, strict=True)) for element in combined.values)
        return Fit(values, combined.may_be_rescued)

    def _fit_string(self, value: Any, _: str) -> Fit:
        match value:
            case str():  # or the column was a timestamp before it became a string
                time = (
                    [_Time(_utc(datetime.fromisoformat(value)))] if _TIME.fullmatch(value) else []
                )
                return _fits(value, *time)
            case bool():
                return _fits(json.dumps(value))
            case int():  # or written as a double (25700.0), or as seconds since 1970
                times = [_Time(datetime.fromtimestamp(value, UTC))] if abs(value) < 2**32 else []
                return _fits(_Number(Decimal(value)), *times)
            case Decimal() | float():  # rescued if a Java double has fewer digits
                return Fit((_Number(Decimal(value)),))
            case datetime():
                return _fits(_Time(_utc(value)))
            case date():
                return _fits(value.isoformat())
        return _fits(_Json(value))

    def _fit_long(self, value: Any, _: str) -> Fit:
        if self.format == "csv":
            is_integer = re.fullmatch(" *-?(0|[1-9][0-9]*) *", value)
            return _fits(int(value)) if is_integer and _is_long(int(value)) else _RESCUED
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return _RESCUED
        if self.format == "parquet" and isinstance(value, float) and abs(value) > _EXACT:
            return _RESCUED
        if value == int(value) and _is_long(int(value)):
            # JSON may write an integer as 3.0; typed formats are exact.
            return Fit(
                (int(value),), may_be_rescued=self.format == "json" and not isinstance(value, int)
            )
        return _RESCUED

    def _fit_double(self, value: Any, _: str) -> Fit:
        if self.format == "csv":
            try:
                return Fit((float(value),), may_be_rescued=not re.fullmatch("-?[0-9.]+", value))
            except ValueError:
                return _RESCUED
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return _RESCUED
        if self.format == "parquet":
            exact = Decimal(value)
            is_exact = Decimal(float(value)) == exact and -_EXACT <= exact <= _EXACT
            is_float = isinstance(value, float)
            return _fits(float(value)) if is_exact or is_float else Fit((float(value),))
        return _fits(float(value))

    def _fit_decimal(self, value: Any, type_: str) -> Fit:
        precision, scale = map(int, re.findall("[0-9]+", type_))
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return _RESCUED
        exact = Decimal(value)
        fits = exact == round(exact, scale) and abs(exact) < 10 ** (precision - scale)
        return _fits(exact) if fits else _RESCUED

    def _fit_timestamp(self, value: Any, _: str) -> Fit:
        match value:
            case datetime():
                return _fits(_utc(value))
            case date():
                return _fits(datetime(value.year, value.month, value.day, tzinfo=UTC))
            case str() if re.match(r"\d{4}-\d\d-\d\d", value):
                micros = re.sub(r"(\.\d{6})\d+", r"\1", value)
                # More digits fit a string, which silver's event time ends at the microsecond.
                return Fit((_utc(datetime.fromisoformat(micros)),), may_be_rescued=micros != value)
            case int() if not isinstance(value, bool) and self.format != "csv":
                return _fits(datetime.fromtimestamp(value, UTC))
        return _RESCUED

    def _fit_date(self, value: Any, _: str) -> Fit:
        if isinstance(value, date) and not isinstance(value, datetime):
            return _fits(value)
        return Fit((value,))

    def _fit_boolean(self, value: Any, _: str) -> Fit:
        return _fits(value) if isinstance(value, bool) else _RESCUED

    def _fit_integer(self, value: Any, type_: str) -> Fit:
        fit = self._fit_long(value, type_)
        return fit if all(abs(element) < 2**31 for element in fit.values) else _RESCUED


def _combine(fits: Sequence[Fit], start: list[list[Any]]) -> Fit:
    """Combine the outcomes of list elements into those of the list."""
    if any(not fit.values for fit in fits):
        return _RESCUED
    for fit in fits:  # each has one value
        start = [[*before, value] for before in start for value in fit.values]
    return Fit(tuple(start), any(fit.may_be_rescued for fit in fits))


def _member(fields: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field; if two spellings exist, the column's spelling wins."""
    if fields.get(name) is not None:
        return fields[name]
    return next((v for n, v in fields.items() if n.lower() == name and v is not None), None)


def _is_long(value: int) -> bool:
    return -_LONG <= value < _LONG


def _utc(value: datetime) -> datetime:
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)


@dataclass(frozen=True)
class _Number:
    """A number as a string, in any notation of the same value."""

    value: Decimal


@dataclass(frozen=True)
class _Time:
    """A time as a string."""

    value: datetime


@dataclass(frozen=True)
class _Json:
    """A nested value as a string of equivalent JSON."""

    value: Any


def is_same(silver: Any, value: Any) -> bool:
    """Return whether silver has exactly this value of the model."""
    try:
        match value:
            case _Number():
                return Decimal(silver) == value.value
            case _Time():
                return _utc(datetime.fromisoformat(silver)) == value.value
            case _Json():
                nested = json.dumps(value.value, default=float)
                return bool(_in_json(silver) == _in_json(nested))
            case datetime():
                silver = datetime.fromisoformat(silver) if isinstance(silver, str) else silver
                return _utc(silver) == value
            case list():
                return len(silver) == len(value) and all(map(is_same, silver, value))
            case dict():
                return all(is_same(silver.get(n), value.get(n)) for n in {*silver, *value})
    except (TypeError, ValueError, ArithmeticError):
        return False
    return bool(silver == value)


def _in_json(value: Any) -> Any:
    """Parse a nested value from JSON, and drop nulls, which are optional.

    A string column within a struct may contain the JSON of another nested value.
    """
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError:
            return value
    if isinstance(value, dict):
        return {n.lower(): _in_json(element) for n, element in value.items() if element is not None}
    return list(map(_in_json, value)) if isinstance(value, list) else value
