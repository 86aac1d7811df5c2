"""Errors of SQL in the configuration name the key, its line and the nearest column."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from medallion.config.document import position
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.tables import CdcConfig
from medallion.errors import ConfigError
from medallion.layers.definition import (
    Change,
    changes_between,
    failing_part_reason,
    invalid_sql_error,
    refuse_changed,
    refuse_changed_row_count,
    refuse_nondeterministic,
)
from medallion.layers.gold.flow import gold_parts
from medallion.layers.silver import rules
from tests.support import PROJECT

UNRESOLVED = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name"
)
SYNTAX_ERROR = "[PARSE_SYNTAX_ERROR] Syntax error at or near"
CONFIGURATION = """sources:
  orders:
    silver:
      at: time
      id: id
      amount: >-
        cast(amount
        as double)
    event_time: at
    keys: [id, at]
gold:
  revenue:
    source: silver.orders
    group_by: [id]
    measure: { total: sum(amount) }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "conf/pipeline.yaml"
    file.parent.mkdir()
    return file


def configured(file: Path, before: str = "", after: str = "") -> Config:
    file.write_text(CONFIGURATION.replace(before, after) if before else CONFIGURATION)
    return load({"MEDALLION_CONF": str(file.parent)}, PROJECT)


@pytest.fixture(scope="module")
def bronze(spark: SparkSession) -> DataFrame:
    technical = "'f' as _source_file, null as _corrupt_record, now() as _ingested_at"
    user = "named_struct('name', 'x') as user"
    return spark.sql(f"select now() as time, 'a' as id, 1D as amount, {user}, {technical}")


@pytest.mark.parametrize(
    ("before", "after", "location", "problem"),
    [
        (
            "cast(amount",
            "cast(amout",
            "line 7, column 14",
            f"{UNRESOLVED} `amout` cannot be resolved. Did you mean one of the following?",
        ),
        (
            *("id: id", "id: user.nme", "line 5, column 16"),
            "[FIELD_NOT_FOUND] No such struct field `nme` in `name`.",
        ),
        (
            "id: id",
            "id: lowr(id)",
            "line 5, column 11",
            "[UNRESOLVED_ROUTINE] ",
        ),
        (
            "id: id",
            "id: id +",
            "line 5, column 11",
            SYNTAX_ERROR + " end of input.",
        ),
        (
            "id: id",
            "id: id + [",
            "line 5, column 17",
            SYNTAX_ERROR + " '['.",
        ),
    ],
)
def test_error_of_a_silver_column(
    file: Path, bronze: DataFrame, before: str, after: str, location: str, problem: str
) -> None:
    config = configured(file, before, after.replace("id + [", "'id + [ 1'"))
    source = config.sources["orders"]
    parts = rules.sql_parts(config, source, bronze, {"bronze": {}, "silver": {}})
    column = "amount" if "am" in after else "id"
    error = invalid_sql_error("silver.orders", parts, AnalysisException("x"))
    start = f"silver.orders.{column} in {file} {location}: {problem}"
    assert str(error)[: len(start)] == start


def test_error_of_a_declared_column(file: Path, bronze: DataFrame) -> None:
    config = configured(file, "id: id", "id: idd")
    source = replace(config.sources["orders"], schema={"id": "string"})
    parts = rules.sql_parts(config, source, bronze, {"bronze": {}, "silver": {}})
    error = invalid_sql_error("silver.orders", parts, AnalysisException("x"))
    assert f"{file} line 5, column 11: {UNRESOLVED} `idd`" in str(error)


def test_error_of_an_expression_of_changes(file: Path, bronze: DataFrame) -> None:
    """Technical columns that the project computes from an envelope are not the user's."""
    config = configured(file)
    derived = {"_sequence": "amont", "_is_delete": "false", "_old_key": "_bronze.id"}
    cdc = CdcConfig("amont", derived=derived)
    source = replace(config.sources["orders"], cdc=cdc)
    parts = rules.sql_parts(config, source, bronze, {"bronze": {}, "silver": {}})
    error = invalid_sql_error("silver.orders", parts, AnalysisException("x"))
    assert str(error).startswith(f"sources.orders.cdc.sequence_by in {file} line ")
    assert f"{UNRESOLVED} `amont`" in str(error)


def test_error_of_a_rule(file: Path, bronze: DataFrame) -> None:
    config = configured(file)
    wrong = {"bronze": {}, "silver": {"r": "amount > 0", "s": "amont > 0"}}
    parts = rules.sql_parts(config, config.sources["orders"], bronze, wrong)
    error = invalid_sql_error("silver.orders", parts, AnalysisException("x"))
    suite = file.parent / "great_expectations/expectations/silver/orders.json"
    start = f"the rule s of silver.orders in {suite}: {UNRESOLVED} `amont`"
    assert str(error).startswith(start)


def test_error_of_a_measure(spark: SparkSession, file: Path, bronze: DataFrame) -> None:
    config = configured(file, "sum(amount)", "sum(amout)")
    silver = bronze.selectExpr("time as at", "id", "amount")
    parts = gold_parts(spark, config, config.gold["revenue"], {"silver.orders": silver})
    error = invalid_sql_error("gold.revenue", parts, AnalysisException("x"))
    start = f"gold.revenue.measure.total in {file} line 15, column 27: {UNRESOLVED} `amout`"
    assert str(error).startswith(start)


def test_position_of_a_missing_key_is_that_of_the_mapping(file: Path) -> None:
    configured(file)
    assert position(file, "sources.orders.keys") == (10, 5)
    assert position(file, "sources.orders.keys", "at") == (10, 16)
    assert position(file, "sources.orders.watermark") == (2, 3)
    assert position(file.with_name("none.yaml"), "sources") is None


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        ({"window": "600 seconds"}, []),
        ({"keys": ["at", "id"]}, ['keys: ["id", "at"] -> ["at", "id"]']),
        ({"more as": "id"}, ["more as: none -> id"]),
        ({"window": "5 minutes"}, ["window: 10 minutes -> 5 minutes"]),
        ({"id as": None}, ["id as: id -> none"]),
        ({"id as": "x" * 61}, [f"id as: id -> {'x' * 57}..."]),
        # The other parts follow from it.
        ({"cdc.stored_as_scd_type": 2, "event_time": None}, ["cdc: none -> SCD 2"]),
    ],
)
def test_changes_between_definitions(now: dict[str, Any], changes: list[str]) -> None:
    then = {"event_time": "at", "keys": ["id", "at"], "id as": "id", "window": "10 minutes"}
    edited = {key: value for key, value in {**then, **now}.items() if value is not None}
    assert list(map(str, changes_between(then, edited))) == changes


def test_changes_between_ordered_parts() -> None:
    """Spark's state identifies measures by position."""
    measures = {"one": "count(*)", "two": "count_if(device = 'p')"}
    definitions = {"measure": measures}, {"measure": dict(reversed(measures.items()))}
    assert changes_between(*definitions) == []
    (change,) = changes_between(*definitions, in_order=["measure"])
    assert change.key == "measure"


def test_refuse_changed_names_the_remedy(file: Path) -> None:
    config = configured(file)
    refuse_changed(config, "silver.t", [])
    expected = rf"{file}: .* silver\.t has changed \(keys: a -> none\)\. medallion apply rebuilds"
    with pytest.raises(ConfigError, match=expected):
        refuse_changed(config, "silver.t", [Change("keys", "a", None)])


@pytest.mark.parametrize(
    "sql",
    [
        "explode(array(1, 2))",
        "string(window(time, '1 hour').start)",
        "string(window(time, '1 hour', '30 minutes').start)",
        "string(session_window(time, '1 hour').start)",
        "count(*)",
    ],
)
def test_refuse_changed_row_count(bronze: DataFrame, sql: str) -> None:
    refuse_changed_row_count("x", bronze.selectExpr("id", "upper(id)"))
    with pytest.raises(ConfigError, match=r"^x returns several rows, or none, for one row"):
        refuse_changed_row_count("x", bronze.selectExpr(sql))


@pytest.mark.parametrize(
    "sql",
    [
        "now()",
        "rand() < 0.5",
        "time > current_timestamp()",
        "string(date /* of */ 'Today')",
        "(select max(id) from values ('a') as t(id))",
        "exists(values (1))",
    ],
)
def test_refuse_nondeterministic_sql(spark: SparkSession, sql: str) -> None:
    rows = spark.range(1).selectExpr("timestamp_seconds(id) as time")
    refuse_nondeterministic("x", rows.selectExpr("year(time)"), {"a": "year(time)"})
    with pytest.raises(ConfigError, match=r"^x depends on the current time, randomness or another"):
        refuse_nondeterministic("x", rows.selectExpr(sql), {"a": {"b": sql}})


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        # Spark's error does not contain the SQL of the second expression.
        ("string(cast(id as int))", r"\[CAST_INVALID_INPUT\].*\(in string\(cast\(id"),
        ("string(to_date(id, 'yyyy'))", r"\[CANNOT_PARSE_TIMESTAMP\]"),
        # Some invalid values raise errors outside the SQL standard, or none of Spark's own.
        ("string(map(id, 1, id, 2))", r"\[DUPLICATED_MAP_KEY\]"),
        ("format_string('%d', id)", "d != "),
    ],
)
def test_failing_part_reason_of_a_column(
    file: Path, bronze: DataFrame, sql: str, error: str
) -> None:
    config = configured(file)
    source = replace(config.sources["orders"], silver={"at": "time", "kind": sql, "id": "id"})
    parts = rules.sql_parts(config, source, bronze, {"bronze": {}, "silver": {}})
    reason = failing_part_reason([bronze], parts)
    expected = rf"silver\.orders\.kind in {file} fails at a row.*{error}.* return null"
    assert re.match(expected, reason or "", re.DOTALL), reason


def test_failing_part_reason_of_a_rule(file: Path, bronze: DataFrame) -> None:
    config = configured(file)
    source = replace(config.sources["orders"], silver={"at": "time", "id": "id"})
    wrong = {"bronze": {}, "silver": {"r": "id = 'b'", "spelled": "regexp(id, '(?P<any>.)')"}}
    parts = list(rules.sql_parts(config, source, bronze, wrong))
    reason = failing_part_reason([bronze], parts)
    assert (reason or "").startswith("the rule spelled of silver.orders in ")
    # If the input cannot be read, no part is at fault.
    assert failing_part_reason([bronze.selectExpr("1 / 0")], parts) is None
    assert failing_part_reason([bronze], parts[:2]) is None
