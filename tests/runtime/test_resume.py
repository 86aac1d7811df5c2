"""Swaps that end at each of their writes; delta-rs writes the tables in place of Spark."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from medallion.runtime.resume import resume_commands
from medallion.spark import checkpoints
from medallion.state import journal
from medallion.state.journal import Entry, Rebuild, Replay
from medallion.state.runs import RunRecords, run_row
from medallion.storage import delta_tables, records
from medallion.storage.layout import LAYERS, StagingLayout
from medallion.storage.paths import StoragePath
from tests.support.home import Home
from tests.support.lakehouse import rows_of

SILVER, QUARANTINE = "silver.activity", "quarantine.activity"
REBUILD = Rebuild(
    (SILVER, QUARANTINE),
    query="new",
    batch=3,
    row=run_row("query", SILVER, "refreshed", 7) | {"run_id": "r", "rows_in": 3},
)
NEXT = Entry("gold.sums", Rebuild())
OLD = {SILVER: pa.table({"id": [1]}), QUARANTINE: pa.table({"id": [9]})}
NEW = {SILVER: pa.table({"id": [1, 2], "n": [3, 4]}), QUARANTINE: pa.table({"id": [8]})}


@dataclass
class Frame:
    """Stands for a DataFrame of a Delta table, and for its writer."""

    table: DeltaTable

    @property
    def schema(self) -> Any:
        frame = self.table.schema()
        return type("Schema", (), {"json": lambda _: frame.to_json()})()

    @property
    def write(self) -> Frame:
        self.given = dict[str, str]()
        return self

    def format(self, name: str) -> Frame:
        assert name == "delta"
        return self

    def mode(self, mode: str) -> Frame:
        assert mode == "overwrite"
        return self

    def option(self, name: str, value: str) -> Frame:
        return self.options(**{name: value})

    def options(self, **options: str) -> Frame:
        self.given |= options
        return self

    def save(self, path: str) -> None:
        """Write as Delta does: once for each version of an application."""
        application, version = self.given.get("txnAppId"), int(self.given.get("txnVersion", -1))
        written = DeltaTable(path).transaction_version(application) if application else None
        if written is not None and written >= version:
            return
        once = [Transaction(application, version)] if application else []
        schema: Literal["overwrite"] | None = None
        if self.given.get("overwriteSchema") == "true":
            schema = "overwrite"
        write_deltalake(
            path,
            self.table.to_pyarrow_table(),
            mode="overwrite",
            schema_mode=schema,
            commit_properties=CommitProperties(app_transactions=once),
        )


class Spark:
    """Stands for the session."""

    @property
    def read(self) -> Spark:
        return self

    def format(self, _: str) -> Spark:
        return self

    def options(self, **_: object) -> Spark:
        return self

    def load(self, path: str) -> Frame:
        return Frame(DeltaTable(path))


@pytest.fixture
def built(home: Home) -> Home:
    """Return a lakehouse whose new tables and checkpoint are built."""
    staged = StagingLayout(home.layout.root, REBUILD.built)
    for layout, tables in ((home.layout, OLD), (staged, NEW)):
        for name, rows in tables.items():
            layout.table(name).create_directory()
            write_deltalake(str(layout.table(name)), rows)
    (home.layout.checkpoint(SILVER) / "metadata").write_atomic('{"id": "old"}')
    (staged.checkpoint(SILVER) / "metadata").write_atomic('{"id": "new"}')
    for entry in (Entry(SILVER, REBUILD), NEXT):
        journal.write_entry(home.layout, entry)
    return home


def resume(home: Home, *layers: str) -> list[str]:
    """Resume the swap as the next process does, and return its messages."""
    messages, runs = list[str](), RunRecords(home.layout, run_id="later", command="nightly")
    known: dict[str, Any] = {"spark": Spark(), "runs": runs, "report": messages.append}
    pipeline: Any = SimpleNamespace(config=home.config, **known)
    resume_commands(pipeline, layers or LAYERS)
    return messages


def overwrites(home: Home, table: str) -> int:
    history = DeltaTable(home.layout.table(table)).history()
    return sum(
        commit.get("operationParameters", {}).get("mode") == "Overwrite" for commit in history
    )


def check_swapped(home: Home) -> None:
    layout = home.layout
    assert rows_of(layout.table(SILVER).local, "id", "n") == [(1, 3), (2, 4)]
    assert rows_of(layout.table(QUARANTINE).local, "id") == [(8,)]
    for name in REBUILD.built:
        properties = home.config.properties(name)
        assert properties.items() <= DeltaTable(layout.table(name)).metadata().configuration.items()
    # A second overwrite would publish all rows again.
    assert (overwrites(home, SILVER), overwrites(home, QUARANTINE)) == (1, 1)
    assert checkpoints.query_id(layout.checkpoint(SILVER)) == "new"
    assert [path.name for path in layout.checkpoint(SILVER).parent.children()] == ["1"]
    versions = [DeltaTable(layout.table(name)).version() for name in REBUILD.built]
    recorded = rows_of(
        layout.table("ops.runs").local, "run_id", "rows_in", "table_version", "quarantine_version"
    )
    assert recorded == [("r", 3, *versions)]
    assert journal.read_entries(home.config, Rebuild) == [NEXT]
    assert not layout.staging.is_stored()


def test_resume_swap(built: Home) -> None:
    assert resume(built) == ["refresh   silver.activity: resumes"]
    check_swapped(built)
    assert resume(built) == []


def test_resume_swap_of_an_older_release(built: Home) -> None:
    """It was interrupted before the update, and had one document for all tables."""
    built.layout.journal.delete_prefix()
    document = {"table": SILVER, **asdict(REBUILD), "then": [NEXT.subject]}
    (built.layout.root / "_refresh/plan.json").write_atomic(json.dumps(document))
    with journal.lock_layers(built.config, LAYERS, "nightly"):
        assert resume(built) == ["refresh   silver.activity: resumes"]
    check_swapped(built)


class Killed(BaseException):
    """Stands for the end of the process."""


WRITES: tuple[tuple[Any, str], ...] = (
    (StoragePath, "write_atomic"),
    (StoragePath, "delete"),
    (StoragePath, "delete_prefix"),
    (delta_tables, "create_table"),
    (delta_tables, "set_missing_properties"),
    (records, "append_records"),
    (Frame, "save"),
)


def kill(home: Home, monkeypatch: pytest.MonkeyPatch, number: int) -> bool:
    """Resume until the process dies before its n-th write; return whether it died."""
    left = [number]

    def killing(write: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return write(*args, **kwargs)

        return wrapper

    with monkeypatch.context() as patch:
        for owner, name in WRITES:
            patch.setattr(owner, name, killing(getattr(owner, name)))
        try:
            resume(home)
        except Killed:
            return True
    return False


def test_swap_killed_before_each_write(
    built: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process completes it, even if it is also killed at its next write."""
    for number in count():
        home = Home(tmp_path / str(number))
        shutil.copytree(built.layout.root.local, home.layout.root.local)
        kills = [kill(home, monkeypatch, n) for n in (number, number + 1)]
        for name in REBUILD.built:  # readers see old rows or new ones
            ids = [id for (id,) in rows_of(home.layout.table(name).local, "id")]
            assert ids in [tables[name]["id"].to_pylist() for tables in (OLD, NEW)]
        resume(home)
        check_swapped(home)
        if not any(kills):
            break
    # Two tables with their properties, the checkpoint, the record, three marks, and removals.
    assert number >= 13


@pytest.mark.parametrize("missing", [SILVER, QUARANTINE, "checkpoint"])
def test_swap_without_a_staged_part(built: Home, missing: str) -> None:
    """A user deleted it to free disk space: the entry stays, so that it is built again."""
    staged = StagingLayout(built.layout.root, REBUILD.built)
    part = staged.checkpoint(SILVER) if missing == "checkpoint" else staged.table(missing)
    part.delete_prefix()
    first, second = resume(built)
    assert first == "refresh   silver.activity: resumes"
    assert second == f"refresh   silver.activity: {part} is missing, which the refresh had built"
    entries = journal.rebuilds(built.config)
    assert entries.keys() == {SILVER, "gold.sums"}
    assert entries[SILVER].arguments == REBUILD
    assert not built.layout.table("ops.runs").is_stored()


def test_swap_of_another_layer_is_left_alone(built: Home) -> None:
    assert resume(built, "gold") == []
    assert journal.rebuilds(built.config)[SILVER] == Entry(SILVER, REBUILD)
    assert rows_of(built.layout.table(SILVER).local, "id") == [(1,)]


def test_resume_leaves_replays_of_unconfigured_sources(home: Home) -> None:
    entry = Entry("quarantine.gone", Replay(1, 2, {}))
    journal.write_entry(home.layout, entry)
    assert resume(home) == []
    assert journal.read_entries(home.config, Replay) == [entry]


def test_swap_of_a_query_without_batches(built: Home) -> None:
    """Its table is empty, and no batch can be repeated."""
    entry = Entry(SILVER, replace(REBUILD, built=(SILVER,), batch=-1))
    journal.write_entry(built.layout, entry)
    resume(built)
    table = DeltaTable(built.layout.table(SILVER))
    assert table.transaction_version("new") is None
    assert journal.read_entries(built.config, Rebuild) == [NEXT]
    assert not built.layout.staging.is_stored()
    (record,) = rows_of(built.layout.table("ops.runs").local, "table_version", "quarantine_version")
    assert record == (table.version(), None)
