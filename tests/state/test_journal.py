"""The journal of unfinished commands, and the documents of the releases before it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.config.loader import load
from medallion.errors import MedallionError, UsageError
from medallion.runtime import refresh
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.planner import plan_run
from medallion.spark import checkpoints
from medallion.state import journal
from medallion.state.journal import (
    Action,
    Backfill,
    Entry,
    ErasedOrigin,
    Erasure,
    Rebuild,
    Replay,
)
from medallion.state.runs import RunRecords
from medallion.storage import files, locks
from medallion.storage.layout import LAYERS, Layout, StagingLayout
from tests.support import PROJECT
from tests.support.home import Home
from tests.support.s3_server import Bucket

SILVER, GOLD = "silver.activity", "gold.device_totals"
BUILT = Rebuild((SILVER, "quarantine.activity"), "q", 1, {"query": SILVER})
ORIGIN = ErasedOrigin("landing/o/a.json", 3, Action.REWRITTEN, 1, "archive/o/a.json")
ROWS = {"bronze.activity": 3, SILVER: 2}
ERASURE = Erasure("a1", SILVER, "name = 'Ada'", True, ROWS, 1, (ORIGIN,), (GOLD,))
ENTRIES: list[Entry[Any]] = [
    Entry("b", Backfill("activity", "/old")),
    Entry(SILVER, ERASURE, ("files",)),
    Entry(GOLD, Rebuild()),
    Entry(SILVER, BUILT, ("tables", "checkpoint")),
    Entry("quarantine.activity", Replay(4, 7, {"query": SILVER}), ("note",)),
]
TYPES = (Backfill, Erasure, Rebuild, Replay)


def read(home: Home) -> list[Entry[Any]]:
    return journal.read_entries(home.config, *TYPES)


def test_write_and_read_entries(home: Home) -> None:
    assert read(home) == []
    for entry in reversed(ENTRIES):
        journal.write_entry(home.layout, entry)
    assert read(home) == ENTRIES
    assert journal.read_entries(home.config, Erasure, Replay) == [ENTRIES[1], ENTRIES[4]]
    journal.write_entry(home.layout, Entry(SILVER, Rebuild()))  # in place of the other
    assert journal.rebuilds(home.config) == {GOLD: ENTRIES[2], SILVER: Entry(SILVER, Rebuild())}


@pytest.mark.parametrize(
    "text",
    ["", '{"arguments": {', "{}", "[]", "7", "\udcff", '{"done": [], "arguments": {"built": 1}}'],
)
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (f"refresh-{SILVER}", "medallion refresh for each silver table"),
        ("replay-quarantine.activity", "from one backup"),
        (f"erase-{SILVER}", "from one backup"),
        ("backfill-b", "request the backfill again"),
        ("drop-silver.activity", "from one backup"),  # of a later release
        ("x", "from one backup"),
    ],
)
def test_damaged_entry_is_refused(home: Home, name: str, remedy: str, text: str) -> None:
    """It must not be ignored: flows would resume with partly replaced tables."""
    (home.layout.journal / f"{name}.json").write_atomic(text.encode(errors="surrogateescape"))
    with pytest.raises(MedallionError, match=rf"{name}\.json is damaged .*{remedy}"):
        read(home)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": [1]},
        {"purge": "yes"},
        {"origins": [{}]},
        {"origins": [{"action": "burnt"}]},
        {"other": 1},
        {"id": None},
    ],
)
def test_damaged_arguments_are_refused(home: Home, change: dict[str, Any]) -> None:
    entry = Entry(SILVER, ERASURE)
    journal.write_entry(home.layout, entry)
    file = entry.file(home.layout)
    document = json.loads(file.read())
    file.write_atomic(json.dumps({**document, "arguments": document["arguments"] | change}))
    with pytest.raises(MedallionError, match="is damaged"):
        read(home)


def test_damaged_entry_of_another_command_is_not_read(home: Home) -> None:
    """`medallion run bronze` works while a silver table cannot be rebuilt."""
    (home.layout.journal / f"refresh-{SILVER}.json").write_atomic("{")
    with journal.lock_layers(home.config, ["bronze"], "run"):
        pass


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("kill", range(7))
def test_run_steps_killed_before_each_write(
    home: Home, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    """Only the step that was not marked as done is repeated."""
    entry, ran, left = Entry(GOLD, Rebuild()), list[str](), [kill]
    journal.write_entry(home.layout, entry)
    write = files.write_atomic

    def run(name: str) -> None:
        tick()
        ran.append(name)

    steps = [(name, partial(run, name)) for name in "abc"]

    def tick() -> None:
        left[0] -= 1
        if left[0] == -1:
            raise Killed

    def write_or_die(file: Path, text: str) -> None:
        tick()
        write(file, text)

    monkeypatch.setattr(files, "write_atomic", write_or_die)
    for current in (entry, None):
        for each in [current] if current else journal.read_entries(home.config, Rebuild):
            try:
                journal.run_steps(home.layout, each, steps)
            except Killed:
                assert journal.rebuilds(home.config)
    assert read(home) == []
    # Step and mark in turn: a kill before the mark of a step repeats the step.
    expected = {1: ["a", "a", "b", "c"], 3: ["a", "b", "b", "c"], 5: ["a", "b", "c", "c"]}
    assert ran == expected.get(kill, ["a", "b", "c"])


def test_unfinished_erasure_blocks_other_commands(home: Home) -> None:
    journal.write_entry(home.layout, Entry(SILVER, ERASURE))
    message = (
        rf"^An unfinished erase of {SILVER}: complete it with medallion erase, without arguments\.$"
    )
    with (
        pytest.raises(UsageError, match=message),
        journal.lock_layers(home.config, ["gold"], "nightly"),
    ):
        pass
    with journal.lock_layers(home.config, ["gold"], "erase"):
        pass


def test_unfinished_commands_without_running_ones(home: Home) -> None:
    for entry in ENTRIES:
        journal.write_entry(home.layout, entry)
    assert journal.unfinished_commands(home.config) == ENTRIES[1:]
    for layer, running in (("bronze", 1), ("gold", 2)):
        with locks.lock_layers(home.layout, [layer], "test"):
            left = [entry for entry in ENTRIES[1:] if entry != ENTRIES[running]]
            assert journal.unfinished_commands(home.config) == left
    with locks.lock_layers(home.layout, ["silver"], "test"):
        assert journal.unfinished_commands(home.config) == ENTRIES[1:3]
    assert plan_run(home.config, RunRecords(home.layout)).unfinished == tuple(ENTRIES[1:])


def test_remove_abandoned_tables(home: Home) -> None:
    staging = StagingLayout(home.layout.root, BUILT.built)
    table, checkpoint = staging.table(SILVER), staging.checkpoint(SILVER)
    assert checkpoint == home.layout.checkpoint(SILVER, ahead=1)
    for directory in (table, checkpoint):
        directory.create_directory()
    journal.write_entry(home.layout, Entry(SILVER, BUILT))
    journal.remove_abandoned_tables(home.config)
    assert table.is_stored()
    assert checkpoint.is_stored()
    journal.require_rebuilds(home.config)
    assert read(home) == [Entry(SILVER, Rebuild())]
    journal.remove_abandoned_tables(home.config)
    assert not home.layout.staging.is_stored()
    assert not checkpoint.is_stored()


def test_damaged_journal_does_not_block_bronze(home: Home) -> None:
    (home.layout.journal / f"refresh-{SILVER}.json").write_atomic("{")
    pipeline: Any = SimpleNamespace(config=home.config, runs=RunRecords(home.layout))
    bronze: Any = SimpleNamespace(name="bronze.activity", upstream=(), is_current=False)
    silver: Any = SimpleNamespace(name=SILVER, upstream=("bronze.activity",))
    Pipeline._refuse_outdated(pipeline, bronze)
    with pytest.raises(MedallionError, match="is damaged"):
        Pipeline._refuse_outdated(pipeline, silver)


def test_rebuild_pending_after_a_failed_swap(home: Home) -> None:
    """The rebuild is repeated, fails, and its staged table is gone.

    A holder of gold's lock alone rebuilds neither the table nor its downstream.
    """
    config = replace(home.config, gold={"device_totals": load({}, PROJECT).gold["device_totals"]})
    for entry in (Entry(GOLD, Rebuild()), Entry(SILVER, BUILT)):
        journal.write_entry(home.layout, entry)
    # Building them fails at once: the flows have no attribute for the tables they write.
    silver = {"name": SILVER, "upstream": ("bronze.activity",)}
    gold = {"name": GOLD, "upstream": (SILVER,)}
    flows = {flow["name"]: SimpleNamespace(**flow) for flow in (silver, gold)}
    pipeline: Any = SimpleNamespace(
        config=config, report=print, flow=flows.__getitem__, blocking_gates=lambda _: {}
    )
    ((_, error),) = refresh.rebuild_pending(pipeline, "gold")
    assert str(error) == (f"{GOLD} waits for {SILVER}, whose refresh is unfinished.")
    ((_, error),) = refresh.rebuild_pending(pipeline, "silver")
    assert f"{SILVER} cannot be rebuilt" in str(error)
    (waiting, failed) = read(home)
    assert waiting == Entry(GOLD, Rebuild())
    assert f"unfinished refresh of {SILVER}: {SILVER} cannot be rebuilt" in failed.title
    assert failed.remedy == (
        "correct what the message names, then complete it with medallion nightly"
    )


def test_rebuild_pending_of_unconfigured_tables(home: Home) -> None:
    for entry in (Entry("silver.gone", BUILT), Entry("gold.gone", Rebuild())):
        journal.write_entry(home.layout, entry)
    pipeline: Any = SimpleNamespace(config=home.config, report=print)
    for layer in ("silver", "gold"):
        assert refresh.rebuild_pending(pipeline, layer) == []
    assert read(home) == []


def write_older_documents(home: Home) -> None:
    """Write what the release before the journal did, as copied from one of its runs."""
    root, row = home.layout.root, {"query": SILVER}
    built = [SILVER, "quarantine.activity"]
    refresh = {
        "table": SILVER,
        "built": built,
        "query": "q",
        "batch": 1,
        "row": row,
        "then": [GOLD],
    }
    (root / "_refresh/plan.json").write_atomic(json.dumps(refresh))
    origin = {"path": "landing/o/a.json", "rows": 3, "action": "rewritten", "version": 1}
    erasure = {
        "id": "a1",
        "table": SILVER,
        "condition": "name = 'Ada'",
        "purge": True,
        "started_at": 9,
        "rows": ROWS,
        "undecided": 1,
        "origins": [{**origin, "location": "archive/o/a.json"}],
        "rebuilt": [GOLD],
        "done": ["files"],
    }
    (root / "_erase/plan.json").write_atomic(json.dumps(erasure))
    (root / "_requests/activity/b.json").write_atomic('{"path": "/old"}')
    (root / "_requests/activity/.c.json.tmp").write_atomic("{")
    documents = {
        "definition": {"a": 1},
        "replay": {"quarantine_version": 4, "until": 7, "row": row},
    }
    file = home.layout.checkpoint(SILVER) / "medallion.json"
    file.write_atomic(json.dumps(documents))


OLDER = [
    ENTRIES[0],
    ENTRIES[1],
    ENTRIES[2],
    replace(ENTRIES[3], done=()),
    replace(ENTRIES[4], done=()),
]


def test_older_documents_are_read(home: Home) -> None:
    """`status` and `audit` read them without a lock, and write nothing."""
    write_older_documents(home)
    assert sorted(read(home), key=lambda entry: entry.file(home.layout)) == OLDER
    assert journal.read_entries(home.config, Replay) == [OLDER[4]]
    assert not home.layout.journal.is_stored()


def test_older_documents_converted_at_each_kill(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.write_atomic
    for number in range(7):  # five entries, the checkpoint's documents, and the format
        with monkeypatch.context() as patch:
            left = [number]

            def write_or_die(file: Path, text: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == -1:
                    raise Killed
                write(file, text)

            write_older_documents(other := Home(tmp_path / str(number)))
            patch.setattr(files, "write_atomic", write_or_die)
            with pytest.raises(Killed), journal.lock_layers(other.config, LAYERS, "erase"):
                pass
        with journal.lock_layers(other.config, LAYERS, "erase"):
            assert read(other) == OLDER
        root, checkpoint = other.layout.root, other.layout.checkpoint(SILVER)
        for name in ("_refresh/plan.json", "_erase", "_requests/activity/b.json"):
            assert not (root / name).is_stored()
        assert checkpoints.read_document(checkpoint, "replay") is None
        assert checkpoints.read_document(checkpoint, "definition") == {"a": 1}


@pytest.mark.parametrize("name", ["_refresh/plan.json", "_erase/plan.json", "_requests/a/b.json"])
@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"table": "silver.a", "built": ["x"]}'])
def test_damaged_older_documents_are_refused(home: Home, name: str, text: str) -> None:
    (home.layout.root / name).write_atomic(text)
    with pytest.raises(MedallionError, match=rf"{name} is damaged"):
        read(home)
    with (
        pytest.raises(MedallionError, match="is damaged"),
        journal.lock_layers(home.config, LAYERS, "nightly"),
    ):
        pass
    assert (home.layout.root / name).is_stored()


def test_older_refresh_that_has_not_built_a_table(home: Home) -> None:
    document = {"table": SILVER, "built": [], "query": "", "batch": -1, "row": {}}
    file = home.layout.root / "_refresh/plan.json"
    file.write_atomic(json.dumps({**document, "then": [SILVER, GOLD]}))
    assert journal.rebuilds(home.config) == {n: Entry(n, Rebuild()) for n in (SILVER, GOLD)}


def test_new_root_in_a_bucket_is_not_within_another(bucket: Bucket) -> None:
    project = load({}, PROJECT)

    def lock(key: str) -> None:
        config = replace(project, layout=Layout(bucket.url(key)))
        with journal.lock_layers(config, ["bronze"], "run bronze", lambda _: None):
            pass

    lock("team/lake")
    lock("team/other")
    for key, other in (("team/lake/landing/x", "team/lake"), ("team", "team/lake")):
        with pytest.raises(UsageError, match=f"{other} is one, and they would read each other's"):
            lock(key)
        assert not any(name.startswith(f"{key}/_") for name in bucket.keys(key))
    bucket.write("team/_format.json", bucket.read("team/lake/_format.json"))
    lock("team/lake")  # as before
