"""The data that `medallion files` and `medallion schema` show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from medallion.cli import render_tables
from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.ingest.schema import registry
from medallion.inspect import catalog, ledger_files
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage import records
from medallion.storage.table_specs import TableSpec
from tests.support.lakehouse import Lakehouse

AT = 1_700_000_000_250_000  # 2023-11-14T22:13:20.25Z
FILES = [
    Entry(
        "activity", "landing/activity/a.json", 1, 5, AT, AT, State.INGESTED, None, 0, AT, 3, 1, 2
    ),
    Entry("activity", "landing/activity/sub/a.json", 1, 5, AT, AT + 1),
    Entry(
        "event",
        "landing/event/a.json",
        1,
        5,
        AT,
        AT + 2,
        State.REJECTED,
        "torn",
        moved_to="r/a",
        reason_code="unreadable",
    ),
    Entry("event", "/else/where/[b].json", 2, 5, AT, AT + 3, State.ARCHIVED, None, 1, AT, 1234567),
]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = Lakehouse(None, tmp_path / "lakehouse").config
    for source in ("activity", "event"):
        Ledger(config.layout, source).write(entry for entry in FILES if entry.source == source)
    return config


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*", [0, 1, 2, 3]),
        ("a.json", [0, 1, 2]),
        ("landing/activity/a.json", [0]),
        ("activity/*", [0, 1]),
        ("sub/*", [1]),
        ("*.csv", []),
        ("A.json", []),
        ("[ab].json", [0, 1, 2]),
        ("[[]b].json", [3]),
        ("/else/*", [3]),
        ("r/*", [2]),  # the current path
        ("son", []),
        ("", []),
    ],
)
def test_files_by_pattern(config: Config, pattern: str, matches: list[int]) -> None:
    assert ledger_files.find_files(config, pattern, None, None) == [
        FILES[index] for index in matches
    ]


def test_files_by_another_path_to_the_root(config: Config, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(config.layout.root)
    for root in ("lakehouse", "link"):
        pattern = str(tmp_path / root / "landing/activity/*")
        assert ledger_files.find_files(config, pattern, None, None) == FILES[:2]


@pytest.mark.parametrize(
    ("source", "state", "matches"),
    [
        (None, None, [0, 1, 2, 3]),
        ("activity", None, [0, 1]),
        ("event", None, [2, 3]),
        (None, "pending", [1]),
        ("event", "pending", []),
        ("event", "rejected", [2]),
        ("activity", "vanished", []),
    ],
)
def test_files_by_source_and_state(
    config: Config, source: str | None, state: str | None, matches: list[int]
) -> None:
    assert ledger_files.find_files(config, "*", source, state) == [
        FILES[index] for index in matches
    ]


@pytest.mark.parametrize("source", ["", "nothing", "Activity", "x' or 'a'='a"])
def test_unknown_source(config: Config, source: str) -> None:
    for query in (
        lambda: ledger_files.find_files(config, "*", source, None),
        lambda: config.source(source),
    ):
        with pytest.raises(UsageError, match="activity, event"):
            query()


@pytest.mark.parametrize("state", ["", "done", "Pending", "pending' or 'a'='a"])
def test_unknown_state(config: Config, state: str) -> None:
    with pytest.raises(UsageError) as error:
        ledger_files.find_files(config, "*", None, state)
    assert all(known in str(error.value) for known in State)


def test_files_before_the_first_file(tmp_path: Path) -> None:
    config = Lakehouse(None, tmp_path / "missing").config
    assert ledger_files.find_files(config, "*", "event", "pending") == []
    assert render_tables.files_json([]) == {"files": []}
    assert render_tables.files_text([]).endswith("(0 files)")
    assert not config.layout.root.local.exists()


def test_files_as_json_have_every_field_and_times_in_utc() -> None:
    (row, _, _, _) = render_tables.files_json(FILES)["files"]
    assert set(row) == set(Entry.__dataclass_fields__)
    assert row["committed_at"] == row["modified_at"] == "2023-11-14T22:13:20.250000Z"
    assert (row["rows"], row["corrupt_rows"], row["rescued_rows"]) == (3, 1, 2)
    (_, row, _, _) = render_tables.files_json(FILES)["files"]
    assert (row["committed_at"], row["rows"], row["why"]) == (None, None, None)


def test_files_as_text_are_one_line_each(config: Config) -> None:
    lines = render_tables.files_text(FILES).splitlines()
    assert len(lines) == 2 + len(FILES) + 1
    assert lines[-1] == "(4 files)"
    assert "torn" in lines[4]
    assert render_tables.files_text(FILES[:1]).endswith("(1 file)")
    with_line_break = replace(FILES[0], path="landing/activity/a\nb.json")
    assert len(render_tables.files_text([with_line_break]).splitlines()) == 4


def schema(config: Config, source: str) -> list[registry.SchemaVersion]:
    return registry.read_versions(config.layout.schemas(source))


def test_schema_before_its_first_run(config: Config) -> None:
    assert schema(config, "event") == []
    assert "no version yet" in render_tables.schema_text([])
    assert render_tables.schema_json([]) == {"versions": []}


def test_schema_text_shows_differences(config: Config) -> None:
    folder = config.layout.schemas("event")
    registry.add_version(folder, {"id": "string", "n": "long"}, "declared in the configuration")
    registry.add_version(folder, {"battery": "double"}, "new fields in batch 3")
    versions = schema(config, "event")
    first, *columns = render_tables.schema_text(versions).splitlines()
    assert first.startswith("version 1")
    assert first.endswith("declared in the configuration")
    assert columns[:2] == ["  + id string", "  + n long"]
    assert columns[2].startswith("version 2")
    assert columns[3:] == ["  + battery double"]
    document = render_tables.schema_json(versions)["versions"]
    assert [entry["version"] for entry in document] == [1, 2]
    assert document[1]["columns"] == {"id": "string", "n": "long", "battery": "double"}


def test_first_rows_are_in_the_order_of_groups(config: Config) -> None:
    """The groups of a table with windows start with the window columns."""
    time = {"window_start": "timestamp", "window_end": "timestamp"}
    spec = TableSpec({**time, "action": "string", "total_events": "long"})
    rows = [
        {"window_start": start, "window_end": start + 1, "action": action, "total_events": 1}
        for start, action in ((1, "b"), (1, "c"), (1, "a"), (0, "z"))
    ]
    records.append_records(config.layout.table("gold.action_counts"), spec, rows)
    (table,) = (table_ for table_ in catalog.first_rows(config, 3) if table_.rows)
    assert (table.table, table.rows) == ("gold.action_counts", 4)
    assert [row[2] for row in table.first.rows] == ["z", "a", "b"]
