"""A model of what silver may make of a value, which shares nothing with the code under test.

It knows the documented conversions (`docs/values.md`) and the types of
bronze's columns: a value is in silver as one of those that the model gives, or, where it says so,
its row is in quarantine under the rule of its field.
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
    """What may become of a value in a column of some type.

    Attributes:
        values: what silver may have.
        may_be_rescued: whether the row may be in quarantine under the field's rule.
    """

    values: tuple[Any, ...] = ()
    may_be_rescued: bool = True


_RESCUED = Fit()


def _fits(*values: Any) -> Fit:
    return Fit(values, may_be_rescued=False)


class Model:
    """What silver may have of values, by the types of bronze's columns.

    Attributes:
        format: of the source: json, csv or parquet.
    """

    def __init__(self, format: str, columns: Mapping[str, Any]) -> None:
        """Take the types as Delta's schema spells them, in JSON."""
        self.format, self._columns = format, columns

    def field(self, record: Record, path: Sequence[str]) -> Fit:
        """Return what silver may have of the field of a record."""
        name = path[0]
        value = _member(record.fields, name)
        kind = self._columns[name]
        if len(path) == 1:
            return self.fit(value, kind)
        inner = self._within(value, kind, path[1])
        if self.format == "parquet" and self.fit(value, kind).may_be_rescued:
            return Fit(inner.values)  # a struct that does not fit is rescued as a whole
        return inner

    def _within(self, value: Any, kind: Any, name: str) -> Fit:
        """Return the fit of a field of a struct, or of the structs of an array."""
        if value is None:
            return _fits(None)
        if kind["type"] == "array":
            if not isinstance(value, list):
                return _RESCUED
            inner = [self._within(item, kind["elementType"], name) for item in value]
            return _together(inner, [[]])
        if not isinstance(value, dict) or TWICE in value:
            return _RESCUED
        (type_of,) = (f["type"] for f in kind["fields"] if f["name"].lower() == name)
        return self.fit(_member(value, name), type_of)

    def fit(self, value: Any, kind: Any) -> Fit:
        """Return what a column of a type may have of a value."""
        if value is None:
            return _fits(None)
        if isinstance(kind, dict):
            return self._fit_nested(value, kind)
        name = re.split("[(]", kind)[0]
        return getattr(self, f"_fit_{name}")(value, kind) if value is not None else _fits(None)

    def _fit_nested(self, value: Any, kind: Any) -> Fit:
        if kind["type"] == "array":
            if not isinstance(value, list):
                return _RESCUED
            return _together([self.fit(item, kind["elementType"]) for item in value], [[]])
        if not isinstance(value, dict) or TWICE in value:
            return _RESCUED
        known = {field["name"].lower(): field for field in kind["fields"]}
        if any(v is not None and n.lower() not in known for n, v in value.items()):
            return _RESCUED
        fits = [self.fit(_member(value, n), field["type"]) for n, field in known.items()]
        names = [field["name"] for field in kind["fields"]]
        found = _together(fits, [[]])
        values = tuple(dict(zip(names, each, strict=True)) for each in found.values)
        return Fit(values, found.may_be_rescued)

    def _fit_string(self, value: Any, _: str) -> Fit:
        match value:
            case str():  # or the column was a timestamp before it became a string
                time = (
                    [_Time(_utc(datetime.fromisoformat(value)))] if _TIME.fullmatch(value) else []
                )
                return _fits(value, *time)
            case bool():
                return _fits(json.dumps(value))
            case int():  # or a double, as 25700.0, or seconds since 1970
                then = [_Time(datetime.fromtimestamp(value, UTC))] if abs(value) < 2**32 else []
                return _fits(_Number(Decimal(value)), *then)
            case Decimal() | float():  # rescued if Java's double has fewer digits
                return Fit((_Number(Decimal(value)),))
            case datetime():
                return _fits(_Time(_utc(value)))
            case date():
                return _fits(value.isoformat())
        return _fits(_Json(value))

    def _fit_long(self, value: Any, _: str) -> Fit:
        if self.format == "csv":
            is_whole = re.fullmatch("-?(0|[1-9][0-9]*)", value)
            return _fits(int(value)) if is_whole and _is_long(int(value)) else _RESCUED
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return _RESCUED
        if value == int(value) and _is_long(int(value)):
            # A line of text may say 3.0; only types of files are exact about it.
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

    def _fit_decimal(self, value: Any, kind: str) -> Fit:
        precision, scale = map(int, re.findall("[0-9]+", kind))
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
                return _fits(_utc(datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value))))
            case int() if not isinstance(value, bool) and self.format != "csv":
                return _fits(datetime.fromtimestamp(value, UTC))
        return _RESCUED

    def _fit_date(self, value: Any, _: str) -> Fit:
        if isinstance(value, date) and not isinstance(value, datetime):
            return _fits(value)
        return Fit((value,))

    def _fit_boolean(self, value: Any, _: str) -> Fit:
        return _fits(value) if isinstance(value, bool) else _RESCUED

    def _fit_integer(self, value: Any, kind: str) -> Fit:
        fit = self._fit_long(value, kind)
        return fit if all(abs(each) < 2**31 for each in fit.values) else _RESCUED


def _together(fits: Sequence[Fit], start: list[list[Any]]) -> Fit:
    """Return the fit of a list of values."""
    if any(not fit.values for fit in fits):
        return _RESCUED
    for fit in fits:  # each has one value
        start = [[*before, value] for before in start for value in fit.values]
    return Fit(tuple(start), any(fit.may_be_rescued for fit in fits))


def _member(fields: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field: of two spellings the one that is the column's."""
    if fields.get(name) is not None:
        return fields[name]
    return next((v for n, v in fields.items() if n.lower() == name and v is not None), None)


def _is_long(value: int) -> bool:
    return -_LONG <= value < _LONG


def _utc(value: datetime) -> datetime:
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)


@dataclass(frozen=True)
class _Number:
    """A number as a string: any string that says the same."""

    value: Decimal


@dataclass(frozen=True)
class _Time:
    """A time as a string."""

    value: datetime


@dataclass(frozen=True)
class _Json:
    """A nested value as a string: JSON that says the same."""

    value: Any


def is_same(silver: Any, value: Any) -> bool:
    """Return whether silver has just this value, which the model gives."""
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
    """Return a nested value from its JSON, without nulls, which may be left out.

    A string column within a struct may have JSON as well, of another nested value.
    """
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError:
            return value
    if isinstance(value, dict):
        return {n.lower(): _in_json(each) for n, each in value.items() if each is not None}
    return list(map(_in_json, value)) if isinstance(value, list) else value
