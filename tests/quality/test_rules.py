"""Rules compared with Great Expectations: both must find the same rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.errors import ConfigError
from medallion.quality.rules import Rule, failed_rules, load_rules
from medallion.quality.suites import suite_path, unused_suites
from tests.support import PROJECT

CONF = PROJECT / "conf"

ROWS = """
    (0, NULL, NULL, NULL, NULL, NULL, NULL),
    (1, 1, 1.0D, 'abc', timestamp'2020-01-01', timestamp'2020-01-02', 'x'),
    (2, 2, 2.5D, '', timestamp'2020-01-02', timestamp'2020-01-02', 'y'),
    (3, 10, double('NaN'), 'it''s \\\\d+ "so"', timestamp'2020-01-03', timestamp'2020-01-02', ''),
    (4, -1, double('-Infinity'), 'ABC\\nabc', NULL, timestamp'2020-01-02', 'a.b'),
    (5, 9007199254740993, double('Infinity'), '\\u00e9\\u0024{x}', timestamp'2020-01-01', NULL, '`')
"""

NOT_NULL, NULL = "expect_column_values_to_not_be_null", "expect_column_values_to_be_null"
BETWEEN = "expect_column_values_to_be_between"
LENGTHS = "expect_column_value_lengths_to_be_between"
IN_SET, NOT_IN_SET = "expect_column_values_to_be_in_set", "expect_column_values_to_not_be_in_set"
REGEX, NOT_REGEX = "expect_column_values_to_match_regex", "expect_column_values_to_not_match_regex"
PAIR = "expect_column_pair_values_a_to_be_greater_than_b"
QUERY = "unexpected_rows_expectation"
SELECT = "SELECT * FROM {batch} WHERE "

# An expectation, and the ids of the rows that violate it.
CASES: list[tuple[str, dict[str, Any], set[int]]] = [
    (NOT_NULL, {"column": "s"}, {0}),
    (NOT_NULL, {"column": "odd name"}, {0}),
    (NULL, {"column": "t"}, {1, 2, 3, 5}),
    (BETWEEN, {"column": "n", "min_value": 1, "max_value": 10}, {4, 5}),
    (BETWEEN, {"column": "n", "min_value": 1, "strict_min": True}, {1, 4}),
    # Both are compared as doubles.
    (BETWEEN, {"column": "n", "max_value": 9007199254740992}, set()),
    (
        BETWEEN,
        {"column": "d", "min_value": 1.0, "max_value": 2.5, "strict_max": True},
        {2, 3, 4, 5},
    ),
    (BETWEEN, {"column": "d", "max_value": 1e300}, {3, 5}),
    (BETWEEN, {"column": "t", "min_value": "2020-01-02"}, {1, 5}),
    (
        BETWEEN,
        {"column": "t", "max_value": "2020-01-02T02:00:00+02:00", "strict_max": True},
        {2, 3},
    ),
    (LENGTHS, {"column": "s", "min_value": 1, "max_value": 3}, {2, 3, 4, 5}),
    (LENGTHS, {"column": "s", "min_value": 3, "strict_min": True}, {1, 2}),
    (IN_SET, {"column": "s", "value_set": ["abc", 'it\'s \\d+ "so"', "\u00e9${x}"]}, {2, 4}),
    (IN_SET, {"column": "n", "value_set": [1, 2]}, {3, 4, 5}),
    (NOT_IN_SET, {"column": "d", "value_set": [1.0, 2.5]}, {1, 2}),
    (REGEX, {"column": "s", "regex": "^[a-z]*$"}, {3, 4, 5}),
    (REGEX, {"column": "s", "regex": "'s \\\\d\\+ \""}, {1, 2, 4, 5}),
    (NOT_REGEX, {"column": "s", "regex": "(?m)^abc$"}, {1, 4}),
    (NOT_REGEX, {"column": "s", "regex": "[${]x|\\bso\\b"}, {3, 5}),
    (NOT_REGEX, {"column": "odd name", "regex": "\\."}, {4}),
    (PAIR, {"column_A": "u", "column_B": "t"}, {2, 3}),
    (PAIR, {"column_A": "u", "column_B": "t", "or_equal": True}, {3}),
    (
        PAIR,
        {"column_A": "u", "column_B": "t", "ignore_row_if": "either_value_is_missing"},
        {2, 3},
    ),
    (PAIR, {"column_A": "u", "column_B": "t", "ignore_row_if": "neither"}, {2, 3}),
    (QUERY, {"unexpected_rows_query": SELECT + "t > u - INTERVAL 1 DAY"}, {2, 3}),
    (QUERY, {"unexpected_rows_query": SELECT + "s rlike '^.{{3}}$' OR n = 2 ;"}, {1, 2}),
]


def entry(type_: str, kwargs: dict[str, Any], name: str, on_failure: str) -> dict[str, Any]:
    return {"type": type_, "kwargs": kwargs, "meta": {"name": name, "on_failure": on_failure}}


def write_suite(conf: Path, table: str, *entries: dict[str, Any]) -> Path:
    path = suite_path(conf, table)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"name": table, "expectations": entries}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    names = "id, n, d, s, t, u, `odd name`"
    return spark.sql(f"SELECT * FROM VALUES {ROWS} AS v({names})").coalesce(1).cache()


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rule, ...]:
    conf = tmp_path_factory.mktemp("conf")
    entries = [
        entry(type_, kw, f"case {i}", "quarantine") for i, (type_, kw, _) in enumerate(CASES)
    ]
    write_suite(conf, "any.table", *entries)
    return load_rules(conf, "any.table")


@pytest.fixture(scope="module")
def failed_ids(frame: DataFrame, rules: tuple[Rule, ...]) -> dict[str, set[int]]:
    rows = frame.select("id", failed_rules(rules).alias("failed")).collect()
    return {rule.name: {row.id for row in rows if rule.name in row.failed} for rule in rules}


@pytest.fixture(scope="module")
def unexpected(frame: DataFrame) -> Callable[[str, dict[str, Any]], set[int]]:
    """Return a function that lists the ids of rows that Great Expectations finds unexpected."""
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    source = gx.get_context(mode="ephemeral").data_sources.add_spark("test", persist=False)
    definition = source.add_dataframe_asset("frame").add_batch_definition_whole_dataframe("all")
    batch = definition.get_batch({"dataframe": frame})

    def find_unexpected(type_: str, kwargs: dict[str, Any]) -> set[int]:
        expectation = ExpectationConfiguration(type=type_, kwargs=kwargs).to_domain_obj()
        format_ = "COMPLETE" if type_ == QUERY else "BASIC"
        result = batch.validate(
            expectation, result_format={"result_format": format_, "include_unexpected_rows": True}
        )
        assert not any(
            isinstance(info, dict) and info.get("raised_exception")
            for info in (result.exception_info, *result.exception_info.values())
        ), result.exception_info
        details = result.result
        rows = details["details"] if type_ == QUERY else details
        count = details["observed_value" if type_ == QUERY else "unexpected_count"]
        ids = {row["id"] for row in rows["unexpected_rows"]}
        assert len(ids) == count
        return ids

    return find_unexpected


@pytest.mark.parametrize("case", range(len(CASES)))
def test_rules_find_the_same_rows_as_gx(
    case: int,
    failed_ids: dict[str, set[int]],
    unexpected: Callable[[str, dict[str, Any]], set[int]],
) -> None:
    type_, kwargs, expected = CASES[case]
    assert failed_ids[f"case {case}"] == expected
    assert unexpected(type_, kwargs) == expected


def test_rules_are_never_null(frame: DataFrame, rules: tuple[Rule, ...]) -> None:
    broken = [F.expr(rule.broken).isNull().cast("int") for rule in rules]
    for row in frame.select(*broken).collect():
        assert not any(row)


def test_failed_rules_are_in_order(
    spark: SparkSession,
) -> None:
    frame = spark.range(4)
    rules = (Rule("big", "id > 1"), Rule("odd", "id % 2 = 1"), Rule("it's", "id = 3"))
    failed = frame.select(failed_rules(rules)).collect()
    assert [row[0] for row in failed] == [[], ["odd"], ["big"], ["big", "odd", "it's"]]
    assert frame.select(failed_rules(())).first()[0] == []  # type: ignore[index]
    for rule_set in (rules, ()):
        assert frame.select(failed_rules(rule_set)).dtypes[0][1] == "array<string>"


ON_PANDAS: list[tuple[str, dict[str, Any], set[int]]] = [
    # A null passes, and all other values are compared; on Spark, GX would compare none.
    (IN_SET, {"column": "s", "value_set": ["new", None]}, {2, 3}),
    (IN_SET, {"column": "s", "value_set": ["new"]}, {2, 3}),
    (IN_SET, {"column": "s", "value_set": [None]}, {1, 2, 3}),
    (IN_SET, {"column": "s", "value_set": [""]}, {1, 3}),
    (IN_SET, {"column": "n", "value_set": [0, 2.5]}, {1}),
    (NOT_IN_SET, {"column": "s", "value_set": ["new", None]}, {1}),
    (NOT_IN_SET, {"column": "s", "value_set": [None]}, set()),
    (NOT_IN_SET, {"column": "s", "value_set": ["", "new"]}, {1, 2}),
    (NOT_NULL, {"column": "s"}, {0}),
    (NULL, {"column": "s"}, {1, 2, 3}),
    (NULL, {"column": "n"}, {1, 2, 3}),
    (BETWEEN, {"column": "n", "min_value": 0}, {1}),
    (BETWEEN, {"column": "n", "min_value": 0, "strict_min": True, "max_value": 2.5}, {1, 2}),
    (BETWEEN, {"column": "n", "max_value": 2.5, "strict_max": True}, {3}),
    (LENGTHS, {"column": "s", "min_value": 1}, {2}),
    (LENGTHS, {"column": "s", "max_value": 0}, {1, 3}),
    (REGEX, {"column": "s", "regex": "^[a-z]*$"}, {3}),
    (REGEX, {"column": "s", "regex": ""}, set()),
    (NOT_REGEX, {"column": "s", "regex": "^$"}, {2}),
    (PAIR, {"column_A": "n", "column_B": "m", "ignore_row_if": "either_value_is_missing"}, {1, 2}),
    (
        PAIR,
        {
            **{"column_A": "n", "column_B": "m", "or_equal": True},
            "ignore_row_if": "either_value_is_missing",
        },
        {1},
    ),
]


def test_rules_find_the_same_rows_as_gx_on_pandas(spark: SparkSession, tmp_path: Path) -> None:
    """Nulls, empty strings and sets; what GX does on pandas is the second opinion."""
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    values = {
        "s": [None, "new", "", "NEW"],
        "n": [None, -1.0, 0.0, 2.5],
        "m": [1.0, 1.0, 0.0, None],
    }
    cases = {f"case {number}": case for number, case in enumerate(ON_PANDAS)}
    entries = (entry(type_, kwargs, n, "quarantine") for n, (type_, kwargs, _) in cases.items())
    write_suite(tmp_path, "t", *entries)
    columns = zip(range(4), *values.values(), strict=True)
    rows = spark.createDataFrame(list(columns), "id int, s string, n double, m double")
    checked = rows.select("id", failed_rules(load_rules(tmp_path, "t")).alias("failed")).collect()
    read_dataframe = gx.get_context(mode="ephemeral").data_sources.pandas_default.read_dataframe
    batch = read_dataframe(pandas.DataFrame(values))
    for name, (type_, kwargs, expected) in cases.items():
        assert {row.id for row in checked if name in row.failed} == expected, (type_, kwargs)
        expectation = ExpectationConfiguration(type=type_, kwargs=kwargs).to_domain_obj()
        result = batch.validate(expectation, result_format="COMPLETE").result
        assert set(result["unexpected_index_list"] or ()) == expected, (type_, kwargs)


def test_rule_about_a_field_of_a_struct(spark: SparkSession, tmp_path: Path) -> None:
    five = {"column": "address.zip", "regex": "^[0-9]{5}$"}
    odd = {"column": "address.odd`name"}
    write_suite(
        tmp_path,
        "t",
        entry(REGEX, five, "zip_five", "quarantine"),
        entry(NOT_NULL, odd, "named", "quarantine"),
    )
    rows = spark.sql(
        "select named_struct('zip', zip, 'odd`name', name) as address "
        "from values ('12345', 'a'), ('1', 'b'), (null, null) as t(zip, name)"
    )
    failed = rows.select(failed_rules(load_rules(tmp_path, "t"))).collect()
    assert [row[0] for row in failed] == [[], ["zip_five"], ["named"]]


def test_only_quarantine_expectations_are_rules(tmp_path: Path) -> None:
    write_suite(
        tmp_path,
        "t",
        entry(NOT_NULL, {"column": "a"}, "w", "warn"),
        entry(NOT_NULL, {"column": "a", "mostly": 1}, "q", "quarantine"),
        entry(NOT_NULL, {"column": "a"}, "s", "stop"),
    )
    assert load_rules(tmp_path, "t") == (Rule("q", "coalesce(`a` IS NULL, false)"),)
    assert load_rules(tmp_path, "no.suite") == ()
    path = write_suite(tmp_path, "gold.t", VALID)
    with pytest.raises(ConfigError, match='"r" cannot quarantine, because gold has no') as error:
        load_rules(tmp_path, "gold.t")
    assert str(path) in str(error.value)


COMPOUND = "expect_compound_columns_to_be_unique"
VALID = entry(NOT_NULL, {"column": "a"}, "r", "quarantine")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([entry(COMPOUND, {"column_list": ["a", "b"]}, "r", "quarantine")], "single rows"),
        ([entry(NOT_NULL, {"column": "a", "mostly": 0.9}, "r", "quarantine")], "mostly"),
        ([entry(NOT_NULL, {"column": "a", "row_condition": "b"}, "r", "quarantine")], "takes only"),
        ([entry(NOT_NULL, {}, "r", "quarantine")], "'column'"),
        ([entry(BETWEEN, {"column": "a"}, "r", "quarantine")], "min_value"),
        ([entry(BETWEEN, {"column": "a", "min_value": {}}, "r", "quarantine")], "bound {}"),
        (
            [
                entry(
                    BETWEEN,
                    {"column": "a", "min_value": 0, "strict_min": "false"},
                    "r",
                    "quarantine",
                )
            ],
            "must be true or false",
        ),
        (
            [entry(BETWEEN, {"column": "a", "min_value": "2020-01-01T00:00"}, "r", "quarantine")],
            "zone",
        ),
        ([entry(LENGTHS, {"column": "a", "min_value": 1.5}, "r", "quarantine")], "whole"),
        ([entry(IN_SET, {"column": "a", "value_set": "abc"}, "r", "quarantine")], "list"),
        ([entry(REGEX, {"column": "a", "regex": 1}, "r", "quarantine")], "string"),
        (
            [entry(QUERY, {"unexpected_rows_query": "SELECT a FROM {batch}"}, "r", "quarantine")],
            "WHERE <condition>",
        ),
        (
            [
                entry(
                    QUERY,
                    {"unexpected_rows_query": SELECT + "a > 1 GROUP BY ALL"},
                    "r",
                    "quarantine",
                )
            ],
            "WHERE <condition>",
        ),
        ([VALID, VALID], "twice"),
        ([entry(NOT_NULL, {"column": "a"}, "", "warn")], 'needs a "name"'),
        ([{"type": NOT_NULL, "kwargs": {"column": "a"}}], "number 1"),
        ([entry(NOT_NULL, {"column": "a"}, "r", "explode")], "warn, quarantine, stop"),
    ],
)
def test_load_rules_refuses_an_invalid_rule(
    tmp_path: Path, entries: list[dict[str, Any]], message: str
) -> None:
    path = write_suite(tmp_path, "silver.t", *entries)
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        load_rules(tmp_path, "silver.t")
    assert str(path) in str(error.value)
    assert '"r"' in str(error.value) or "number 1" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"expectations": {}}',
        '{"expectations": [1]}',
        '{"expectations": [{}]}',
        "[" * 100_000,
    ],
)
def test_load_rules_refuses_a_file_that_is_no_suite(tmp_path: Path, text: str) -> None:
    path = write_suite(tmp_path, "t")
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        load_rules(tmp_path, "t")


def test_rule_query_with_sql_words_in_quotes(spark: SparkSession, tmp_path: Path) -> None:
    query = SELECT + "s = 'group by -- {{x}}' OR `limit` = 1"
    write_suite(tmp_path, "t", entry(QUERY, {"unexpected_rows_query": query}, "r", "quarantine"))
    frame = spark.sql("SELECT 'group by -- {x}' AS s, 0 AS `limit` UNION ALL SELECT 'b', 0")
    failed = frame.select(failed_rules(load_rules(tmp_path, "t"))).collect()
    assert sorted(row[0] for row in failed) == [[], ["r"]]


def names(table: str) -> list[str]:
    return [rule.name for rule in load_rules(CONF, table)]


def test_load_rules_of_the_project() -> None:
    assert names("bronze.activity") == names("bronze.event") == ["malformed_line"]
    assert names("silver.activity") == [
        "missing_device",
        "missing_index",
        "missing_x",
        "missing_y",
        "missing_z",
    ]
    assert names("silver.event") == ["missing_action"]
    assert names("gold.device_counts") == []


def test_unused_suites(tmp_path: Path) -> None:
    files = {table: suite_path(tmp_path, table) for table in ("silver.event", "gold.open_device")}
    for file in files.values():
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    tables = ["bronze.event", "silver.event", "gold.open_devices"]
    assert unused_suites(tmp_path, tables) == [files["gold.open_device"]]
    assert unused_suites(tmp_path / "none", tables) == []
