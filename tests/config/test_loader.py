"""Configuration errors: one sentence that names the key and a valid value."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from medallion.config import loader
from medallion.config.document import read_yaml
from medallion.config.loader import load, load_with_errors
from medallion.config.model import Aggregate, GoldTable, ReaderOptions, Statement
from medallion.config.operations import OnFailure
from medallion.config.queries import queries, readers
from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.errors import ConfigError
from medallion.storage.paths import StoragePath
from tests.support import PROJECT
from tests.support.permissions import closed

SLIDING = {
    "source": "silver.event",
    "window": "1 hour",
    "slide": "3 seconds",
    "group_by": ["action"],
    "measure": {"n": "count(*)"},
}

LOOKUP = {"file": "reference/devices.csv", "on": "device", "columns": {"maker": "string"}}


def edited(tmp_path: Path, *path: str, value: Any) -> Path:
    """Copy the project's pipeline.yaml with one value changed, or removed if the value is `...`."""
    (tmp_path / "conf").mkdir(parents=True, exist_ok=True)
    document = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text())
    node = document
    for key in path[:-1]:
        node = node[key]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    (tmp_path / "conf/pipeline.yaml").write_text(yaml.safe_dump(document))
    return tmp_path


COUNT = {"source": "silver.event", "measure": {"n": "count(*)"}}
SESSIONS = {**COUNT, "group_by": ["device"], "session": "5 minutes"}
ON: dict[str, Any] = {"with": "silver.activity", "on": {"device": "device"}, "within": "1 hour"}
LINES = {"silver": {"at": "value"}, "event_time": "at", "keys": ["at"]}
MESSAGES = LINES | {"format": "kafka", "servers": ["one:9092"], "topics": ["t"], "value": "text"}
FILES = {"files": {"format": "json"}}
TOPIC = {"servers": ["one:9092"], "topic": "t"}
JOIN = {"source": "silver.event", "join": ON, "columns": {"device": "event.device"}}

CDC = {"sequence_by": "updated_at"}
ORDERS: dict[str, Any] = {"silver": {"order_id": "id", "updated_at": "ts"}, "keys": ["order_id"]}
ORDERS["cdc"] = CDC
HISTORY = {**ORDERS["silver"], "valid_from": "ts"}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("sorces",), {}, ["sorces is not a known key", "sources, silver, gold, views, maintain"]),
        (("on_failure",), {"post": "hooks.example.org"}, ["on_failure.post", "https://"]),
        (("on_failure",), {"command": "mail me"}, ["on_failure.command", "a list such as"]),
        (("on_failure",), {"comand": ["true"]}, ["on_failure.comand", "did you mean command"]),
        (("gold", "device_totals", "expect_every"), "daily", ["expect_every", "'10 minutes'"]),
        (("sources", "event", "watermrk"), "1 hour", ["sources.event.watermrk", "watermark"]),
        (
            ("sources", "event", "watermark"),
            "1 our",
            ["sources.event.watermark", "'10 minutes'", "'1 our'"],
        ),
        (("sources", "event", "watermark"), "0 hours", ["sources.event.watermark"]),
        (("sources", "event", "keys"), ["event_at", "devise"], ["keys", "'devise'"]),
        (("sources", "event", "keys"), ["event_at", "event_at"], ["keys", "'event_at' twice"]),
        (
            ("sources", "event", "silver"),
            {"event_at": "ts", "device": "concat(id, `_Ingested_at`)", "action": "action"},
            ["sources.event.keys names 'device'", "from _Ingested_at", "duplicates would differ"],
        ),
        (
            ("sources", "event", "format"),
            "text",
            ["event.schema.action is not a column", "value."],
        ),
        (
            ("sources", "x"),
            MESSAGES | {"schema_evolution": "rescue"},
            ["sources.x.schema_evolution is for new fields", "text"],
        ),
        (
            ("sources", "x"),
            LINES | {"format": "orc", "max_line_bytes": "1 MiB"},
            ["sources.x.max_line_bytes is for lines of text", "orc"],
        ),
        (
            ("sources", "event", "pattern"),
            "_*.json",
            ["event.pattern", "does not start with", "'_*.json'"],
        ),
        (("sources", "event", "event_time"), "at", ["sources.event.event_time", "'at'"]),
        (
            ("sources", "event", "schema"),
            {"id": "text"},
            ["sources.event.schema.id", "string, timestamp", "'text'"],
        ),
        (
            ("sources", "event", "schema"),
            {"id": "string", "ID": "string"},
            ["sources.event.schema.", "the same column", "case"],
        ),
        (("sources", "event", "schema"), {"id": 7}, ["sources.event.schema.id", "string, not 7"]),
        (("sources", "event", "silver"), ..., ["sources.event.silver is missing"]),
        (("sources", "event", "hints"), {"id": "string"}, ["hints", "inferred"]),
        (("sources", "event", "hints"), {"n": "decimal"}, ["hints.n", "decimal(p,s)"]),
        (
            ("sources", "event"),
            {
                "schema": "infer",
                "hints": {"at": "struct<n:long>", "at.n": "string"},
                "silver": {"at": "at"},
                "event_time": "at",
                "keys": ["at"],
            },
            ["hints.at.n", "is within at"],
        ),
        (("sources", "event", "schema_evolution"), "grow", ["schema_evolution", "addNewColumns"]),
        (("sources", "event", "clean_source"), True, ["clean_source", "archive, delete, off"]),
        (("sources", "event", "clean_source"), False, ["clean_source", "archive, delete, off"]),
        (("sources", "event", "max_line_bytes"), 100, ["max_line_bytes", "'16 MiB'"]),
        (("sources", "event", "max_line_bytes"), "513 MiB", ["max_line_bytes", "512 MiB at most"]),
        (("gold", "user_activity"), SLIDING, ["gold.user_activity.slide", "1,000 windows"]),
        (("sources", "event", "watermark"), f"{10**9} days", ["watermark", "'10 minutes'"]),
        (("maintain",), {"retain": "1 day"}, ["maintain.retain", "retention, every"]),
        (("maintain",), {"retention": "1 weak"}, ["maintain.retention", "'10 minutes'"]),
        (("maintain",), {"retention": "59 minutes"}, ["maintain.retention", "at least 1 hour"]),
        (("maintain",), "daily", ["maintain must be a mapping"]),
        (("sources",), {2024: {}}, ["sources has the key 2024, which is not a string"]),
        (("sources", "event", "folders"), ["a\0b"], ["sources.event.folders"]),
        (("sources", "event", "pattern"), "a\x07", ["sources.event.pattern"]),
        (("gold", "x" * 101), {}, ["up to 99"]),
        (("sources", "event", "late"), "drop", ["late", "admit, quarantine"]),
        (("sources", "event", "format"), "xml", ["format", "json, csv, parquet, orc, avro, text"]),
        (("sources", "event", "quiet_period"), "soon", ["quiet_period", "'10 minutes'"]),
        (("sources", "event", "folders"), "/data", ["folders", "a list of folders"]),
        (
            ("sources", "event", "folders"),
            ["x", "../.."],
            ["event.folders", "names ../.., in which"],
        ),
        (
            ("sources", "event", "folders"),
            ["x", "ftp://b-1/k"],
            ["ftp://b-1/k", "be a path, or s3:"],
        ),
        (("sources", "event", "folders"), ["s3://B/k"], ["'s3://B/k'", "be a path, or s3:"]),
        (("sources", "event", "folders"), ["hdfs:/b"], ["event.folders", "be a path, or s3:"]),
        (("sources", "event", "folders"), ["archive/event"], ["event.folders", "archive/event"]),
        (
            ("sources", "event", "folders"),
            ["landing"],
            ["landing/event is in", "whose subfolders"],
        ),
        (("sources", "event", "folders"), ["a", "a/b"], ["event.folders", "a/b is in"]),
        (("sources", "event", "folders"), ["landing/activity"], ["may read the same files"]),
        (("sources", "event", "partition_columns"), ["a", "a"], ["event.partition_columns"]),
        (("sources", "event", "partition_columns"), ["_a"], ["event.partition_columns"]),
        (("sources", "event", "ignore"), "*.tmp", ["event.ignore", "a list of globs"]),
        (("sources", "event", "pattern"), "2024/*.json", ["event.pattern", "without /"]),
        (("sources", "event", "pattern"), "{a,b}*.json", ["event.pattern", "'{a,b}*.json'"]),
        (("sources", "event", "allow_overwrites"), "yes", ["allow_overwrites", "true or false"]),
        (
            ("sources", "event", "silver"),
            {"Event": "ts"},
            ["sources.event.silver.Event", "snake_case"],
        ),
        (("sources", "event", "max_files_per_trigger"), 0, ["max_files_per_trigger", "above 0"]),
        (
            ("sources", "event", "max_bytes_per_trigger"),
            "1 GB",
            ["max_bytes_per_trigger", "'1 GiB'"],
        ),
        (("sources", "Event"), {}, ["sources.Event", "lower-case"]),
        (("sources",), {}, ["there is no source yet"]),
        (
            ("gold", "device_counts", "source"),
            "silver.activty",
            ["silver.activity", "silver.activty"],
        ),
        (("gold", "device_counts", "window"), "ten minutes", ["gold.device_counts.window"]),
        (("gold", "device_counts", "slide"), "1 hour", ["gold.device_counts.slide", "window"]),
        (("gold", "device_counts", "group_by"), ["devise"], ["'devise'", "silver.activity"]),
        (("gold", "device_counts", "group_by"), ["device", "device"], ["'device'", "twice"]),
        (("gold", "device_counts", "output_mode"), "append", ["output_mode", "complete, update"]),
        (("gold", "device_counts", "measure"), {}, ["gold.device_counts.measure"]),
        (
            ("gold", "device_counts", "measure"),
            {"device": "count(*)"},
            ["gold.device_counts.measure", "'device'", "group"],
        ),
        (("gold", "device_counts", "source"), "activity", ["silver.activity", "not activity."]),
        (
            ("gold", "device_counts", "session"),
            "5 minutes",
            ["device_counts.session", "cannot be used"],
        ),
        (("gold", "t"), SESSIONS | {"output_mode": "update"}, ["t.output_mode", "complete, not"]),
        (("gold", "t"), SESSIONS | {"group_by": []}, ["t.group_by", "its own sessions"]),
        (("gold", "t"), {"sql": "gold/t.sql", "window": "1 hour"}, ["t.window is not", "sql"]),
        (("gold", "t"), {"sql": "gold/t.sql"}, ["gold.t.sql", "gold/t.sql, which cannot be read"]),
        (("gold", "t"), JOIN | {"group_by": ["device"]}, ["t.group_by is not", "join, columns"]),
        (("gold", "t"), JOIN | {"source": "silver.activity"}, ["join.with", "a table other than"]),
        (("gold", "t"), JOIN | {"columns": {"A": "x"}}, ["t.columns.A", "snake_case"]),
        (("gold", "t"), JOIN | {"output_mode": "complete"}, ["t.output_mode", "append"]),
        (("gold", "device_counts", "publish"), FILES, ["counts.publish", "update or append"]),
        (("gold", "t"), JOIN | {"publish": {}}, ["t.publish", "files, kafka, or both"]),
        (("gold", "t"), JOIN | {"publish": {"file": {}}}, ["t.publish.file ", "files, kafka"]),
        (("gold", "t"), JOIN | {"publish": {"files": {}}}, ["files.format is missing", "csv"]),
        (("gold", "t"), JOIN | {"publish": {"files": {"format": "orc"}}}, ["format", "'orc'"]),
        (
            ("gold", "t"),
            JOIN | {"publish": {"kafka": {"topic": "t"}}},
            ["kafka.servers is missing"],
        ),
        (("gold", "t"), JOIN | {"publish": {"kafka": TOPIC | {"topic": "a b"}}}, ["kafka.topic"]),
        (
            ("gold",),
            {name: JOIN | {"publish": {"kafka": TOPIC}} for name in ("one", "two")},
            [
                "gold.two.publish.kafka.topic is t, as in gold.one.publish.kafka: use another",
            ],
        ),
        (("gold", "t"), JOIN | {"join": ON | {"on": {"devise": "device"}}}, ["'devise'", "event"]),
        (("gold", "t"), JOIN | {"join": ON | {"on": {"device": "gr"}}}, ["'gr'", "activity"]),
        (("gold", "t"), JOIN | {"join": ON | {"kind": "outer"}}, ["join.kind", "inner or left"]),
        (("gold", "t"), JOIN | {"join": {"with": "silver.activity"}}, ["t.join.on is missing"]),
        (("gold", "device_counts"), "count", ["gold.device_counts", "mapping"]),
        (("sources", "event", "enrich"), "devices.csv", ["event.enrich must be a mapping"]),
        (("sources", "event", "enrich"), {}, ["sources.event.enrich.file is missing", "CSV"]),
        (
            ("sources", "event", "enrich"),
            {**LOOKUP, "key": "device"},
            ["enrich.key", "file, on"],
        ),
        (
            ("sources", "event", "enrich"),
            {**LOOKUP, "on": "id"},
            ["enrich.on", "'id'", "silver"],
        ),
        (
            ("sources", "event", "enrich"),
            {**LOOKUP, "columns": {"action": "string"}},
            ["sources.event.enrich.columns", "'action'", "silver already has"],
        ),
        (
            ("sources", "event", "enrich"),
            {**LOOKUP, "columns": {"maker": "text"}},
            ["sources.event.enrich.columns.maker", "string, timestamp", "'text'"],
        ),
        (
            ("sources", "event", "enrich"),
            {**LOOKUP, "columns": {"Maker": "string"}},
            ["sources.event.enrich.columns.Maker", "snake_case"],
        ),
        (
            ("sources", "orders"),
            {**ORDERS, "cdc": {"sequence": "updated_at"}},
            ["sources.orders.cdc.sequence", "did you mean sequence_by"],
        ),
        (("sources", "orders"), {**ORDERS, "cdc": {}}, ["orders.cdc.sequence_by is missing"]),
        (
            ("sources", "orders"),
            {**ORDERS, "cdc": {**CDC, "stored_as_scd_type": 3}},
            ["orders.cdc.stored_as_scd_type", "one of 1, 2", "3"],
        ),
        (
            ("sources", "orders"),
            {**ORDERS, "cdc": {**CDC, "stored_as_scd_type": 2}, "silver": HISTORY},
            ["orders.cdc.stored_as_scd_type", "'valid_from'"],
        ),
        (("sources", "orders"), {**ORDERS, "keys": []}, ["sources.orders.keys", "name a column"]),
        (
            ("sources", "orders"),
            {**ORDERS, "watermark": "1 hour"},
            ["sources.orders.watermark", "no effect with cdc"],
        ),
        (
            ("sources",),
            {"orders": ORDERS, "orders_changes": ORDERS},
            ["sources.orders_changes", "silver.orders_changes", "changes of orders"],
        ),
    ],
)
def test_invalid_configuration(
    tmp_path: Path, path: tuple[str, ...], value: Any, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        load({}, edited(tmp_path, *path, value=value))
    message = str(error.value)
    assert "pipeline.yaml" in message
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_cdc_defaults(tmp_path: Path) -> None:
    source = load({}, edited(tmp_path, "sources", "orders", value=ORDERS)).sources["orders"]
    month = Duration.parse("30 days")
    assert source.cdc == CdcConfig("updated_at", None, None, None, 1, False, month)
    assert (source.event_time, source.rows_table) == ("", "silver.orders_changes")


def test_alert_url_comes_from_the_environment(tmp_path: Path) -> None:
    value = {"post": "${HOOK}", "command": ["mail", "me"], "details": True}
    project, url = edited(tmp_path, "on_failure", value=value), "https://hooks.example.org/T0KEN"
    on_failure = load({"HOOK": url}, project).on_failure
    assert on_failure == OnFailure(("mail", "me"), url, True, "HOOK")
    assert "T0KEN" not in repr(on_failure)
    (tmp_path / ".env").write_text(f"HOOK={url}\n")
    assert load({}, project).on_failure.post == url
    (tmp_path / ".env").unlink()
    unset = load({}, project).on_failure
    assert (unset.post, unset.is_configured) == (None, True), (
        "each alert reports the unset variable"
    )
    with pytest.raises(ConfigError, match=r"on_failure.post names HOOK, whose value") as error:
        load({"HOOK": "file:///T0KEN"}, project)
    assert "T0KEN" not in str(error.value)


def test_metrics_file_is_absolute(tmp_path: Path) -> None:
    project = edited(tmp_path, "maintain", value={})
    assert load({}, project).metrics_file is None
    file = {"MEDALLION_METRICS_FILE": "/metrics/m.prom"}
    assert load(file, project).metrics_file == Path("/metrics/m.prom")
    with pytest.raises(ConfigError, match=r"m\.prom must be an absolute path"):
        load({"MEDALLION_METRICS_FILE": "m.prom"}, project)


def test_debezium_reads_files_or_a_topic(tmp_path: Path) -> None:
    entry = {"format": "debezium", "silver": {"id": "id"}, "keys": ["id"]}
    source = load({}, edited(tmp_path, "sources", "orders", value=entry)).sources["orders"]
    assert (source.format, source.stream, source.is_debezium) == ("json", None, True)
    assert source.cdc is not None
    assert (source.cdc.sequence_by, source.cdc.apply_as_deletes) == (
        "coalesce(_lsn, _ts_ms)",
        "_op = 'd'",
    )
    entry |= {"servers": ["one:9092"], "topics": ["t"], "cdc": {"sequence_by": "_ts_ms"}}
    source = load({}, edited(tmp_path, "sources", "orders", value=entry)).sources["orders"]
    assert (source.format, source.cdc and source.cdc.sequence_by) == ("kafka", "_ts_ms")


def test_topic_cannot_be_published_and_read(tmp_path: Path) -> None:
    """Each server of a cluster leads to all others; another cluster may have a topic of that
    name."""
    source = {"event_time": "at", "keys": ["at"], "silver": {"at": "at"}, "format": "kafka"}

    def write_project(*servers: str) -> Path:
        read = source | {"servers": [*servers], "topics": ["s", "t"]}
        edited(tmp_path, "gold", value={"out": JOIN | {"publish": {"kafka": TOPIC}}})
        file = tmp_path / "conf/pipeline.yaml"
        document = yaml.safe_load(file.read_text())
        document["sources"]["doors"] = read
        file.write_text(yaml.safe_dump(document))
        return tmp_path

    with pytest.raises(ConfigError, match=r"publish\.kafka\.topic is t, as in sources\.doors: "):
        load({}, write_project("two:9092", "ONE:9092"))
    assert load({}, write_project("two:9092")).gold["out"].outputs


def test_gold_sql_reads_silver_tables(tmp_path: Path) -> None:
    edited(tmp_path, "gold", "t", value={"sql": "t.sql"})
    file = tmp_path / "conf/t.sql"
    for text, words in (
        (
            "select 'silver.event' as name -- from silver.event",
            "t.sql, which reads no table",
        ),
        (
            "select 1 from silver.evnt",
            r"reads silver\.evnt \(did you mean silver\.event\?\)",
        ),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            load({}, tmp_path)
    file.write_text("select silver.event.action from `silver` . /* all */ `event` group by 1;\n")
    (table,) = (t for t in load({}, tmp_path).gold.values() if t.name == "t")
    assert (table.tables, table.definition) == (
        ("silver.event",),
        Statement(file, "select silver_event.action from silver_event group by 1"),
    )


def gold_of(tmp_path: Path, **queries: str) -> tuple[dict[str, GoldTable], list[str]]:
    """Load gold tables with this SQL; return them and the errors without file and line."""
    for name, sql in queries.items():
        (tmp_path / f"{name}.sql").write_text(sql)
    event = {"silver": {"at": "ts", "device": "device"}, "event_time": "at", "keys": ["at"]}
    counts = {"source": "silver.event", "group_by": ["device"], "measure": {"n": "count(*)"}}
    gold = {**{name: {"sql": f"{name}.sql"} for name in queries}, "counts": counts}
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"sources": {"event": event}, "gold": gold}, sort_keys=False))
    config, errors = load_with_errors({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    return dict(config.gold), [str(error).partition(": ")[2] for error in errors]


def test_gold_sql_reads_gold_tables(tmp_path: Path) -> None:
    """Each table comes after the tables that it reads, which have a change feed."""
    last = "select * from gold.first join silver.event using (device) -- gold.none"
    gold, errors = gold_of(tmp_path, last=last, first="select * from Gold.`counts` where n > 1")
    assert (errors, list(gold)) == ([], ["counts", "first", "last"])
    assert gold["last"].tables == ("gold.first", "silver.event")
    sql = last.replace("gold.first", "gold_first").replace("silver.event", "silver_event")
    assert gold["last"].definition == Statement(tmp_path / "last.sql", sql)
    assert [name for name, table in gold.items() if table.follows_changes] == ["first", "last"]
    config = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    assert config.changing_tables == {"gold.counts", "gold.first"}
    gold_queries = {query.name: query.sources for query in queries(config, ["gold"])}
    assert gold_queries == {f"gold.{name}": ("event",) for name in gold}
    names = [query.name for query in readers(config, ["gold.counts"])]
    assert names == ["gold.first", "gold.last"]


def test_gold_sql_reads_gold_errors(tmp_path: Path) -> None:
    gold, errors = gold_of(
        tmp_path,
        a="select * from gold.b",
        b="select * from gold.c",
        c="select * from gold.a, gold.counts",
    )
    assert (gold, len(errors)) == ({}, 1)
    message = "gold.a.sql reads gold.b, which reads gold.c, which reads gold.a, in a circle"
    assert errors == [f"{message}: remove one of these."]
    _, errors = gold_of(tmp_path, a="select * from gold.a")
    assert errors == ["gold.a.sql reads gold.a, in a circle: remove one of these."]
    # A reader of an invalid table has no additional error.
    gold, (error,) = gold_of(tmp_path, a="select * from gold.b", b="select * from gold.cunts")
    assert "which reads gold.cunts (did you mean gold.counts?)" in error
    assert list(gold) == ["counts"]


def test_group_by_cannot_be_a_window_column(tmp_path: Path) -> None:
    edited(tmp_path, "gold", "device_counts", "group_by", value=["window_end"])
    file = tmp_path / "conf/pipeline.yaml"
    document = yaml.safe_load(file.read_text())
    document["sources"]["activity"]["silver"]["window_end"] = "gt"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match=r"device_counts.window adds 'window_end'.* rename"):
        load({}, tmp_path)
    document["gold"]["device_counts"] = {**SESSIONS, "source": "silver.activity"}
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match=r"device_counts.session adds 'window_end'.* rename"):
        load({}, tmp_path)


def test_event_time_may_be_ingestion_time(tmp_path: Path) -> None:
    silver = {"event_at": "_ingested_at", "device": "id", "action": "action"}
    edited(tmp_path, "sources", "event", "silver", value=silver)
    assert load({}, tmp_path).sources["event"].keys == ("event_at", "device", "action")


def test_lookup_columns_are_silver_columns(tmp_path: Path) -> None:
    """Gold may group by them; keys and the event time cannot use them."""
    document = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text())
    event = document["sources"]["event"] | {"enrich": LOOKUP}
    document["sources"]["event"] = event
    document["gold"]["action_counts"]["group_by"] = ["maker"]
    file = edited(tmp_path, "maintain", value={}) / "conf/pipeline.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    config = load({}, tmp_path)
    assert config.sources["event"].columns == ("event_at", "device", "action", "maker")
    counts = config.gold["action_counts"].definition
    assert isinstance(counts, Aggregate)
    assert counts.group_by == ("maker",)
    with_alias = event | {"lookup": LOOKUP}
    with pytest.raises(ConfigError, match=r"event.enrich is another name of lookup"):
        load({}, edited(tmp_path, "sources", "event", value=with_alias))
    del with_alias["enrich"]
    by_alias = load({}, edited(tmp_path, "sources", "event", value=with_alias))
    assert by_alias.sources["event"] == config.sources["event"]
    event["keys"] = ["event_at", "maker"]
    with pytest.raises(ConfigError, match=r"event.keys names 'maker', which is not a column of"):
        load({}, edited(tmp_path, "sources", "event", value=event))


def test_clean_after_needs_clean_source(tmp_path: Path) -> None:
    document = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text())
    event = {**document["sources"]["event"], "clean_source": "off", "clean_after": "1 day"}
    with pytest.raises(
        ConfigError, match=r"event.clean_after has no effect with clean_source: off"
    ):
        load({}, edited(tmp_path, "sources", "event", value=event))


def test_off_and_no_are_strings(tmp_path: Path) -> None:
    """As in YAML 1.2; in YAML 1.1 these and y are booleans."""
    (tmp_path / "pipeline.yaml").write_text(
        "sources: {x: {clean_source: off, multi_line: true, event_time: at, keys: [at, no, y],"
        " silver: {at: ts, no: number, y: why}}}"
    )
    source = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path).sources["x"]
    assert (source.clean_source, source.multi_line, source.keys) == ("off", True, ("at", "no", "y"))


def test_defaults_of_sizes_and_durations(tmp_path: Path) -> None:
    config = load({}, edited(tmp_path, "maintain", value={"retention": "2 days"}))
    assert (config.maintain.retention.seconds, config.maintain.every.seconds) == (172_800, 3600)
    assert config.sources["event"].max_line_bytes == 16 * 1024 * 1024
    assert config.sources["event"].max_bytes_per_trigger == 1024**3


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"nowhere/pipeline.yaml: no such file; set --conf or MEDALLION_CONF"
    ):
        load({"MEDALLION_CONF": "nowhere"}, tmp_path)


@pytest.mark.parametrize("conf", ["", ".", "pipeline.yaml", "conf", "conf/pipeline.yaml"])
def test_project_locations(tmp_path: Path, conf: str) -> None:
    """pipeline.yaml may be in the project's folder or in conf/, which also has the suites."""
    folder = tmp_path / "conf" if conf.startswith("conf") else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text("sources: {}\n")
    (tmp_path / ".env").write_text("MEDALLION_MASTER=local[3]\n")
    config, _ = load_with_errors({"MEDALLION_CONF": conf}, tmp_path)
    assert config.pipeline_file == folder / "pipeline.yaml"
    assert config.conf_dir == tmp_path / "conf"
    assert (config.layout.root.local, config.master) == (tmp_path / "data/lakehouse", "local[3]")


def test_renamed_conf_folder_has_its_suites(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "conf", tmp_path / "settings")
    config = load({"MEDALLION_CONF": "settings"}, tmp_path)
    assert config.conf_dir == tmp_path / "settings"


def test_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "PROJECT", tmp_path / "site-packages")
    with pytest.raises(ConfigError, match=r"no pipeline.yaml here: set --conf, or run"):
        load({}, tmp_path)


def test_not_yaml(tmp_path: Path) -> None:
    for value, reason in (
        ("[\n", "expected the node content"),
        ("!!timestamp x", "failed to construct timestamp"),
        ("!!map x", "expected a mapping"),
        ("\x07", "special characters are not allowed"),
    ):
        (tmp_path / "pipeline.yaml").write_text(f"sources:\n  event: {value}")
        words = rf"pipeline.yaml line [23]: not readable as YAML \(.*{reason}"
        with pytest.raises(ConfigError, match=words):
            load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    # Python's own errors have no line; 5,000 digits exceed its limit.
    for value in ("!!int x", "!!bool x", "9" * 5000, '"\\UFFFFFFFF"', "[" * 1000, "2018-02-30"):
        (tmp_path / "pipeline.yaml").write_text(f"sources:\n  event: {value}")
        with pytest.raises(ConfigError, match=r"pipeline.yaml: not readable as YAML \("):
            load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)


def test_duplicate_key_is_rejected(tmp_path: Path) -> None:
    twice = "sources:\n  event: {}\n  sensor: {}\n  event: {}\n"
    for text, lines in (
        (twice, "lines 2 and 4: event is"),
        (f"gold: [{{event: 1}}, 2]\n{twice}", "lines 3 and 5: event is"),
        ("gold:\n  a: {b: 1, c: 2,\n    b: 3}\n", "lines 2 and 3: b is"),
    ):
        (tmp_path / "pipeline.yaml").write_text(text)
        with pytest.raises(ConfigError, match=rf"pipeline.yaml {lines} there twice; remove one"):
            load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)


def test_merge_keys_of_yaml(tmp_path: Path) -> None:
    """Also a merged mapping that has a merge key itself."""
    text = "b: {e: &base {x: 1, y: 1}}\na: {d: &own {<<: *base, x: 2}}\nc: {<<: *own, y: 3}\n"
    (tmp_path / "x.yaml").write_text(text)
    base, own = {"x": 1, "y": 1}, {"x": 2, "y": 1}
    assert read_yaml(tmp_path / "x.yaml") == {
        "b": {"e": base},
        "a": {"d": own},
        "c": own | {"y": 3},
    }


def test_pipeline_file_that_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)


@pytest.mark.parametrize("home", ["s3://b-1/a/b", "s3a://b-1/a/b/", "S3://b-1//a/./b//"])
def test_home_is_an_address_in_one_spelling(home: str) -> None:
    root = load({"MEDALLION_HOME": home}, PROJECT).layout.root
    assert (str(root), root.name, str(root.parent)) == ("s3://b-1/a/b", "b", "s3://b-1/a")


def test_folders_in_buckets_have_one_spelling(tmp_path: Path) -> None:
    environ = {"MEDALLION_CONF": str(tmp_path / "conf"), "MEDALLION_HOME": "s3://b-1/lake"}
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    file = tmp_path / "conf/pipeline.yaml"
    document = yaml.safe_load(file.read_text())
    document["sources"]["event"]["folders"] = ["S3a://b-2//in/./x/", "s3://b-1/lake/more", "/mnt"]
    file.write_text(yaml.safe_dump(document))
    folders = load(environ, PROJECT).sources["event"].folders
    assert folders == ("s3://b-2/in/x", "more", "/mnt")
    document["sources"]["event"]["folders"] = ["s3://b-1"]
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="keeps its own files"):
        load(environ, PROJECT)


def test_environment_overrides_dotenv(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    assert load({}, tmp_path).layout.root == StoragePath(tmp_path / "data/lakehouse")
    (tmp_path / ".env").write_text("MEDALLION_HOME=\n")  # as in an unedited .env.example
    assert load({}, tmp_path).layout.root == StoragePath(tmp_path / "data/lakehouse")
    (tmp_path / ".env").write_text("MEDALLION_HOME=from_env_file\nMEDALLION_MASTER=local[1]\n")
    assert load({}, tmp_path).layout.root == StoragePath(tmp_path / "from_env_file")
    from_environment = load({"MEDALLION_HOME": "from_caller"}, tmp_path)
    assert (from_environment.layout.root.local, from_environment.master) == (
        tmp_path / "from_caller",
        "local[1]",
    )
    assert load({"MEDALLION_HOME": "conf/../there"}, tmp_path).layout.root == StoragePath(
        tmp_path / "there"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"MEDALLION_HOEM=/x\n", "MEDALLION_HOEM is not a known key"),
        (b"MEDALLION_CONF=other\n", "only be set in the environment"),
        (b"A=1\n\nthis is not a setting\n", "line 3: must be KEY=value,"),
        (b"MEDALLION_HOME\n", "line 1: must be KEY=value"),
        (b"MEDALLION_HOME=\xff\n", "cannot be read"),
        (b"MEDALLION_HOME=http://bucket\n", "must be a local path, or s3://bucket/prefix"),
        (b"MEDALLION_HOME=s3://Bucket\n", "must be s3://bucket, gs://bucket or abfss"),
        (b"MEDALLION_HOME=s3://bucket/a#b\n", "cannot be stored"),
        (b"MEDALLION_HOME=' a'\n", "MEDALLION_HOME: ' a' starts or ends with a blank"),
        (b"MEDALLION_MASTER=spark\n", "MEDALLION_MASTER: 'spark' must be one of local, local"),
        (b"MEDALLION_MASTER=local[0]\n", "MEDALLION_MASTER: 'local\\[0\\]' must be one of local"),
        (b"MEDALLION_KAFKA_LOGIN=x\n", "MEDALLION_KAFKA_LOGIN is not a known key"),
        (b"MEDALLION_HOME=${HOME}/lake", "MEDALLION_HOME has a \\$"),
    ],
)
def test_invalid_dotenv(tmp_path: Path, content: bytes, message: str) -> None:
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load({}, tmp_path)


def test_dotenv_ignores_other_programs(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    (tmp_path / ".env").write_text("AWS_REGION=here\nexport MEDALLION_HOME='a b'  # ours\n\n")
    assert load({}, tmp_path).layout.root == StoragePath(tmp_path / "a b")


@pytest.mark.parametrize(
    "name", ["lake[1]", "lake\\1", "lake%41", "lake#1", "lake?", "a:b", "a\nb", "a\0b"]
)
def test_home_with_unsupported_characters(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="Delta tables cannot be stored"):
        load({"MEDALLION_HOME": str(tmp_path / name)}, PROJECT)


@pytest.mark.parametrize(
    "master",
    ["local", "local[4]", "local[*]", "local[2,3]", "yarn", "spark://a:7077", " local ", ""],
)
def test_masters(master: str) -> None:
    assert load({"MEDALLION_MASTER": master}, PROJECT).master == (master.strip() or None)


def test_home_expands_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load({"MEDALLION_HOME": "~/lake"}, PROJECT).layout.root == StoragePath(tmp_path / "lake")
    with pytest.raises(ConfigError, match="~nobody-here"):
        load({"MEDALLION_HOME": "~nobody-here/lake"}, PROJECT)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ReaderOptions(",", None)),
        ({"delimiter": ";"}, ReaderOptions(";")),
        ({"sep": "\t"}, ReaderOptions("\t")),
        ({"sep": r"\t", "header": True}, ReaderOptions("\t", header=True)),
        ({"header": False}, ReaderOptions(header=False)),
        ({"delimiter": "tab", "encoding": "Windows-1252"}, ReaderOptions("\t", encoding="cp1252")),
        ({"encoding": "utf-8-sig", "nullValue": ""}, ReaderOptions(null_value="")),
        (
            {"quote": "'", "escape": "\\", "comment": "#", "nullValue": "NULL", "skipRows": 2},
            ReaderOptions(quote="'", escape="\\", comment="#", null_value="NULL", skip_rows=2),
        ),
        ({"quote": "'"}, ReaderOptions(quote="'")),
        ({"quote": ""}, ReaderOptions(quote="")),
    ],
)
def test_csv_options(tmp_path: Path, options: dict[str, Any], expected: ReaderOptions) -> None:
    source = {**LINES, "format": "csv", "schema": {"value": "timestamp"}, "options": options}
    edited(tmp_path, "sources", "more", value=source)
    assert load({}, tmp_path).sources["more"].options == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"quoted": "'"}}, "options.quoted is not a known key .did you mean quote"),
        ({"options": {"delimiter": ";;"}}, "options.delimiter must be one character"),
        ({"options": {"delimiter": "a"}}, "options.delimiter must be one character"),
        ({"options": {"sep": ";", "delimiter": ";"}}, "options.sep is another name of delimiter"),
        ({"options": {"header": "no"}}, "options.header must be true or false"),
        ({"options": {"header": False}, "schema": "infer"}, "options.header is false: give the"),
        ({"options": {"sep": "|", "quote": "|"}}, "options.delimiter is the same character"),
        ({"options": {"quote": "''"}}, "options.quote must be one character"),
        ({"options": {"comment": "x"}}, "options.comment must be one character"),
        ({"options": {"encoding": "utf-9"}}, "options.encoding must be an encoding"),
        ({"options": {"encoding": "base64"}}, "options.encoding must be an encoding"),
        (
            {"options": {"sep": ";"}, "format": "json"},
            "options.sep is not a known key; known here: encoding",
        ),
        ({"options": {}, "format": "orc"}, "options is for the formats csv, json and text"),
        ({"record_path": "a"}, "record_path is for the format json, not csv"),
        ({"record_path": "a..b", "format": "json"}, "record_path must be the name of a field"),
        ({"record_fields": ["a"], "format": "json"}, "record_fields needs record_path"),
        (
            {"record_path": "a", "multi_line": True, "format": "json"},
            "multi_line has no effect with record_path",
        ),
    ],
)
def test_invalid_csv_options(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    source = {**LINES, "format": "csv", "schema": {"value": "timestamp"}, **changes}
    edited(tmp_path, "sources", "more", value=source)
    with pytest.raises(ConfigError, match=words):
        load({}, tmp_path)


def test_durations() -> None:
    strings = ("1 second", "10 minutes", "2 hours", "3 days", "1 week")
    assert [Duration.parse(string).text for string in strings] == [*strings]
    assert [Duration.parse(string).seconds for string in strings] == [1, 600, 7200, 259200, 604800]
    abbreviations = {"500 ms": "500 milliseconds", "4s": "4 seconds", "30 sec": "30 seconds"}
    abbreviations |= {
        "15 min": "15 minutes",
        "1 h": "1 hour",
        "2 months": "62 days",
        "20 years": "7320 days",
    }
    assert {string: Duration.parse(string).text for string in abbreviations} == abbreviations
    assert Duration.parse("500 ms").micros == 500_000
    assert Duration.parse(" 2 hours ").micros == 7_200_000_000
    assert Duration.parse(" 2 hours ").text == str(Duration.parse(" 2 hours ")) == "2 hours"
    assert Duration.parse("100 years").seconds == 36600 * 86400
    too_long = ("36601 days", f"{10**30} seconds")
    for invalid in (
        "",
        "10",
        "-1 hour",
        "0 days",
        "1.5 hours",
        "1 m",
        "1 decade",
        "1\u0663 hours",
        *too_long,
    ):
        with pytest.raises(ValueError, match="is not a duration"):
            Duration.parse(invalid)


@pytest.mark.parametrize(
    ("one", "other", "is_valid"),
    [
        ({}, {}, False),
        ({"pattern": "*.json"}, {}, False),
        ({"pattern": "a*.json"}, {"pattern": "b*.json"}, True),
        ({"pattern": "*.json"}, {"pattern": "event*"}, False),
        ({"pattern": "a*.json"}, {"pattern": "ab*.json"}, False),
        ({"pattern": "day[0-9].json"}, {"pattern": "?ay*1.json"}, False),
        ({"pattern": "*.csv"}, {"pattern": "*.json"}, True),
        ({"pattern": "a.json"}, {"pattern": "a[0-9]*.json"}, True),
        ({"pattern": "a.json"}, {"pattern": "a*"}, False),
        ({"pattern": "log-[a-m]*.json"}, {"pattern": "log-[n-z]*.json"}, False),
        ({"clean_source": "off"}, {}, False),
        ({"clean_source": "off"}, {"clean_source": "off"}, False),
    ],
)
def test_sources_cannot_read_the_same_files(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], is_valid: bool
) -> None:
    """If one source moves a file away, the other may not have read it.

    Rejected files are moved for every clean_source.
    """
    document = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text())
    for name, settings in (("activity", one), ("event", other)):
        document["sources"][name] |= {"folders": [str(tmp_path / "drop")], **settings}
    edited(tmp_path, "sources", value=document["sources"])
    with (
        nullcontext()
        if is_valid
        else pytest.raises(ConfigError, match="may read the same files as")
    ):
        load({}, tmp_path)


def test_folders_are_normalized(
    tmp_path: Path,
) -> None:
    """A file reachable by two paths would be ingested twice."""
    root, link = tmp_path / "lake", tmp_path / "link"
    inbox = root / "inbox"
    link.symlink_to(root)
    document = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text())
    folders = [str(inbox), str(link / "in"), "drop", "../lake/up", str(tmp_path / "elsewhere")]
    document["sources"]["event"]["folders"] = folders
    edited(tmp_path, "sources", value=document["sources"])
    for _ in ("before the first run", "afterwards"):
        for home in (root, link, "link", "lake/", "lake/../lake"):
            config = load({"MEDALLION_HOME": str(home)}, tmp_path)
            paths = [
                config.layout.relative(p) for p in config.sources["event"].folders_in(config.layout)
            ]
            assert paths[1:] == ["inbox", "in", "drop", "up", folders[-1]]
        inbox.mkdir(parents=True, exist_ok=True)


def test_values_by_yaml_1_2(tmp_path: Path) -> None:
    """In YAML 1.1, `off` is false, 010 is 8, and 1:30 is 90."""
    file = tmp_path / "some.yaml"
    file.write_text("[off, no, on, yes, y, true, 'false', falsehood, 010, 1:30, +4, -3, ~]")
    strings = ["off", "no", "on", "yes", "y"]
    assert read_yaml(file) == [*strings, True, "false", "falsehood", 10, "1:30", 4, -3, None]


def test_mapping_cannot_be_false(tmp_path: Path) -> None:
    edited(tmp_path, "maintain", value=False)
    with pytest.raises(ConfigError, match="maintain must be"):
        load({}, tmp_path)


def test_all_errors_are_collected(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "\n".join(
            (
                "sources:",
                "  one: {silver: {at: ts}, event_time: at, keys: [at], late: x, watrmark: 1 hour}",
                "  two: {silver: {at: ts}, event_time: when, keys: [at]}",
                "  three: {silver: {at: ts}, event_time: at, keys: [at]}",
                "gold:",
                "  counts: {source: silver.one, group_by: [], measure: {n: count(*)}}",
                "  sums: {source: silver.three, group_by: [a], measure: {n: count(*)}}",
                "maintain: {every: soon}",
            )
        )
    )
    config, errors = load_with_errors({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    assert (list(config.sources), list(config.gold)) == (["three"], [])
    assert [
        (error.key, f"line {line}:" in str(error))
        for error, line in zip(errors, (2, 2, 3, 7, 8), strict=True)
    ] == [
        ("sources.one.watrmark", True),
        ("sources.one.late", True),
        ("sources.two.event_time", True),
        ("gold.sums.group_by", True),
        ("maintain.every", True),
    ]


def test_table_errors_beside_an_invalid_source(tmp_path: Path) -> None:
    """Tables on silver.event are checked if the source `ev` is invalid; tables on silver.ev are
    not."""
    source = {"silver": {"at": "at"}, "event_time": "at", "keys": ["at"]}
    table = {"measure": {"n": "count(*)"}, "windw": "1 hour"}
    document = {
        "sources": {"ev": {**source, "late": "no"}, "event": source},
        "gold": {"a": {"source": "silver.ev", **table}, "b": {"source": "silver.event", **table}},
    }
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document))
    _, errors = load_with_errors({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    assert [error.key for error in errors] == ["sources.ev.late", "gold.b.windw"]


@pytest.mark.parametrize("path", [".", "conf", "conf/pipeline.yaml", "conf/spark", ".env"])
def test_closed_file_or_folder_is_one_error(tmp_path: Path, path: str) -> None:
    """The error names the first file or folder that this user may not read."""
    project = edited(tmp_path / "project", "gold", value={})
    (project / "conf/spark").mkdir()
    (project / ".env").touch()
    named = {".": "pipeline.yaml", "conf": "conf/pipeline.yaml"}.get(path, path)
    with closed(project / path), pytest.raises(ConfigError) as error:
        load({"MEDALLION_CONF": str(project)}, tmp_path)
    assert str(error.value) == f"{project / named}: cannot be read (Permission denied)."
