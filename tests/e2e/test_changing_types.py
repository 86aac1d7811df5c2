"""Records whose types change from run to run.

Each value is in silver, or its row is in quarantine under the rule of its field. The values of
silver equal those that another reader finds in the same files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from medallion.inspect.balance import Balance
from tests.support.changing_types import (
    CSV_FIELDS,
    FIELDS,
    RUNS,
    Record,
    csv_file,
    json_lines,
    parquet_file,
)
from tests.support.documented_values import Model, is_same
from tests.support.lakehouse import Lakehouse

SOURCES: Mapping[str, dict[str, Any]] = {
    "lines": {"format": "json"},
    "widening": {"format": "json", "schema_evolution": "addNewColumnsWithTypeWidening"},
    "table": {"format": "csv", "hints": {"amount": "long", "total": "double"}},
    "typed": {"format": "parquet"},
}
# The others have quick tests of their formats and of their schema evolution.
_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("widening", "table")]
_ALL = ["lines", pytest.param("typed", marks=pytest.mark.slow), *_SLOW]
_WITH_AMOUNTS = ["lines", *_SLOW]


# Read as JSON, because silver's columns keep their types when bronze's struct grows.
_NESTED = ("account", "items")


def _fields(source: str) -> Mapping[str, tuple[str, ...]]:
    """Return the fields that silver reads, by column."""
    if source == "widening":  # an object may become a string, which has no fields
        return {name: path for name, path in FIELDS.items() if len(path) == 1}
    return CSV_FIELDS if source == "table" else FIELDS


def _silver(source: str) -> dict[str, str]:
    fields = {name: ".".join(path) for name, path in _fields(source).items()}
    return fields | {n: f"to_json(struct({n}))" for n in _NESTED if n in fields}


@dataclass
class Fuzz:
    """A lakehouse after all runs, and the landed records.

    Attributes:
        landed: the records by source.
        balances: those of the last run.
    """

    lakehouse: Lakehouse
    seed: int
    sources: Sequence[str]
    landed: dict[str, list[Record]] = field(default_factory=dict)
    balances: dict[str, Balance] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        return {name: SOURCES[name] for name in self.sources}

    @property
    def source(self) -> str:
        (source,) = self.sources
        return source

    def configure(self, folder: Path) -> None:
        document = {
            name: settings
            | {
                "silver": _silver(name),
                "event_time": "at",
                "keys": ["id", "at"],
                "clean_source": "off",
            }
            for name, settings in self.settings.items()
        }
        self.lakehouse.configure(folder, {"sources": document, "gold": {}})

    def land(self, run: int) -> None:
        """Land a file for each source."""
        for source, settings in self.settings.items():
            rng = Random(f"{self.seed} {source} {run}")
            landing = self.lakehouse.config.layout.landing(source).local
            file = landing / f"{run}.{settings['format']}"
            if settings["format"] == "json":
                text, records = json_lines(rng, run)
                file = self.lakehouse.land(source, file.name)
                file.write_text(text, encoding="utf-8")
            else:
                write = csv_file if settings["format"] == "csv" else parquet_file
                records = write(rng, run, file)
            self.landed.setdefault(source, []).extend(records)

    def types(self, source: str) -> dict[str, Any]:
        """Return the types of bronze's columns, as in Delta's log."""
        table = DeltaTable(self.lakehouse.config.layout.table(f"bronze.{source}"))
        columns = json.loads(table.schema().to_json())["fields"]
        return {column["name"].lower(): column["type"] for column in columns}


def _run_all(
    spark: SparkSession, folder: Path, seed: int, runs: int, sources: Sequence[str]
) -> Fuzz:
    fuzz = Fuzz(Lakehouse(spark, folder / "lakehouse"), seed, sources)
    fuzz.configure(folder)
    for run in range(runs):
        fuzz.land(run)
        outcome = fuzz.lakehouse.run_without_gates()
        assert not outcome.errors, outcome.errors
        assert all(balance.is_balanced for balance in outcome.snapshot.balances.values()), outcome
        fuzz.balances = outcome.snapshot.balances
    return fuzz


@pytest.fixture(scope="module")
def fuzz(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Fuzz:
    """Return a lakehouse of one source, named by the test's parameter."""
    return _run_all(spark, tmp_path_factory.mktemp("changing"), 1, RUNS - 1, [request.param])


def differences(fuzz: Fuzz, source: str) -> list[str]:
    """Return a message for each landed record that is not where the documentation says."""
    columns, lakehouse = _fields(source), fuzz.lakehouse
    model = Model(SOURCES[source]["format"], fuzz.types(source))
    rows = lakehouse.rows(f"silver.{source}", *columns)
    silver = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    quarantine = _quarantined(lakehouse, source)
    messages = []
    for record in fuzz.landed[source]:
        row, rules = silver.get(record.id), quarantine.get(record.id, [])
        if record.is_broken or record.twice:
            messages += [] if rules else [f"{record}: lost"]
            continue
        fits = {name: model.field(record, path) for name, path in columns.items()}
        if row is None:
            messages += _unjustified(record, rules, fits, columns)
            continue
        messages += [
            f"{record}: {name} is {row[name]!r}, not one of {fit.values}"
            for name, fit in fits.items()
            if not any(is_same(_value(name, row[name]), value) for value in fit.values)
        ]
    return messages


def _value(name: str, value: Any) -> Any:
    """Return silver's value; nested values are parsed from JSON."""
    return json.loads(value, parse_float=Decimal).get(name) if name in _NESTED else value


def _unjustified(
    record: Record, rules: list[str], fits: Mapping[str, Any], columns: Mapping[str, Any]
) -> list[str]:
    """Return why a record should be in silver instead of quarantine."""
    if not rules:
        return [f"{record}: lost"]
    allowed = {f"rescued_{'.'.join(columns[n])}" for n, fit in fits.items() if fit.may_be_rescued}
    if _is_hard_to_respell(record) or _has_nested_spellings(record.fields.values()):
        allowed |= {f"rescued_{'.'.join(path)}" for path in columns.values()}
    if "rescued_at" in allowed:
        allowed.add("missing_event_time")
    return [f"{record}: in quarantine under {rule}" for rule in rules if rule not in allowed]


def _is_hard_to_respell(record: Record) -> bool:
    """Return whether a line is rescued unchanged: renamed fields, and a number beyond VARIANT."""
    names_differ = any(name != name.lower() for name in record.fields)
    return names_differ and any(
        isinstance(value, int | Decimal) and abs(Decimal(value)) >= 10**38
        for value in record.fields.values()
    )


def _has_nested_spellings(values: Iterable[Any]) -> bool:
    """Return whether a nested field is rescued, because its name differs in case."""
    for value in values:
        if isinstance(value, list) and _has_nested_spellings(value):
            return True
        if isinstance(value, dict):
            if any(name != name.lower() for name in value):
                return True
            if _has_nested_spellings(value.values()):
                return True
    return False


def _quarantined(lakehouse: Lakehouse, source: str) -> dict[str, list[str]]:
    """Return the broken rules of the rows in quarantine, by record id."""
    rules_by_id: dict[str, list[str]] = {}
    columns = ("id", "_rescued_data", "_corrupt_record", "_failed_rules")
    for name, rescued, corrupt, rules in lakehouse.rows(f"quarantine.{source}", *columns):
        name = name or re.findall(r"r[0-9]-[0-9]+", rescued or corrupt)[0]
        rules_by_id.setdefault(name, []).extend(rules)
    return rules_by_id


@pytest.mark.parametrize("fuzz", _ALL, indirect=True)
def test_each_record_is_in_silver_or_quarantine(fuzz: Fuzz) -> None:
    assert differences(fuzz, fuzz.source) == []


@pytest.mark.parametrize("fuzz", _ALL, indirect=True)
def test_record_counts_equal_the_landed_ones(fuzz: Fuzz) -> None:
    """Each record is in the tables as often as it landed, except duplicates of silver's rows."""
    lakehouse, source = fuzz.lakehouse, fuzz.source
    landed = Counter(record.id for record in fuzz.landed[source])
    silver = Counter(id for (id,) in lakehouse.rows(f"silver.{source}", "id"))
    quarantine = Counter[str]()
    columns = ("id", "_rescued_data", "_corrupt_record")
    for name, rescued, corrupt in lakehouse.rows(f"quarantine.{source}", *columns):
        quarantine[name or re.findall(r"r[0-9]-[0-9]+", rescued or corrupt)[0]] += 1
    assert set(silver.values()) == {1}
    assert landed.keys() == (silver + quarantine).keys()
    duplicates = landed - silver - quarantine
    assert duplicates.keys() <= silver.keys()
    (balance,) = [b for name, b in fuzz.balances.items() if name == source]
    assert balance.landed_lines == landed.total()
    assert balance.duplicate_rows == duplicates.total()


@pytest.mark.parametrize("fuzz", _WITH_AMOUNTS, indirect=True)
def test_amounts_equal_the_landed_ones(fuzz: Fuzz) -> None:
    """Compare the sums of the amounts that are numbers for a reader of the files, as doubles."""
    source = fuzz.source
    ids = {id for (id,) in fuzz.lakehouse.rows(f"silver.{source}", "id")}
    landed = {r.id: r for r in fuzz.landed[source] if not r.is_broken and not r.twice}
    rows = fuzz.lakehouse.rows(f"silver.{source}", "amount")
    in_silver = sum((_number(amount) for (amount,) in rows), Fraction())
    in_quarantine = (_amount(record) for id, record in landed.items() if id not in ids)
    all_amounts = (_amount(record) for record in landed.values())
    assert in_silver + sum(in_quarantine, Fraction()) == sum(all_amounts, Fraction())


def _amount(record: Record) -> Fraction:
    return _number(next((v for n, v in record.fields.items() if n.lower() == "amount"), None))


def _number(value: Any) -> Fraction:
    """Return a number; 0 if the value is no number, such as N/A."""
    if isinstance(value, bool):
        return Fraction()
    try:
        return Fraction(float(value))
    except (TypeError, ValueError):
        return Fraction()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_records_of_other_seeds(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    fuzz = _run_all(spark, tmp_path, seed, RUNS, [*SOURCES])
    for source in SOURCES:
        assert differences(fuzz, source) == []
