"""Interrupted batches, and files that change or are truncated before bronze reads them."""

from __future__ import annotations

import gzip
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from medallion.errors import MedallionError
from medallion.ingest.files.batch import FileBatch
from medallion.ingest.formats import SOURCE_TYPES
from medallion.inspect.audit import run_audit
from medallion.layers.bronze.writer import BronzeWriter
from medallion.spark.errors import StreamError
from medallion.spark.watch import await_all
from medallion.state import ledger
from medallion.state.ledger import State
from tests.support.batches import without_queries
from tests.support.home import set_age
from tests.support.lakehouse import (
    Lakehouse,
    indexes,
    ledger_counts,
    ledger_entries,
    only_rows,
    start_flows,
)
from tests.support.lines import row


@pytest.fixture
def home(lakehouse: Lakehouse) -> Lakehouse:
    return only_rows(lakehouse)


def interrupt_once(
    monkeypatch: pytest.MonkeyPatch, name: str, at_its_end: bool = False, batch: int | None = None
) -> None:
    """Interrupt one call of a method, before or after its work, in any or one batch."""
    method = getattr(FileBatch, name)

    def interrupt(self: FileBatch, *arguments: Any) -> Any:
        if batch not in (None, self._number):
            return method(self, *arguments)
        monkeypatch.setattr(FileBatch, name, method)
        if at_its_end:
            method(self, *arguments)
        raise MedallionError("interrupted")

    monkeypatch.setattr(FileBatch, name, interrupt)


def run_until_interrupted(home: Lakehouse) -> None:
    """Run bronze's query until the interruption; its batch metrics are not recorded."""
    with pytest.raises(StreamError, match="interrupted"):
        await_all(flow.started_run for flow in start_flows(home.pipeline(), "bronze"))


def ingest_until_interrupted(home: Lakehouse) -> None:
    """As `run_until_interrupted`, without a query."""
    with without_queries():
        run_until_interrupted(home)


def test_batch_interrupted_at_each_step(home: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the rows, between rows and ledger, and between ledger and checkpoint."""
    steps = (("read", False), ("record_in_ledger", False), ("record_in_ledger", True))
    expected, states = {}, []
    for batch, (name, at_its_end) in enumerate(steps):
        index = 3 * batch
        rescued = row(index + 1, x="high")
        home.land("activity", f"a{batch}.json", row(index), "{broken", rescued)
        home.land("activity", f"b{batch}.json", row(index + 2))
        interrupt_once(monkeypatch, name, at_its_end, batch)  # the batch before it is completed
        if at_its_end:
            run_until_interrupted(home)
        else:
            ingest_until_interrupted(home)
        expected[f"a{batch}.json", 1] = (State.INGESTED, batch, 3, 1, 1)
        expected[f"b{batch}.json", 1] = (State.INGESTED, batch, 1, 0, 0)
        states.append(
            {state for (file, _), (state, *_) in ledger_counts(home).items() if str(batch) in file}
        )
    # The ledger is written with a batch: the second file's entries with the first batch.
    assert states == [set(), {State.PENDING}, {State.INGESTED}]
    home.land("activity", "last.json", row(9))
    home.run("bronze")
    rows = [i for (i,) in home.rows("bronze.activity", "Index")]
    assert rows.count(None) == 3
    assert sorted(i for i in rows if i is not None) == list(range(10))
    assert ledger_counts(home) == {**expected, ("last.json", 1): (State.INGESTED, 3, 1, 0, 0)}
    audit = run_audit(home.config, everything=True)
    assert audit.findings == ()
    assert audit.balances["activity"].landed_lines == 13


def test_lost_checkpoint_or_queue_before_the_ledger(
    home: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the rows in bronze show that they are ingested."""
    home.land("activity", "a.json", row(1), row(2, x="high"))
    home.fill("bronze")
    home.land("activity", "b.json", row(3), row(4))
    interrupt_once(monkeypatch, "record_in_ledger")
    ingest_until_interrupted(home)
    other = home.copy(tmp_path / "other")
    # The new checkpoint reads the queue from its start, and batches 2 and 3 find nothing new;
    # without a commit of the queue there is only batch 2.
    shutil.rmtree(home.config.layout.checkpoint("bronze.activity"))
    (other.config.layout.queue("activity") / f"_delta_log/{2:020}.json").local.unlink()
    for each, last in ((home, 4), (other, 3)):
        each.land("activity", "c.json", row(5))
        each.run("bronze")
        assert indexes(each) == [1, 2, 3, 4, 5]
        assert ledger_counts(each) == {
            ("a.json", 1): (State.INGESTED, 0, 2, 0, 1),
            ("b.json", 1): (State.INGESTED, 1, 2, 0, 0),
            ("c.json", 1): (State.INGESTED, last, 1, 0, 0),
        }
        audit = run_audit(each.config, everything=True)
        assert audit.findings == ()
        assert audit.balances["activity"].landed_lines == 5


def test_file_deleted_before_the_ledger_is_reported(
    home: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the queue knows it: the process ended between the queue's commit and the ledger's."""
    file = home.land("activity", "gone.json", row(1))
    home.land("activity", "stays.json", row(2))
    interrupt_once(monkeypatch, "read")
    run_until_interrupted(home)
    shutil.rmtree(home.config.layout.table("ops.files").local, ignore_errors=True)
    file.unlink()
    home.run("bronze")
    assert indexes(home) == [2]
    assert ledger_counts(home)["stays.json", 1] == (State.INGESTED, 0, 1, 0, 0)
    assert ledger_counts(home)["gone.json", 1] == (State.VANISHED, None, None, None, None)


def test_files_that_change_before_the_ledger(
    home: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows are in bronze, so the ledger must have them as ingested."""
    file = home.land("activity", "gone.json", row(1))
    home.land("activity", "stays.json", row(2))
    home.land("activity", "changed.json", row(3))
    interrupt_once(monkeypatch, "record_in_ledger")
    ingest_until_interrupted(home)
    file.unlink()
    set_age(home.land("activity", "changed.json", row(7), row(8)), -5)
    home.fill("bronze")
    assert indexes(home) == [1, 2, 3]
    names = ("gone.json", "stays.json", "changed.json")
    assert ledger_counts(home) == {
        **{(name, 1): (State.INGESTED, 0, 1, 0, 0) for name in names},
        ("changed.json", 2): (State.REJECTED, *[None] * 4),
    }


def test_batch_enqueued_twice(home: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise RuntimeError("interrupted")

    home.land("activity", "a.json", row(1), row(2))
    with monkeypatch.context() as patch:
        patch.setattr(ledger.Ledger, "postpone", interrupt)
        with pytest.raises(StreamError, match=r"bronze\.activity cannot be started: .*interrupted"):
            home.fill("bronze")
    home.land("activity", "b.json", row(3))
    home.fill("bronze")
    assert indexes(home) == [1, 2, 3]
    assert {key: state for key, (state, *_) in ledger_counts(home).items()} == {
        ("a.json", 1): State.INGESTED,
        ("b.json", 1): State.INGESTED,
    }
    assert run_audit(home.config, everything=True).findings == ()


def run_with_change(home: Lakehouse, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Run bronze and call `change` after files are queued, before they are read."""
    method = BronzeWriter.prepare

    def prepare(self: BronzeWriter, *scan: Any) -> None:
        method(self, *scan)
        change()

    with monkeypatch.context() as patch:
        patch.setattr(BronzeWriter, "prepare", prepare)
        home.fill("bronze")


def test_files_that_change_before_they_are_read(
    home: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First every file of a batch, then some of a batch; a changed file is read as it is then."""
    file = home.land("activity", "only.json", row(1))
    run_with_change(home, monkeypatch, file.unlink)
    assert home.rows("bronze.activity") == []
    assert ledger_counts(home) == {("only.json", 1): (State.VANISHED, *[None] * 4)}

    vanishing = home.land("activity", "a.json", row(1))
    home.land("activity", "b.json", row(2))
    home.land("activity", "c.json", row(3))

    def vanish_and_change() -> None:
        vanishing.unlink()
        set_age(home.land("activity", "c.json", row(7), row(8)), -5)

    run_with_change(home, monkeypatch, vanish_and_change)
    assert indexes(home) == [2]
    assert ledger_counts(home)["a.json", 1][0] == State.VANISHED
    assert ledger_counts(home)["b.json", 1] == (State.INGESTED, 1, 1, 0, 0)
    assert ledger_counts(home)["c.json", 1][0] == State.PENDING
    home.land("activity", "a.json", row(4))
    home.fill("bronze")
    assert indexes(home) == [2, 4, 7, 8]
    assert ledger_counts(home)["a.json", 2] == (State.INGESTED, 2, 1, 0, 0)
    assert ledger_counts(home)["c.json", 1] == (State.INGESTED, 2, 2, 0, 0)
    assert run_audit(home.config, everything=True).findings == ()


@pytest.mark.parametrize("clean", ["off", "archive"])
def test_overwritten_file(lakehouse: Lakehouse, clean: str) -> None:
    home = only_rows(lakehouse, clean_source=clean, allow_overwrites=True)
    modified = []
    for number, age in ((1, 20), (2, 10)):
        file = set_age(home.land("activity", "a.json", *[row(number)] * number), age)
        modified.append(file.stat().st_mtime_ns // 1_000_000)
        home.fill("bronze")
    last = State.INGESTED if clean == "off" else State.ARCHIVED
    assert {k: v[:3] for k, v in ledger_counts(home).items()} == {
        ("a.json", 1): (State.REPLACED, 0, 1),
        ("a.json", 2): (last, 1, 2),
    }
    sql = "select unix_millis(_source_modified_at), Index from delta.`{}`"
    rows = home.spark.sql(sql.format(home.config.layout.table("bronze.activity"))).collect()
    assert Counter(map(tuple, rows)) == {(modified[0], 1): 1, (modified[1], 2): 2}
    audit = run_audit(home.config, everything=True)
    assert audit.findings == ()
    assert len(audit.notes) == (0 if clean == "archive" else 1)


def test_truncated_file_repaired_by_the_user(
    home: Lakehouse,
) -> None:
    complete = gzip.compress((row(1) + "\n").encode() + os.urandom(3000).hex().encode() + b"\n")
    truncated = home.land("activity", "truncated.json.gz")
    truncated.write_bytes(complete[: len(complete) // 2])
    home.land("activity", "a.json", row(2))
    good = home.land("activity", "good.json.gz")
    good.write_bytes(gzip.compress(f"{row(3)}\n{row(4)}\n".encode()))
    home.config.layout.rejected("").local.mkdir()
    home.config.layout.rejected(
        "activity"
    ).local.touch()  # the file cannot be moved to rejected/ yet
    home.fill("bronze")
    assert indexes(home) == [2, 3, 4]
    assert ledger_counts(home)["truncated.json.gz", 1][0] == State.UNREADABLE
    assert truncated.exists()
    assert run_audit(home.config, everything=True).findings == ()
    home.config.layout.rejected("activity").local.unlink()
    source = home.config.sources["activity"]
    scan = SOURCE_TYPES["json"].scan(home.config, source)
    assert not scan.has_work, "the file is not read again"
    scan.enqueue(0, print)
    entry = ledger_entries(home)["truncated.json.gz", 1]
    assert (entry.state, entry.moved_to) == (State.REJECTED, "rejected/activity/truncated.json.gz")
    assert not truncated.exists()
    moved = home.config.layout.root / str(entry.moved_to)
    reason = Path(f"{moved}.reason.txt").read_text()
    assert moved.local.read_bytes() == complete[: len(complete) // 2]
    assert "truncated: its gz data ends too soon" in reason
    assert entry.path in reason
    assert run_audit(home.config, everything=True).findings == ()
    truncated.write_bytes(gzip.compress(f"{row(1)}\n".encode()))
    home.fill("bronze")
    assert indexes(home) == [1, 2, 3, 4]
    assert ledger_counts(home)["truncated.json.gz", 2] == (State.INGESTED, 1, 1, 0, 0)
    shutil.rmtree(home.config.layout.rejected("activity"))  # the repaired file is ingested
    assert run_audit(home.config, everything=True).findings == ()


def test_folder_with_dotdot(lakehouse: Lakehouse) -> None:
    """Spark reports `a/../b` as `b`: the rows must match their file in the ledger."""
    home = only_rows(lakehouse, folders=("../outside",))
    outside = home.root.parent / "outside"
    outside.mkdir()
    for index, name in enumerate(("a.json", "b c.json")):  # one name that a URI does not escape
        (outside / name).write_text(row(index) + "\n")
        home.fill("bronze")
        assert ledger_entries(home)[name, 1].rows == 1
    rows = home.rows("bronze.activity", "_source_file", "Index")
    assert rows == [(f"{outside}/a.json", 0), (f"{outside}/b c.json", 1)]
