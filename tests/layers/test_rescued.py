"""Values that did not fit their columns: rules about them, and messages of each run."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from medallion.cli import render_runs
from medallion.config.loader import load
from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.inspect.audit import run_audit
from medallion.inspect.problems import ProblemCode
from medallion.layers.rescued import rescue_rules
from medallion.layers.silver import rules
from medallion.state.runs import RescuedField, RescuedSummary
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse, activity_source
from tests.support.verdict import take_verdict

SOURCE: dict[str, Any] = {
    "schema": {
        "time": "timestamp",
        "id": "string",
        "amount": "long",
        "user": "struct<name:string>",
        "note": "long",
    },
    "silver": {"at": "time", "id": "id", "amount": "Amount", "name": "user.name"},
    "event_time": "at",
    "keys": ["id", "at"],
    "schema_evolution": "none",
}
MODES = ("quarantine", "warn", "ignore")
LINES = (
    '{"time": "2026-05-01T10:00:00Z", "id": "a", "amount": 1, "user": {"name": "x"}}',
    '{"time": "2026-05-01T10:00:01Z", "id": "b", "amount": 12.5}',
    '{"time": "2026-05-01T10:00:02Z", "id": "c", "amount": "30\\u0007", "new": 1}',
    '{"time": "2026-05-01T10:00:03Z", "id": "d", "user": {"name": "x", "plan": "pro"}}',
    '{"time": "2026-05-01T10:00:04Z", "id": "e", "note": "no number"}',
    '{"time": "2026-05-01T10:00:05Z", "id": "f", "new": 2}',
)
FIELDS = {
    "amount": RescuedField(2, "12.5"),
    "note": RescuedField(1, "no number"),
    "user.plan": RescuedField(1, "pro"),
}


class RunningQuery:
    """A lakehouse with a source for each mode, after one nightly run; `messages` has its output."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.lakehouse = Lakehouse(spark, folder / "lakehouse")
        sources = {mode: {**SOURCE, "on_rescued": mode} for mode in MODES}
        self.lakehouse.configure(folder, {"sources": sources, "gold": {}})
        for mode in MODES:
            self.lakehouse.land(mode, "1.json", *LINES)
        self.messages: list[str] = []
        self.outcome = self.lakehouse.run_without_gates(self.messages.append)
        assert self.outcome.is_good, self.outcome


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunningQuery:
    return RunningQuery(spark, tmp_path_factory.mktemp("rescued"))


def test_rows_with_rescued_silver_fields_go_to_quarantine(run: RunningQuery) -> None:
    assert run.lakehouse.rows("quarantine.quarantine", "id", "_failed_rules") == [
        ("b", ["rescued_amount"]),
        ("c", ["rescued_amount"]),
    ]
    silver = run.lakehouse.rows("silver.quarantine", "id", "amount", "name")
    assert silver == [
        ("a", 1, "x"),
        ("d", None, "x"),
        ("e", None, None),
        ("f", None, None),
    ]


@pytest.mark.parametrize("mode", ["warn", "ignore"])
def test_all_rows_go_to_silver_in_other_modes(run: RunningQuery, mode: str) -> None:
    assert [i for (i,) in run.lakehouse.rows(f"silver.{mode}", "id")] == list("abcdef")
    assert run.lakehouse.rows(f"quarantine.{mode}") == []


def test_deep_audit_has_no_findings(run: RunningQuery) -> None:
    assert run_audit(run.lakehouse.config, everything=True).findings == ()


def test_run_prints_one_line_per_source(run: RunningQuery) -> None:
    counts = "4 rows have values that do not fit: amount (2, such as 12.5), note (1, such as no"
    counts += " number), user.plan (1, such as pro)"
    remedy = "set schema for it to a type that fits and run medallion refresh bronze."
    lines = [line.strip() for line in run.messages if "do not fit" in line]
    assert lines == [
        f"quarantine: {counts}. A row is quarantined if silver reads the field; to keep it, "
        f"{remedy}quarantine.",
        f"warn: {counts}. In silver the field is null; to get the values, {remedy}warn.",
    ]


def test_record_has_counts_and_examples(run: RunningQuery) -> None:
    runs = run.lakehouse.rows("ops.runs", "query", "rescued_rows", "rescued_fields")
    for mode in MODES:
        ((rows, fields),) = ((r, f) for q, r, f in runs if q == f"bronze.{mode}")
        assert rows == 4
        assert json.loads(fields) == {
            "amount": {"rows": 2, "example": "12.5"},
            "note": {"rows": 1, "example": "no number"},
            "user.plan": {"rows": 1, "example": "pro"},
        }
        assert run.outcome.rescued[mode] == RescuedSummary(4, FIELDS)


def test_commands_show_values_that_do_not_fit(run: RunningQuery) -> None:
    problems = {(p.code, p.subject): p for p in take_verdict(run.lakehouse.config).problems}
    sentence = problems[ProblemCode.RESCUED, "warn"].sentence
    assert sentence.startswith("4 rows have values that do not fit")
    fields = {name: asdict(field) for name, field in FIELDS.items()}
    document = json.loads(json.dumps(render_runs.nightly_json(run.outcome)))
    assert document["rescued"] == {mode: {"rows": 4, "fields": fields} for mode in MODES}


def test_summary_is_short_and_printable() -> None:
    fields = {f"f{n:02}\n": RescuedField(1, "\x1b" * 50) for n in range(30)}
    record = RescuedSummary(3, fields).record()
    fields_ = json.loads(record["rescued_fields"])
    assert (record["rescued_rows"], len(fields_)) == (3, 20)
    assert fields_["f00\\n"] == {"rows": 1, "example": ("\\x1b" * 10)}
    assert str(RescuedSummary(1, {"a": RescuedField(1, "\x1b")})) == (
        "1 row has values that do not fit: a (1, such as \\x1b)"
    )
    assert RescuedSummary().record() == {"rescued_rows": 0, "rescued_fields": None}


def test_rescue_rules_of_the_fields_that_silver_reads(spark: SparkSession) -> None:
    types = {
        "Amount": "long",
        "user": "struct<Name:string,plan:string>",
        "items": "array<struct<sku:string>>",
        "other": "long",
    }
    columns = {name: T.DataType.fromDDL(type_) for name, type_ in types.items()}
    silver = {
        "a": "cast(amount as double)",
        "name": "user.name",
        "skus": "transform(items, i -> i.sku)",
        "first": "items[0].sku",
        "source": "_source_file",
        "other": "coalesce(other, get_json_object(_rescued_data, '$.other'))",
        "more": "other + 1",
    }
    source = replace(load({}, PROJECT).sources["activity"], silver=silver)
    rescued = rescue_rules(spark, source, columns)
    assert rescued == {
        "rescued_Amount": ("Amount",),
        "rescued_items": ("items",),
        "rescued_user.Name": ("user", "Name"),
    }
    with_suite_rules = rescue_rules(
        spark, source, columns, ["USER.plan = 'x'", "_corrupt_record is null"]
    )
    assert with_suite_rules == {**rescued, "rescued_user.plan": ("user", "plan")}


def test_rescue_rules_of_the_fields_that_cdc_reads(spark: SparkSession) -> None:
    columns = {name: T.BooleanType() for name in ("id", "deleted", "seq", "other")}
    derived = {"_sequence": "coalesce(_bronze.seq, 0)", "_is_delete": "deleted or name"}
    cdc = CdcConfig("seq", "deleted", None, None, 1, False, Duration.parse("30 days"))
    cdc = replace(cdc, derived=derived)
    source = activity_source(silver={"name": "upper(id)"}, keys=("name",), cdc=cdc, event_time="")
    assert rescue_rules(spark, source, columns).keys() == {
        "rescued_deleted",
        "rescued_id",
        "rescued_seq",
    }


def test_rule_of_a_suite_replaces_the_rescue_rule(spark: SparkSession) -> None:
    source = replace(load({}, PROJECT).sources["activity"], silver={"a": "amount"})
    bronze = T.StructType([T.StructField("amount", T.LongType())])
    document: dict[str, Any] = {"bronze": {}, "silver": {}}
    assert rules.with_rescue_rules(spark, source, document, bronze)["rescued"]
    suite_rules = {"bronze": {}, "silver": {"rescued_amount": "false"}}
    assert rules.with_rescue_rules(spark, source, suite_rules, bronze) == {
        **suite_rules,
        "rescued": "",
    }
    warn = replace(source, on_rescued="warn")
    assert rules.with_rescue_rules(spark, warn, document, bronze)["rescued"] == ""
