"""The note of an idle run in a bucket: what makes it void, and what a run with it prints."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from medallion.cli import main
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.inspect import freshness
from medallion.runtime import idle
from medallion.runtime.backfill import request_backfill
from medallion.runtime.outcome import Outcome
from medallion.state import journal
from medallion.state.runs import RunState
from medallion.storage import clock, delta_tables, locks
from medallion.storage.layout import LAYERS
from tests.support import PROJECT
from tests.support.s3_server import Bucket

SECOND = 1_000_000


@pytest.fixture
def config(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return the project's configuration of a bucket with two landed files and a table."""
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    monkeypatch.setenv("MEDALLION_CONF", str(tmp_path / "conf"))
    monkeypatch.setenv("MEDALLION_HOME", bucket.url("lake"))
    bucket.write("lake/landing/event/1.json", b"{}\n")
    bucket.write("lake/landing/event/2.json", b"{}\n")
    bucket.write("lake/gold/any/_delta_log/0.json", b"{}\n")
    config = load()
    with journal.lock_layers(config, LAYERS, "nightly", lambda _: None):
        return config


def note_of(config: Config, outcome: Outcome | None = None) -> idle.IdleNote:
    """Write a note as a run does, and return it."""
    state = idle.digest_state(config)
    with journal.lock_layers(config, LAYERS, "nightly", lambda _: None):
        held = locks.held_leases(config.layout, LAYERS)
    idle.write_note(config, state, held, outcome or Outcome(), {"text": "balanced"})
    note = idle.find_note(config)
    assert note
    return note


def is_true(config: Config, note: idle.IdleNote) -> bool:
    return idle.is_true(config, note, idle.digest_state(config))


def locking(layer: str) -> Callable[[Config, Bucket], object]:
    """Return a change by a command that locks a layer, as all commands that write do."""

    def change(config: Config, _: Bucket) -> None:
        with locks.lock_layers(config.layout, [layer], "refresh"):
            pass

    return change


CHANGES: dict[str, Callable[[Config, Bucket], object]] = {
    **{f"a writer of {layer}": locking(layer) for layer in LAYERS},
    "a requested backfill": lambda config, _: request_backfill(config, "event", "old"),
    "a new file": lambda _, bucket: bucket.write("lake/landing/event/3.json", b"{}\n"),
    "a new file of no source": lambda _, bucket: bucket.write("lake/landing/x/1.json", b"{}"),
    "a new file below a hidden name": lambda _, bucket: bucket.write(
        "lake/landing/_in/1.json", b"1"
    ),
    "a replaced file": lambda _, bucket: bucket.write("lake/landing/event/1.json", b"[]\n"),
    "a deleted file": lambda config, _: (config.layout.landing("event") / "1.json").delete(),
    "a deleted table": lambda config, _: config.layout.table("gold.any").delete_prefix(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_makes_note_void(config: Config, bucket: Bucket, change: str) -> None:
    note = note_of(config)
    bucket.write("lake/_report.html", b"not a part of the lakehouse")
    assert is_true(config, note)
    CHANGES[change](config, bucket)
    assert not is_true(config, note)


def test_other_configuration_makes_note_void(config: Config) -> None:
    note = note_of(config)
    assert is_true(load(), note)
    suite = next((config.conf_dir).rglob("*.json"))
    suite.write_text(suite.read_text().replace("}", " }", 1))
    assert not is_true(load(), note)


def test_note_expires_when_a_source_is_stale(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = Duration(10, "10 seconds")
    event = replace(config.sources["event"], expect_every=every)
    config = replace(config, sources={**config.sources, "event": event})
    now = clock.now_micros()
    monkeypatch.setattr(freshness, "last_arrivals", lambda *_: {"event": now - 4 * SECOND})
    assert freshness.fresh_until(config, RunState()) == [now + 6 * SECOND]
    note = note_of(config)
    assert is_true(config, note)
    monkeypatch.setattr(clock, "now_micros", lambda: now + 6 * SECOND + 1)
    assert not is_true(config, note)


def test_failed_run_removes_note(config: Config, bucket: Bucket) -> None:
    note_of(config)
    idle.write_note(config, "state", [], Outcome(errors=["it failed"]), {})
    assert idle.find_note(config) is None
    assert bucket.keys("lake/_idle") == []


def test_erasure_removes_note(config: Config, bucket: Bucket) -> None:
    """What it prints may quote erased values."""
    note_of(config)
    with journal.lock_layers(config, LAYERS, "erase", lambda _: None):
        assert bucket.keys("lake/_idle") == []


def test_disk_and_messages_have_no_note(config: Config, tmp_path: Path) -> None:
    on_disk = replace(config, layout=type(config.layout)(tmp_path))
    assert idle.digest_state(on_disk) == ""
    assert idle.find_note(on_disk) is None
    assert idle.state_if_idle(on_disk) == ""


def test_run_with_note_prints_the_same(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It only reads, and the next full run records it."""
    planned: list[object] = []

    def end(*arguments: object) -> Outcome:
        planned.append(arguments)
        return Outcome(is_idle=True)

    monkeypatch.setattr("medallion.runtime.planner.end_if_idle", end)
    printed = []
    for _ in range(3):
        assert main.main(["nightly"]) == 0
        printed.append(capsys.readouterr().out.splitlines()[:-1])  # without the duration
    assert len(planned) == 1
    assert printed[1] == printed[2] == ["nothing is new", *printed[0]]
    assert printed[0][0] == "healthy"
    table = config.layout.table("ops.runs")
    assert delta_tables.row_count(table) == 1
    with locks.lock_layers(config.layout, ["bronze"], "replay"):
        pass
    assert main.main(["nightly", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert len(planned) == 2
    rows = delta_tables.select_rows(table, "number, state, command", "order by number")
    assert rows == [(number, "idle", "nightly") for number in (1, 2, 3, 4)]
    (ids,) = delta_tables.select_rows(table, "count(distinct run_id)")
    assert ids == (4,)
