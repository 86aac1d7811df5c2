"""`medallion check` finds every problem at once, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from medallion.cli.render_runs import check_json, plan_lines
from medallion.config.loader import load_with_errors
from medallion.config.model import Config
from medallion.errors import ConfigError, InvalidProjectError, UsageError
from medallion.ingest.schema import registry
from medallion.inspect.audit import run_audit
from medallion.inspect.edits import EditAction
from medallion.inspect.problems import ProblemCode
from medallion.quality.suites import suite_path
from medallion.runtime import erase, replay
from medallion.runtime.check import (
    CheckResult,
    has_invalid_suites,
    refuse_invalid_project,
    run_check,
)
from medallion.runtime.nightly import Nightly
from medallion.runtime.pipeline import Pipeline
from medallion.spark import checkpoints
from medallion.state import journal, ledger, pending_work
from medallion.state.ledger import Entry, State
from medallion.storage.paths import StoragePath
from tests.support.home import Home, tree
from tests.support.sql import write

SOURCE: dict[str, Any] = {
    "silver": {"at": "time", "shop": "shop"},
    "event_time": "at",
    "keys": ["at", "shop"],
}
GUARDS = [
    {
        "type": "expect_column_values_to_not_be_null",
        "kwargs": {"column": "at"},
        "meta": {"name": "missing_event_time", "on_failure": "quarantine"},
    },
]


class Project:
    """A project directory with one source, `sales`, and one gold table, `counts`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.document: dict[str, Any] = {
            "sources": {"sales": dict(SOURCE)},
            "gold": {
                "counts": {
                    "source": "silver.sales",
                    "group_by": ["shop"],
                    "measure": {"n": "count(*)"},
                },
            },
        }
        self.suite(GUARDS)
        self.land("sales/a.json", '{"time": "2026-05-01", "shop": "north"}')

    def suite(self, expectations: object, table: str = "silver.sales") -> None:
        file = suite_path(self.folder / "conf", table)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"name": table, "expectations": expectations}))

    def land(self, path: str, text: str) -> None:
        file = self.folder / "data/lakehouse/landing" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def add_schema_version(self, **columns: str) -> None:
        """Record a version of the schema, as a run does."""
        directory = self.folder / "data/lakehouse/_schemas/sales"
        registry.add_version(StoragePath(directory), columns, "inferred")

    def load(self) -> tuple[Config, list[ConfigError]]:
        (self.folder / "conf/pipeline.yaml").write_text(
            yaml.safe_dump(self.document, sort_keys=False)
        )
        return load_with_errors({}, self.folder)

    def check(self) -> CheckResult:
        config, errors = self.load()
        before = tree(self.folder)
        result = run_check(config, errors)
        assert tree(self.folder) == before, "a check writes nothing"
        return result


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_valid_project(project: Project) -> None:
    result = project.check()
    assert (result.problems, result.exit_status) == ([], 0)
    backlog = result.backlogs["sales"]
    assert (backlog.files, backlog.bytes) == (1, 40)
    assert result.queries == {
        "bronze.sales": ("new input", "the table is not created yet"),
        "silver.sales": ("new rows of bronze.sales",),
        "gold.counts": ("new rows of silver.sales",),
    }


def test_all_errors_of_the_configuration(project: Project) -> None:
    project.document["sources"]["sales"] |= {"late": "x", "watrmark": "1 hour"}
    project.document["sources"]["more"] = SOURCE | {"event_time": "when"}
    result = project.check()
    assert [error.split(": ")[1].split(" ")[0] for error in result.errors] == [
        *("sources.sales.watrmark", "sources.sales.late", "sources.more.event_time"),
    ]
    assert (result.lines(1), result.queries, result.exit_status) == ([], {}, 2)


def test_alert_without_its_variable(project: Project) -> None:
    project.document["on_failure"] = {"post": "${HOOK}"}
    assert project.check().lines(1) == ["on_failure.post: HOOK is not set: no alert is sent."]


def test_misspelled_columns(project: Project) -> None:
    project.add_schema_version(time="timestamp", shop="string")
    sales = project.document["sources"]["sales"]
    sales["silver"] = {"at": "time", "shop": "lower(shopp)", "region": "coalesce(country, zip)"}
    project.document["gold"]["counts"]["measure"] = {"n": "count(distinct shpo)"}
    project.suite(
        [
            *GUARDS,
            {
                "type": "unexpected_rows_expectation",
                "kwargs": {
                    "unexpected_rows_query": "SELECT * FROM {batch} WHERE lenght(regio) > 2"
                },
                "meta": {"name": "long_region", "on_failure": "quarantine"},
            },
        ]
    )
    result = project.check()
    silver, gold, suite = result.errors
    assert "line" in silver
    assert "sources.sales.silver.shop reads shopp" in silver
    assert "gold.counts.measure.n reads shpo" in gold
    assert "(did you mean shop?)" in gold
    assert 'expectation "long_region" reads regio, which is not a column of silver.sales' in suite
    # Fields of an inferred schema may still land.
    assert result.lines(0) == [
        f"sources.sales.silver.region reads {name}, which no row has had yet."
        for name in ("country", "zip")
    ]
    assert result.exit_status == 2


@pytest.mark.parametrize(
    ("silver", "status", "said"),
    [
        ({"link": "ulr"}, 2, "did you mean Url?); a field that is new needs a type in hints"),
        ({"link": "upper(Urll)"}, 2, "did you mean Url?"),
        ({"amount": "amount", "amount2": "amount2"}, 1, "did you mean amount?"),
        ({"amount2": "amount2"}, 1, "did you mean amount?"),
        ({"changed": "updated_at"}, 1, "did you mean created_at?"),
        ({"link": "Url", "other": "urls"}, 1, "did you mean Url?"),
        ({"link": "lower(ulr)", "host": "parse_url(url, 'HOST')"}, 2, "did you mean Url?"),
        ({"link": "url", "country": "country"}, 0, "reads country, which no row has had yet"),
    ],
)
def test_misspelled_field_is_an_error(
    project: Project, silver: dict[str, str], status: int, said: str
) -> None:
    """A field that is new to the source may be like one that silver reads."""
    columns = {"time": "timestamp", "shop": "string", "Url": "string"}
    project.add_schema_version(**columns, amount="long", created_at="timestamp")
    made = StoragePath(project.folder / "data/lakehouse/_checkpoints/silver.sales")
    checkpoints.write_document(made, "definition", {"keys": ["shop"], "link as": "url"})
    project.document["sources"]["sales"]["silver"] = SOURCE["silver"] | silver
    result = project.check()
    assert result.exit_status == status
    (line,) = result.lines(status)
    assert said in line


def test_columns_of_a_declared_schema(project: Project) -> None:
    sales = project.document["sources"]["sales"]
    sales["schema"] = {"time": "timestamp", "stores": "string", "Shop Name": "string"}
    (error,) = project.check().errors
    assert "sources.sales.silver.shop reads shop, which is not a column of bronze.sales" in error
    sales["silver"] = {"at": "time", "shop": "shop_name"}
    assert project.check().errors == []
    # A field of the document has its path as its name.
    sales |= {"record_path": "rows", "record_fields": ["meta.region"]}
    sales["silver"]["region"] = "region"
    (error,) = project.check().errors
    assert "reads region, which is not a column of bronze.sales" in error
    sales["silver"]["region"] = "meta_region"
    assert project.check().errors == []


def test_column_of_silver_that_hides_one_of_bronze(project: Project) -> None:
    """A column that converts the one of bronze is no doubt."""
    project.add_schema_version(time="timestamp", shop="string", op="string", code="string")
    sales = project.document["sources"]["sales"]
    sales["silver"] = {"at": "time", "shop": "shop", "op": "lower(code)", "time": "trunc(time)"}
    sales["cdc"] = {"sequence_by": "time", "apply_as_deletes": "OP = 'd' and shop is not null"}
    (doubt,) = project.check().lines(1)
    assert "sources.sales.cdc.apply_as_deletes reads op of silver, which is lower(code)" in doubt
    sales["silver"]["code"] = sales["silver"].pop("op")
    assert project.check().lines(1) == []


def test_columns_of_change_records(project: Project) -> None:
    """They may be silver's or bronze's."""
    project.add_schema_version(time="timestamp", shop="string", op="string")
    sales = project.document["sources"]["sales"]
    sales["cdc"] = {"sequence_by": "at", "apply_as_deletes": "op = 'd'"}
    result = project.check()
    assert (result.errors, result.lines(1)) == ([], [])
    sales["cdc"] = {"sequence_by": "att", "apply_as_deletes": "opp = 'd'"}
    sequence, deletes = project.check().errors
    assert "sources.sales.cdc.sequence_by" in sequence
    assert "did you mean at?" in sequence
    assert "sources.sales.cdc.apply_as_deletes" in deletes
    assert "did you mean op?" in deletes
    sales["cdc"] = {"sequence_by": "at", "apply_as_deletes": "_fivetran_deleted"}
    result = project.check()
    assert (result.errors, result.lines(1)) == ([], [])
    later = "sources.sales.cdc.apply_as_deletes reads _fivetran_deleted, which no row has had yet."
    assert result.lines(0) == [later]


def test_directories_and_unused_files(project: Project) -> None:
    project.document["sources"]["sales"]["folders"] = ["/nowhere"]
    project.document["sources"]["idle"] = SOURCE
    project.suite(GUARDS, "silver.idle")
    project.suite([], "gold.contus")
    project.land("salse/a.json", "{}")
    result = project.check()
    assert [line.split(":")[0] for line in result.lines(1)] == [
        "landing/salse",
        "no files were read from /nowhere",
    ]
    unused, idle = result.lines(0)
    assert "gold/contus.json is not used" in unused
    assert idle == "idle has no files: nothing has landed in landing/idle/."
    assert result.exit_status == 1


def test_hints_for_a_field_of_a_column(project: Project) -> None:
    project.add_schema_version(time="timestamp", shop="string", user="struct<age:string>")
    hints = {"user.age": "long", "user.at": "timestamp_millis", "some.at": "timestamp_millis"}
    project.document["sources"]["sales"]["hints"] = hints
    (attention,) = project.check().lines(1)
    assert "hints.user.at is not a column" in attention
    assert "Set hints for user.at to string or long, and convert it in silver" in attention


def test_files_that_need_a_header(project: Project) -> None:
    project.document["sources"]["sales"]["format"] = "csv"
    project.land("sales/a.json", "time,shop\n2026-05-01,x")
    project.land("sales/b.csv", "Report\n\ntime,shop\n2026-05-01,x")
    (attention,) = project.check().lines(1)
    assert attention.startswith("landing/sales/b.csv: row 2 looks like its header")


def test_file_of_an_ingested_name_will_be_rejected(project: Project) -> None:
    config, _ = project.load()
    paths = [f"landing/sales/{name}.json" for name in "ab"]
    entries = [Entry("sales", path, 1, 9, 5, 0, state=State.INGESTED, rows=1) for path in paths]
    ledger.write_entries(config.layout, entries)
    project.land("sales/b.json", "{}")
    result = project.check()
    (line,) = result.lines(1)
    assert line.startswith(f"{paths[0]}, and 1 more will be rejected: ")
    assert (result.backlogs["sales"].files, result.exit_status) == (0, 1)


def test_suites_are_refused_before_a_run(project: Project) -> None:
    project.suite("nothing")
    assert project.check().exit_status == 2
    config, _ = load_with_errors({}, project.folder)
    assert has_invalid_suites(config)
    with pytest.raises(InvalidProjectError, match=r"silver/sales\.json is not a Great"):
        refuse_invalid_project(config)


def test_all_errors_are_refused_at_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration, suites, expressions, Spark, Java and jars: each once, in one error."""
    project.document["sources"]["sales"]["schema"] = {"time": "timestamp", "stores": "string"}
    project.document["sources"]["typo"] = {**SOURCE, "watermrak": "1 hour"}
    project.suite("nothing")
    folder = project.folder
    (folder / "conf/spark").mkdir()
    (folder / "conf/spark/spark-defaults.conf").write_text("spark.driver.memory\n")
    (folder / "spark/jars").mkdir(parents=True)
    for name in ("JAVA_HOME", "PATH", "SPARK_HOME", "MEDALLION_CACHE"):
        monkeypatch.setenv(name, str(folder / "spark"))
    assert project.check().exit_status == 2
    config, errors = load_with_errors({}, folder)
    with pytest.raises(InvalidProjectError) as error:
        refuse_invalid_project(config, errors)
    key, suite, column, setting, java, jars = error.value.args
    assert "sources.typo" in key
    assert "watermrak" in key
    assert "silver/sales.json is not a Great Expectations suite" in suite
    assert "sources.sales.silver.shop reads shop, which is not a column" in column
    assert "spark-defaults.conf line 1: must be a key" in setting
    assert "Spark needs Java 17 or 21" in java
    assert java.endswith("run medallion setup")
    assert "Spark needs 7 jars" in jars
    assert jars.endswith("run medallion setup")
    assert set(error.value.args) <= set(project.check().errors)


def test_root_without_write_permission_is_refused(closable_home: Home) -> None:
    (closable_home.layout.root / "silver").local.mkdir(parents=True)
    config = closable_home.project_config
    refuse_invalid_project(config)
    (closable_home.layout.root / "silver").local.chmod(0o555)
    with pytest.raises(InvalidProjectError, match=r"silver: this user may not write here"):
        refuse_invalid_project(config)


def test_changed_definitions_need_a_rebuild(project: Project) -> None:
    root = project.folder / "data/lakehouse"
    write(root, "silver.sales", "SELECT * FROM range(3)")
    definition = {"event_time": "at", "keys": ["at", "shop"]}
    expressions = {"at as": "time", "shop as": "shop"}
    checkpoint = StoragePath(root / "_checkpoints/silver.sales")
    checkpoints.write_document(checkpoint, "definition", definition | expressions)

    def rebuilds() -> list[tuple[str, list[str], int]]:
        result = project.check()
        due = (edit for edit in result.edits if edit.action == EditAction.REBUILD)
        assert result.exit_status == any(edit.changes for edit in result.edits)
        return [(edit.table, list(map(str, edit.changes)), edit.rows) for edit in due]

    assert rebuilds() == []
    sales = project.document["sources"]["sales"]
    for silver, change in (
        ({"at": "time", "shop": "lower(shop)"}, "shop as: shop -> lower(shop)"),
        ({"at": "time", "shop": "shop", "day": "date(time)"}, "day as: none -> date(time)"),
    ):
        sales["silver"] = silver
        assert rebuilds()[0] == ("silver.sales", [change], 0)
    # The plan has the tables, and the balance of the source says that it waits.
    waits = "1 table waits for medallion apply"
    advice = "run medallion apply, which rebuilds them, or undo the edit"
    assert project.check().lines(1) == [f"{waits}; {advice}"]
    plan = {each["table"]: each for each in check_json(project.check())["plan"]}
    assert plan["silver.sales"]["action"] == "rebuild"
    assert plan["silver.sales"]["changes"] == ["day as: none -> date(time)"]
    assert project.check().queries.keys() == {"bronze.sales"}, "the others wait"
    audit = run_audit(project.load()[0])
    (problem,) = (each for each in audit.problems if each.code is ProblemCode.EDITED)
    assert problem.sentence == f"{waits}: silver.sales (day as changed)"
    assert (audit.is_balanced, audit.balances) == (True, {})
    config, waiting = project.load()[0], r"^silver.sales waits for medallion apply \(day as changed"
    with pytest.raises(UsageError, match=waiting):
        erase.run_erase(config, erase.Request("silver.sales", "shop = 'x'", cascade=True), print)
    write(root, "quarantine.sales", "SELECT 1 AS shop")
    with pytest.raises(UsageError, match=waiting):
        replay.source_to_replay(config, "quarantine.sales", None)
    # A nightly run leaves it and its readers out, or rebuilds it.
    for on_change, left_out, pending in (
        ("wait", {"silver.sales", "gold.counts"}, []),
        ("apply", set[str](), ["silver.sales"]),
    ):
        project.document["on_change"] = on_change
        note = "the next nightly run rebuilds silver.sales (day as changed)."
        assert (note in project.check().lines(0)) == (on_change == "apply")
        config, reported = project.load()[0], list[str]()
        pipeline = SimpleNamespace(config=config, report=reported.append, run_id="x")
        nightly = Nightly(cast("Pipeline", pipeline))
        nightly._handle_edits()
        assert (nightly.left_out, [*journal.rebuilds(config)]) == (left_out, pending)
        assert len(reported) == len(pending)


def test_changed_lookup_columns_need_a_rebuild(project: Project) -> None:
    """A column that is added, removed or of another type; the table has them as they were."""
    root = project.folder / "data/lakehouse"
    sql = "SELECT 'x' AS at, 'x' AS shop, 1 AS rank, CAST(1 AS DECIMAL(9, 2)) AS rate, 2 AS _source"
    write(root, "silver.sales", sql)
    definition = {"event_time": "at", "keys": ["at", "shop"], "enrich.on": "shop"}
    definition |= {"at as": "time", "shop as": "shop"}
    checkpoint = StoragePath(root / "_checkpoints/silver.sales")
    checkpoints.write_document(checkpoint, "definition", definition)
    lookup = {"file": "shops.csv", "on": "shop"}
    for columns, changes in (
        ({"rank": "long", "rate": "decimal(9, 2)"}, []),
        ({"rank": "long"}, ["lookup.rate: decimal(9,2) -> none"]),
        ({"rank": "double", "rate": "decimal(9,2)"}, ["lookup.rank: long -> double"]),
        (
            {"rank": "long", "rate": "decimal(9,2)", "opened": "date"},
            ["lookup.opened: none -> date"],
        ),
    ):
        project.document["sources"]["sales"]["lookup"] = lookup | {"columns": columns}
        edits = [edit for edit in project.check().edits if edit.table == "silver.sales"]
        assert [list(map(str, edit.changes)) for edit in edits if edit.changes] == [
            each for each in [changes] if each
        ]


def test_renames_are_noted(project: Project) -> None:
    write(project.folder / "data/lakehouse", "gold.old", "SELECT 1 AS n")
    project.document["gold"]["counts"]["renamed_from"] = "old"
    assert project.check().lines(0) == ["the next nightly run moves what old has to counts."]


def test_edits_for_new_rows_only(project: Project) -> None:
    root, settings = StoragePath(project.folder / "data/lakehouse"), "new rows only"
    sales, (config, _) = project.document["sources"]["sales"], project.load()
    for query in ("bronze.sales", "silver.sales"):
        checkpoint = root / f"_checkpoints/{query}"
        (checkpoint / "offsets").local.mkdir(parents=True)
        (checkpoint / "offsets/0").local.write_text("v1\n{}")
        pending_work.record_settings(config, query, settings)
    counts = project.document["gold"]["counts"]
    counts |= {"publish": {"files": {"format": "json"}}, "output_mode": "update"}
    new = [(edit.table, edit.action) for edit in project.check().edits]
    assert new == [(name, EditAction.NEW) for name in ("gold.counts", "publish.counts.files")]
    sales["watermark"], sales["hints"] = "2 hours", {"amount": "double"}
    sales["options"] = {"encoding": "iso8859-1"}
    strict = GUARDS[0] | {"meta": {"name": "missing_event_time", "on_failure": "stop"}}
    project.suite([strict])
    bronze, silver, *_ = project.check().edits
    assert bronze.action == silver.action == EditAction.NEW_ROWS
    assert [*map(str, bronze.changes)] == [
        'hints: {} -> {"amount": "double"}',
        "watermark: 1 hour -> 2 hours",
        "options.encoding: utf-8 -> iso8859-1",
    ]
    (change,) = map(str, silver.changes)
    assert change.startswith('rule missing_event_time: ["expect_column_values_to_not_be_nu')
    assert plan_lines([bronze])[:3] == [
        "the plan:",
        "  bronze.sales: new rows only, with the next nightly run",
        '    hints: {} -> {"amount": "double"}',
    ]


def test_check_views(project: Project) -> None:
    """A view is planned if its tables exist."""
    write(project.folder / "data/lakehouse", "gold.n", "SELECT 1 AS total")
    project.document["views"] = {
        "good": "SELECT total FROM gold.n",
        "too_early": "SELECT nope FROM gold.later",
        "wrong": "SELECT tota FROM gold.n",
        "writes": "DROP TABLE x",
    }
    errors = [error for error in project.check().errors if "views." in error]
    assert len(errors) == 2
    expected = "views.wrong is wrong: view wrong: there is no column tota: did you mean total?"
    assert expected in errors[0]
    assert "views.writes is wrong: only SELECT" in errors[1]
