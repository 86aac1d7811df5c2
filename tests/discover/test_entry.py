"""Entries that `medallion add` writes to pipeline.yaml."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from medallion.cli import main
from medallion.config.loader import load
from medallion.discover import entry, files
from medallion.discover.columns import Column, TimeFormat
from medallion.discover.entry import NewSource
from medallion.discover.files import copy_to_landing, input_files
from medallion.discover.json_rows import Description
from medallion.errors import UsageError
from medallion.storage.paths import StoragePath
from tests.support.permissions import closed

PIPELINE = """# My pipeline.
sources:
    event: {silver: {at: ts}, event_time: at, keys: [at]} # events

# Counts.
gold:
    # by hour
    event_by_hour: {source: silver.event, group_by: [at], measure: {n: count(*)}}
"""


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf/pipeline.yaml"
    file.write_text(PIPELINE)
    monkeypatch.setenv("MEDALLION_CONF", str(tmp_path / "conf"))
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path / "lake"))
    (tmp_path / "a.json").write_text('{"id": 1, "at": "2026-05-01T10:00:00Z"}\n')
    return file


def test_add_entries_keeps_all_lines() -> None:
    text = entry.add_entries(PIPELINE, {"sources": ["a:", "  b: 1"], "gold": ["c:", "  d: 1"]})
    lines = PIPELINE.splitlines()
    assert text.splitlines() == [
        *lines[:3], "", "    a:", "      b: 1", *lines[3:], "", "    c:", "      d: 1"
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "sources: {}\n", "# a\nsources:\n", "maintain: {}\n"])
def test_add_entries_to_an_empty_mapping(text: str) -> None:
    added = entry.add_entries(text, {"sources": ["a:", "  b: 1"]})
    assert added.endswith("\nsources:\n\n  a:\n    b: 1\n")
    assert added.count("sources:") == 1


def test_add_entries_rejects_a_mapping_in_braces() -> None:
    with pytest.raises(UsageError, match="is in braces"):
        entry.add_entries("sources: {a: {b: 1}}\n", {"sources": ["c:", "  d: 1"]})


def test_rows_without_a_key(conf: Path) -> None:
    """The digest of all fields is the key, so only equal rows are duplicates."""
    csv, lines = conf.parents[1] / "b.csv", conf.parents[1] / "b.json"
    csv.write_text("shop,The amount,time\nnorth,1.5,2026-05-01T10:00:00Z\n")
    lines.write_text('{"shop": {"name": "north", "zip": 1}, "time": "2026-05-01T10:00:00Z"}\n')
    for name, file in (("csv", csv), ("lines", lines)):
        assert main.main(["add", name, str(file)]) == 0
        source = load().sources[name]
        assert source.keys == ("row_digest", "time")
        fields = "shop, time" if name == "lines" else "shop, The_amount, time"
        assert source.silver["row_digest"] == f"sha2(to_json(struct({fields})), 256)"
    assert load().sources["csv"].hints == {"The amount": "double"}


def test_rows_without_a_key_and_a_time(conf: Path) -> None:
    """Rows of a batch share the ingestion time, so it is not a key."""
    (conf.parents[1] / "a.log").write_text("GET /health\nGET /health\n")
    assert main.main(["add", "log", str(conf.parents[1] / "a.log")]) == 0
    source = load().sources["log"]
    assert source.keys == ("no_key", "ingested_at")
    assert source.silver["no_key"] == "cast(null as string)"


def test_add_writes_the_entry_and_lands(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = conf.parents[1]
    command = ["add", "new", str(folder / "a.json")]
    assert main.main([*command, "--dry-run", "--land"]) == 0
    assert "    keys: [id, at] # id: unique in 1 row" in capsys.readouterr().out
    assert conf.read_text() == PIPELINE
    assert not (folder / "lake").exists()
    assert main.main([*command, "--land", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["landed"] == [str(folder / "lake/landing/new/a.json")]
    assert "event_time: at # ISO 8601" in document["entries"]["sources"]
    assert (folder / "lake/landing/new/a.json").read_bytes() == (folder / "a.json").read_bytes()
    assert load().sources["new"].keys == ("id", "at")
    assert main.main(command) == 2
    assert "already has a source new" in capsys.readouterr().err
    assert main.main(["add", "New", *command[2:]]) == 2


def test_add_writes_the_first_source(conf: Path) -> None:
    conf.write_text("sources: {}\n")
    assert main.main(["add", "new", str(conf.parents[1] / "a.json")]) == 0
    assert list(load().sources) == ["new"]


def test_add_exits_1_for_a_choice(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = conf.parents[1] / "b.csv"
    file.write_text("1,2026-05-01 10:00:00,00123\n2,2026-05-01 10:00:01,00456\n")
    assert main.main(["add", "new", str(file)]) == 1
    assert "choose: the names of the columns" in capsys.readouterr().err
    assert "# choose: the names of the columns" in conf.read_text()
    source = load().sources["new"]
    assert source.options.header is False
    assert source.schema == {
        "column_1": "long",
        "column_2": "timestamp",
        "column_3": "string",  # a code, whose leading zeros a number would lose
    }


def test_fields_named_like_technical_columns(conf: Path) -> None:
    file = conf.parents[1] / "a.json"
    file.write_text('{"id": 1, "at": "2026-05-01", "_source_file": "x", "_ingested_at": "y"}\n')
    assert main.main(["add", "new", str(file)]) == 0
    assert list(load().sources["new"].silver) == ["id", "at"]
    assert "columns of these names: _ingested_at, _source_file" in conf.read_text()


def test_two_schemas_are_a_choice(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = conf.parents[1] / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("customer_id,name\n1,x\n")
    (folder / "b.csv").write_text("order_id,customer_id,amount\n1,1,1.5\n")
    (folder / "empty.csv").touch()
    assert main.main(["add", "new", str(folder), "--land"]) == 1
    assert "two: a.csv and b.csv have other fields" in capsys.readouterr().err
    for text in ("", "\n", "id,at\n"):
        (folder / "empty.csv").write_text(text)
        with pytest.raises(UsageError, match=r"empty\.csv: no rows"):
            entry.inspect_files("new", input_files([str(folder / "empty.csv")]))


def test_source_without_a_time_uses_the_ingestion_time(conf: Path) -> None:
    file = conf.parents[1] / "a.json"
    file.write_text('{"id": 1}\n{"id": 2}\n')
    assert main.main(["add", "new", str(file)]) == 0
    source = load().sources["new"]
    assert (source.event_time, source.silver["ingested_at"]) == ("ingested_at", "_ingested_at")
    assert "# no event time found: the time of ingestion" in conf.read_text()


def test_partitions_become_columns(conf: Path) -> None:
    folder = conf.parents[1] / "in"
    for day in (1, 2):
        file = folder / f"date=2026-05-0{day}/a.json"
        file.parent.mkdir(parents=True)
        file.write_text(f'{{"id": {day}}}\n')
    (folder / "_SUCCESS").touch()
    (folder / "b.tmp").touch()
    assert main.main(["add", "new", str(folder), "--land"]) == 0
    source = load().sources["new"]
    assert (source.partition_columns, source.event_time) == (("date",), "date")
    landed = load().layout.landing("new").local.rglob("*.json")
    assert sorted(file.parent.name for file in landed) == ["date=2026-05-01", "date=2026-05-02"]


def test_closed_folder_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    with closed(tmp_path / "closed"), pytest.raises(PermissionError):
        input_files([str(tmp_path)])


def test_input_files(tmp_path: Path) -> None:
    for name in ("a.json", "b.csv", ".hidden.json"):
        (tmp_path / name).write_text("{}")
    names = [file.path.name for file in input_files([str(tmp_path / "*.json"), str(tmp_path)])]
    assert names == ["a.json", "b.csv"]
    with pytest.raises(UsageError, match=r"c\.json: no such file"):
        input_files([str(tmp_path / "c.json")])


def test_files_of_two_formats_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    (tmp_path / "b.csv").write_text("a;b\nx;y\n")
    with pytest.raises(UsageError, match="add them as two sources"):
        entry.inspect_files("new", files.input_files([str(tmp_path)]))


def test_landed_copies_get_a_compression_suffix(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(gzip.compress(b"{}"))
    inputs = input_files([str(tmp_path / "a.json")])
    assert copy_to_landing(inputs, StoragePath(tmp_path / "lake")) == [
        StoragePath(tmp_path / "lake/a.json.gz")
    ]
    with pytest.raises(UsageError, match="already exists"):
        copy_to_landing(inputs, StoragePath(tmp_path / "lake"))


def test_landed_copies_name_collision(tmp_path: Path) -> None:
    paths = [tmp_path / "a/x.csv", tmp_path / "b/x.csv"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("id,at\n1,2026-05-01\n")
    with pytest.raises(UsageError, match="the same name"):
        copy_to_landing(input_files(map(str, paths)), StoragePath(tmp_path / "lake"))
    assert not (tmp_path / "lake").exists()


def test_yaml_lines_are_read_as_they_were() -> None:
    """Words that YAML takes for booleans or null are quoted, and others are not."""
    options = {
        "delimiter": ";",
        "nullValue": "No",
        "quote": "",
        "encoding": "latin-1",
        "skipRows": 2,
    }
    settings = {"format": "csv", "options": options, "keys": ["id", "on"], "hints": {}}
    lines = entry._yaml_lines(settings)
    assert yaml.safe_load("\n".join(lines)) == {k: v for k, v in settings.items() if v}
    assert {"format: csv", 'keys: [id, "on"]'} <= {*lines}


@pytest.mark.parametrize(("days", "unit"), [(0, "hour"), (14, "hour"), (15, "day")])
def test_window_of_the_gold_entry_follows_the_times(days: int, unit: str) -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)
    times = [start + timedelta(days=day) for day in (0, days, 0)]
    at = Column(("at",), "at", "timestamp", list(times))
    description = Description("json", [])
    source = NewSource("tides", [], description, [at], [], [(at, TimeFormat("", "", times))], [])
    lines = entry.gold_entry(source, ())
    assert (lines[0], "  window: 1 " + unit in lines) == (f"tides_by_{unit}:", True)
