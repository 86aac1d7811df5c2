"""Random records whose types change from run to run: JSON lines, CSV and Parquet files."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb

ROWS, RUNS = 60, 3
# The columns of silver, and the path of each field in bronze.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": ("id",),
    "at": ("at",),
    "amount": ("amount",),
    "total": ("total",),
    "seen": ("seen",),
    "note": ("note",),
    "account": ("account",),
    "name": ("account", "name"),
    "items": ("items",),
    "skus": ("items", "sku"),
    "extra": ("extra",),
}
CSV_FIELDS = {
    name: FIELDS[name] for name in ("id", "at", "amount", "total", "seen", "note", "extra")
}

_START = datetime(2026, 5, 1, 10, tzinfo=UTC)
_LONG, _EXACT = 2**63, 2**53
TWICE = "twice"  # marks a record that repeats a field name


@dataclass(frozen=True)
class Record:
    """A record as it landed.

    Attributes:
        fields: as an independent reader parses them; numbers with a fraction are `Decimal`.
        is_broken: no reader accepts it as one record, so it is kept in `_corrupt_record`.
        twice: it repeats a field name.
    """

    fields: Mapping[str, Any]
    is_broken: bool = False
    twice: bool = False

    @property
    def id(self) -> str:
        return str(self.fields["id"])


_Make = Callable[[Random], Any]


def _time(digits: int, zone: str = "Z") -> _Make:
    def make(rng: Random) -> str:
        second = (_START + timedelta(seconds=rng.randrange(3000))).strftime("%Y-%m-%dT%H:%M:%S")
        fraction = "".join(str(rng.randrange(10)) for _ in range(digits))
        return f"{second}.{fraction}{zone}" if digits else second + zone

    return make


def _integer(rng: Random) -> int:
    return rng.randrange(-1000, 100_000)


def _fraction(rng: Random) -> float:
    return rng.randrange(-10_000, 1_000_000) / 8


def _text(rng: Random) -> str:
    return rng.choice(["blue", "né", "a,b", 'say "x"', "12", "true", "{}", " "]) + str(
        _integer(rng)
    )


def _item(rng: Random) -> dict[str, Any]:
    return {"sku": f"s{rng.randrange(9)}", "count": rng.randrange(9)}


def _account(rng: Random) -> dict[str, Any]:
    return {"name": rng.choice(["ann", "bob"]), "age": rng.randrange(90)}


def _list_of(make: _Make) -> _Make:
    return lambda rng: [make(rng) for _ in range(rng.randrange(3))]


def _one_of(*values: Any) -> _Make:
    return lambda rng: rng.choice(values)


# The first generator of each field is the one that most records of the first run use.
_VARIANTS: Mapping[str, Sequence[_Make]] = {
    "amount": (
        *(
            _integer,
            _fraction,
            _text,
            _one_of(None, "N/A", True),
            _one_of(2**53 + 1, 2**63, -(2**63)),
        ),
        *(_one_of("12", "12.5", 3.0, 1e3), _account, _list_of(_integer)),
    ),
    "total": (_fraction, _integer, _text, _one_of(None, "N/A", 2**53 + 1, 10**30, 1e300), _account),
    "seen": (_time(6), _time(9), _time(0), _time(3, "+02:00"), _one_of(None, "N/A", ""), _integer),
    "note": (
        _text,
        _integer,
        _fraction,
        _account,
        _one_of(None, True, 2**63, 0.1),
        _list_of(_text),
    ),
    "account": (
        _account,
        lambda rng: {**_account(rng), "plan": rng.choice(["pro", {"level": 1}])},
        *(_text, _list_of(_account), _one_of(None, {}, {"name": None})),
        lambda rng: {"NAME": "cid", "age": rng.choice([1.5, "old", None])},
    ),
    "items": (
        *(_list_of(_item), _item, _text, _one_of(None, [])),
        _list_of(lambda rng: {**_item(rng), "price": 1.5}),
        _list_of(lambda rng: {"sku": rng.choice([1, None, "x"]), "count": "many"}),
    ),
}
_NEW: Sequence[_Make] = (_integer, _text, _fraction, _account, _time(6))


def _records(rng: Random, run: int) -> Iterator[dict[str, Any]]:
    """Yield the records of one run; in the first run nearly all fields have their usual type."""
    share = 0.02 if run == 0 else 0.15  # of unusual values
    usual_makes = {
        name: makes[0] if run == 0 or rng.random() < 0.5 else rng.choice(makes)
        for name, makes in _VARIANTS.items()
    }
    absent = {name for name in _VARIANTS if run and rng.random() < 0.15}
    extra = rng.choice(_NEW)
    for number in range(ROWS):
        record = {
            "id": f"r{run}-{number}",
            "at": _time(9 if run and rng.random() < 0.1 else 6)(rng),
        }
        for name, makes in _VARIANTS.items():
            if name not in absent and rng.random() > 0.05:
                is_unusual = rng.random() < share
                record[name] = (rng.choice(makes) if is_unusual else usual_makes[name])(rng)
        if run and rng.random() < 0.5:
            record["extra"] = extra(rng)
        if run and rng.random() < 0.3:
            record[f"new_{run}"] = rng.choice(_NEW)(rng)
        yield record


def _in_other_case(rng: Random, record: dict[str, Any]) -> dict[str, Any]:
    name = rng.choice([name for name in record if name not in ("id", "at")] or ["id"])
    return {(n.upper() if n == name else n): value for n, value in record.items()}


def json_lines(rng: Random, run: int) -> tuple[str, list[Record]]:
    """Return the content of a JSON lines file, and its records."""
    lines = list[str]()
    for record in _records(rng, run):
        if run and rng.random() < 0.1:
            record = _in_other_case(rng, record)
        line = json.dumps(record, ensure_ascii=rng.random() < 0.5)
        draw = rng.random() * (1 if run else 10)
        if draw < 0.03:
            lines.append(f'{line[:-1]}, "amount": 1, "amount": 2}}')
        elif draw < 0.06:
            lines.append(line[: rng.randrange(len('{"id": "r0-10"}'), len(line))])
        elif draw < 0.12 and lines:
            lines[-1] += line
        elif draw < 0.15:
            lines += [line, line]
        else:
            lines.append(line)
    return "".join(f"{line}\n" for line in lines), list(_read_json(lines))


def _read_json(lines: Sequence[str]) -> Iterator[Record]:
    """Yield the objects that Python's own parser reads."""
    decoder = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_pairs)
    for line in lines:
        at = 0
        while at < len(line):
            try:
                fields, at = decoder.raw_decode(line, at)
            except ValueError:
                fields = {"id": re.findall('"id": "(.*?)"', line[at:])[0]}
                yield Record(fields, is_broken=True)
                break
            yield Record(fields, twice=TWICE in fields)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return {**fields, TWICE: True} if len(fields) < len(pairs) else fields


def _flat(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list | bool) else str(value)


def csv_file(rng: Random, run: int, to: Path) -> list[Record]:
    """Write a CSV file with shuffled columns, and return its records."""
    records = list(_records(rng, run))
    all_names = dict.fromkeys(n for record in records for n in record)
    names = [n for n in all_names if n in CSV_FIELDS or n.startswith("new_")]
    rng.shuffle(names)
    header = [name.upper() if run and name == "note" else name for name in names]
    to.parent.mkdir(parents=True, exist_ok=True)
    with to.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for record in records:
            row = ["" if record.get(n) is None else _flat(record[n]) for n in names]
            writer.writerow([*row, "more"] if run and rng.random() < 0.03 else row)
    return list(_read_csv(to))


def _read_csv(file: Path) -> Iterator[Record]:
    with file.open(encoding="utf-8", newline="") as text:
        header, *rows = csv.reader(text)
    for row in rows:
        fields = {name: value or None for name, value in zip(header, row, strict=False)}
        yield Record(fields, is_broken=len(row) != len(header))


_PARQUET_TYPES: Mapping[str, Sequence[tuple[str, _Make]]] = {
    "amount": (
        *(("bigint", _integer), ("double", _fraction), ("varchar", _text), ("integer", _integer)),
        ("decimal(20,4)", lambda rng: Decimal(_integer(rng)) / 16),
        ("decimal(30,2)", lambda rng: Decimal(10**25 + _integer(rng))),
        *(("double", _one_of(3.0, 2.0**60)), ("boolean", _one_of(True))),
    ),
    "total": (
        *(("double", _fraction), ("bigint", _one_of(_EXACT + 1, 7, -_LONG))),
        *(("varchar", _text), ("float", _one_of(0.5, 3.0))),
    ),
    "seen": (
        ("timestamptz", lambda rng: datetime.fromisoformat(_time(6)(rng))),
        ("timestamp_ms", lambda rng: datetime.fromisoformat(_time(3, "")(rng))),
        ("timestamp", lambda rng: datetime.fromisoformat(_time(6, "")(rng))),
        *(("date", _one_of(date(2026, 5, 1))), ("varchar", _time(6))),
        *(("varchar", _one_of("N/A", "2026-05-01")), ("bigint", _integer)),
    ),
    "note": (
        *(("varchar", _text), ("bigint", _integer), ("boolean", _one_of(True, False))),
        ("struct(a bigint)", _one_of({"a": 1})),
    ),
    "account": (
        ("struct(name varchar, age bigint)", _account),
        ("struct(name varchar, plan varchar)", _one_of({"name": "e", "plan": "p"})),
        ("struct(NAME varchar, age double)", _one_of({"NAME": "f", "age": 1.5})),
        ("varchar", _text),
    ),
    "items": (
        ("struct(sku varchar, count bigint)[]", _list_of(_item)),
        ("struct(sku varchar, price double)[]", _one_of([], [{"sku": "z", "price": 0.5}])),
        *(("struct(sku varchar)", _one_of({"sku": "y"})), ("varchar[]", _one_of(["x"]))),
    ),
    "extra": (("bigint", _integer), ("varchar", _text)),
}


def parquet_file(rng: Random, run: int, to: Path) -> list[Record]:
    """Write a Parquet file with varying column types, and return its records."""
    types = {
        name: types[0] if run == 0 or rng.random() < 0.3 else rng.choice(types)
        for name, types in _PARQUET_TYPES.items()
        if (run or name != "extra") and (run == 0 or rng.random() < 0.9)
    }
    rows = []
    for number in range(ROWS // 2):
        row = {"id": f"r{run}-{number}", "at": datetime.fromisoformat(_time(6)(rng))}
        rows.append(row | {n: make(rng) for n, (_, make) in types.items() if rng.random() > 0.05})
    upper = rng.choice([*types]) if run else ""
    columns = {"id": "varchar", "at": "timestamptz"} | {n: type_ for n, (type_, _) in types.items()}
    names = (f'"{n}" as "{n.upper() if n == upper else n}"' for n in columns)
    to.parent.mkdir(parents=True, exist_ok=True)
    text = to.with_name(".rows")
    text.write_text("".join(f"{json.dumps(row, default=str)}\n" for row in rows), encoding="utf-8")
    read = duckdb.read_json(str(text), columns=columns, format="newline_delimited")
    read.project(", ".join(names)).write_parquet(str(to))
    text.unlink()
    return [Record(row) for row in rows]
