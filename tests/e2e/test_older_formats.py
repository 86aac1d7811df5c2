"""A lakehouse that an earlier release wrote, see tests/data/formats: the same rows, no rebuild."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.errors import UsageError
from medallion.inspect.audit import run_audit
from medallion.inspect.edits import find_edits
from medallion.inspect.problems import ProblemCode
from medallion.inspect.status import query_statuses
from medallion.runtime import opening
from medallion.runtime.erase import Request, erase_rows
from medallion.runtime.nightly import Nightly
from medallion.runtime.planner import plan_run
from medallion.runtime.refresh import refresh_table
from medallion.state import journal, topics
from medallion.state.journal import Backfill, Erasure, Rebuild, Replay
from medallion.state.runs import RunRecords
from medallion.storage import locks, root_format
from medallion.storage.layout import LAYERS
from tests.support import PROJECT
from tests.support.home import tree
from tests.support.lakehouse import Lakehouse
from tests.support.verdict import take_verdict

ARCHIVE = PROJECT / "tests/data/formats/1.tar.xz"


def unpack(folder: Path, spark: SparkSession | None = None) -> Lakehouse:
    """Unpack the lakehouse of format 1 to a directory, with its configuration.

    The topic is left out: its broker is gone.
    """
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    lakehouse = Lakehouse(spark, folder / "root")
    lakehouse.use_conf(folder / "conf")
    (request,) = (folder / "root/_requests/orders").iterdir()
    request.write_text(json.dumps({"path": str(folder / "root/old")}))
    sources = {name: s for name, s in lakehouse.config.sources.items() if name != "clicks"}
    lakehouse.config = replace(lakehouse.config, sources=sources)
    return lakehouse


def expected_rows(folder: Path, state: str) -> dict[str, tuple[list[str], list[Any]]]:
    """Return the columns and rows of the tables of a state, as the earlier release read them."""
    # That release kept the path of files below the root as it was requested.
    text = (folder / f"{state}.json").read_text().replace("/tmp/fx/root/", "")
    document = json.loads(text)
    return {table: (each["columns"], each["rows"]) for table, each in document.items()}


def differences(lakehouse: Lakehouse, state: str, *without: str) -> dict[str, Any]:
    """Return the rows that one of the releases lacks, by table; without these columns."""
    different = {}
    for table, (columns, rows) in expected_rows(lakehouse.root.parent, state).items():
        if table.endswith(".clicks"):
            continue
        kept = [at for at, name in enumerate(columns) if name not in without]
        now = [
            json.dumps(r, default=str) for r in lakehouse.rows(table, *(columns[k] for k in kept))
        ]
        then = [json.dumps([row[k] for k in kept]) for row in rows]
        if sorted(now) != sorted(then):
            different[table] = (Counter(then) - Counter(now), Counter(now) - Counter(then))
    return different


def unfinished(lakehouse: Lakehouse) -> list[tuple[str, str]]:
    entries = journal.read_entries(lakehouse.config, Rebuild, Replay, Erasure)
    backfills = journal.read_entries(lakehouse.config, Backfill)
    subjects = [(entry.command.value, entry.subject) for entry in entries]
    return sorted([*subjects, *(("backfill", entry.arguments.path) for entry in backfills)])


UNFINISHED = [
    ("backfill", "old"),
    ("refresh", "gold.per_day"),
    ("refresh", "gold.sold"),
    ("refresh", "silver.order_items"),
    ("refresh", "silver.orders"),
    ("replay", "quarantine.visits"),
]


def test_older_lakehouse_is_read_unchanged(tmp_path: Path) -> None:
    lakehouse = unpack(tmp_path)
    before = tree(tmp_path)
    assert differences(lakehouse, "root") == {}
    assert unfinished(lakehouse) == UNFINISHED
    (progress,) = topics.read_progress(lakehouse.layout, "clicks").values()
    assert (progress.next_offset, progress.rows) == (2, 2)
    statuses = {each.query: each for each in query_statuses(lakehouse.config)}
    assert not [each for each in statuses.values() if each.error]
    assert statuses["bronze.orders"].last_batch == 1
    audit = run_audit(lakehouse.config)
    assert all(balance.is_balanced for balance in audit.balances.values())
    commands = {ProblemCode.UNFINISHED_REFRESH, ProblemCode.UNFINISHED_REPLAY}
    assert {problem.code for problem in audit.problems} == {*commands, ProblemCode.NOTE}
    codes = {problem.code for problem in take_verdict(lakehouse.config).problems}
    assert codes >= {*commands, ProblemCode.BLOCKED}
    assert root_format.read_format(lakehouse.layout) == 1
    assert tree(tmp_path) == before


def test_upgrade_waits_for_processes_of_the_older_release(tmp_path: Path) -> None:
    """They may read or write the documents that are converted."""
    lakehouse = unpack(tmp_path)
    with (
        locks.lock_layers(lakehouse.layout, ["gold"], "stream"),
        pytest.raises(UsageError, match=r"gold of .* is being written by pid \d+ \(stream,"),
        journal.lock_layers(lakehouse.config, ["bronze"], "run bronze"),
    ):
        pass
    assert root_format.read_format(lakehouse.layout) == 1


def test_upgraded_lakehouse_has_the_same_rows_and_work(tmp_path: Path) -> None:
    """Queries could continue: they know their settings, checkpoint, ledger and definition."""
    lakehouse, messages = unpack(tmp_path), list[str]()
    with journal.lock_layers(lakehouse.config, LAYERS, "nightly", messages.append):
        plan = plan_run(lakehouse.config, RunRecords(lakehouse.layout))
        assert not [query for query in plan.queries if query.error]
        # The source of the topic is left out; no definition is another one.
        edited = {edit.table for edit in find_edits(lakehouse.config)}
        assert edited == {"bronze.clicks", "silver.clicks", "quarantine.clicks"}
    assert messages == [f"upgraded  {lakehouse.layout.root} from format 1 to {root_format.FORMAT}"]
    assert root_format.read_format(lakehouse.layout) == root_format.FORMAT
    assert differences(lakehouse, "root") == {}
    assert unfinished(lakehouse) == UNFINISHED
    assert not [*(lakehouse.layout.root / "_requests").local.rglob("*.json")]


@pytest.fixture(scope="module")
def continued(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lakehouse, list[str]]:
    """Return the lakehouse after a nightly run over the next files, and its messages."""
    lakehouse, messages = unpack(tmp_path_factory.mktemp("older"), spark), list[str]()
    shutil.copytree(lakehouse.root.parent / "next", lakehouse.root / "landing", dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "session_of_command", lambda *_: nullcontext(spark))
        with opening.open_pipeline(lakehouse.config, "nightly", LAYERS, messages.append) as opened:
            Nightly(opened).run()
    return lakehouse, messages


@pytest.mark.slow  # the upgrade is above, and the rest is a nightly run like any other
def test_nightly_continues_an_older_lakehouse(continued: tuple[Lakehouse, list[str]]) -> None:
    lakehouse, messages = continued
    assert differences(lakehouse, "after") == {}
    assert unfinished(lakehouse) == []
    layout = lakehouse.layout
    assert f"upgraded  {layout.root} from format 1 to {root_format.FORMAT}" in messages
    assert root_format.read_format(layout) == root_format.FORMAT
    assert not [*(layout.root / "_requests").local.rglob("*.json"), *layout.staging.children()]
    rebuilt = {line.split()[1].strip(":") for line in messages if " before, " in line}
    assert rebuilt == {"silver.order_items", "gold.per_day", "gold.sold"}  # as was requested
    assert run_audit(lakehouse.config, everything=True).findings == ()


@pytest.mark.slow
def test_refresh_and_erase_in_an_older_lakehouse(
    continued: tuple[Lakehouse, list[str]], tmp_path: Path
) -> None:
    older, _ = continued
    lakehouse = older.copy(tmp_path / "root")
    lakehouse.config = replace(older.config, layout=lakehouse.layout)
    for name in ("root.json", "after.json"):
        shutil.copy(older.root.parent / name, tmp_path)
    refresh_table(lakehouse.pipeline(), "silver.orders")
    # Any of two equal rows may be the duplicate if one batch has both.
    assert differences(lakehouse, "after", "_source_file") == {}
    # An erasure of the earlier release that has changed nothing yet. A later file has the row, too.
    (lakehouse.layout.root / "_format.json").delete()
    plan = json.loads((older.root.parent / "erase.json").read_text())
    (origin,) = plan["origins"]
    later = {key: origin[key].replace("b.csv", "c.csv") for key in ("path", "location")}
    plan |= {"origins": [origin, origin | later], "rows": plan["rows"] | {"bronze.visits": 2}}
    (lakehouse.layout.root / "_erase/plan.json").write_atomic(json.dumps(plan))
    with journal.lock_layers(lakehouse.config, LAYERS, "erase"):
        erase_rows(lakehouse.pipeline(), Request())
    visits = lakehouse.rows("silver.visits", "visit_id")
    assert visits == [("1",), ("2",), ("4",)]
    assert unfinished(lakehouse) == []
    assert run_audit(lakehouse.config, everything=True).findings == ()
