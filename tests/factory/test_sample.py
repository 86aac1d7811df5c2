"""The sample ships with the package: it lands whatever the configuration, once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.factory import sample
from medallion.state.ledger import REJECTED, Entry, Ledger
from medallion.storage.paths import Layout
from tests.support import SAMPLE

CONF = "sources: {%s: {event_time: at, keys: [at], silver: {at: ts}}}"


def config(tmp_path: Path, source: str) -> Config:
    """A configuration far from the project's."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/pipeline.yaml").write_text(CONF % source)
    return load({"MEDALLION_CONF": "conf", "MEDALLION_HOME": "lake"}, tmp_path)


def test_it_lands_with_any_configuration_and_once(tmp_path: Path) -> None:
    there = config(tmp_path, "event")
    assert sample.land(there) == {"event": 4}
    landing = there.layout.landing("event")
    for file in (SAMPLE / "event").iterdir():
        assert (landing / file.name).read_bytes() == file.read_bytes()
    assert len(list(landing.iterdir())) == 4
    assert sample.land(there) == {}


def test_one_that_was_cut_off_lands_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: what is there of it is not taken for files of somebody else."""
    there, copy = config(tmp_path, "event"), shutil.copyfile

    def copy_half(file: Path, place: Path) -> None:
        copy(file, place)
        if file.name == "file2.json":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", copy_half)
    with pytest.raises(OSError, match="No space"):
        sample.land(there)
    monkeypatch.undo()
    assert sample.land(there) == {"event": 4}
    assert len(list(there.layout.landing("event").iterdir())) == 4


def test_one_that_was_cut_off_while_it_was_shown_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, rename, names = config(tmp_path, "event"), Path.replace, list[str]()

    def killed(file: Path, place: Path) -> None:
        if len(names) == 2:
            raise KeyboardInterrupt
        names.append(place.name)
        rename(file, place)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        sample.land(there)
    monkeypatch.undo()
    landing = there.layout.landing("event")
    (landing / names[0]).unlink()  # bronze has it
    assert sample.land(there) == {"event": 2}
    shown = {file.name for file in landing.iterdir()}
    assert shown == {file.name for file in (SAMPLE / "event").iterdir()} - {names[0]}
    assert sample.land(there) == {}


def test_a_lakehouse_that_was_in_use_gets_none(tmp_path: Path) -> None:
    """All that landed may have been rejected, or lie where the configuration says."""
    there = config(tmp_path, "event")
    rejected = Entry("event", "landing/event/a.json", 1, 5, 0, 0, state=REJECTED)
    Ledger(there.layout, "event").write([rejected])
    assert sample.land(there) == {}
    elsewhere = replace(there.sources["event"], folders=("../drop",))
    there = replace(there, layout=Layout(tmp_path / "new"), sources={"event": elsewhere})
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop/a.json").touch()
    assert sample.land(there) == {}
    (tmp_path / "drop/a.json").unlink()
    assert sample.land(there) == {"event": 4}


def test_a_configuration_without_its_sources_gets_none(tmp_path: Path) -> None:
    there = config(tmp_path, "orders")
    assert sample.land(there) == {}
    assert not there.layout.root.exists()


def test_what_no_source_reads_does_not_land(tmp_path: Path) -> None:
    there = config(tmp_path, "event")
    source = there.sources["event"]
    for unfit in ({"format": "csv"}, {"format": "kafka"}, {"multi_line": True}, {"pattern": "x*"}):
        changed = replace(there, sources={"event": replace(source, **unfit)})
        assert sample.land(changed) == {}
    files = replace(there, sources={"event": replace(source, pattern="file*")})
    assert sample.land(files) == {"event": 3}
