"""Files that nobody reads are told of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from medallion.config.loader import load
from medallion.ingest.files.listing import unread_file_warnings
from medallion.inspect.audit import run_audit
from tests.support import PROJECT
from tests.support.home import Home


def test_files_of_no_source_are_told_by_their_folder(home: Home) -> None:
    config = replace(load({}, PROJECT), layout=home.layout)
    assert unread_file_warnings(config) == [], "there is no landing yet"
    landing = home.layout.landing("")
    read, others = ("activity/a.json", "event/deep/b.json"), ("evnt/c.json", "evnt/deep/d.json")
    for name in (*read, *others, "e.json"):
        (landing / name).parent.mkdir(parents=True, exist_ok=True)
        (landing / name).write_text("{}\n")
    (landing / "evnt/.being-written").touch()
    (landing / "empty").mkdir()
    assert unread_file_warnings(config) == [
        "landing: 1 file that no source of pipeline.yaml reads",
        "landing/evnt: 2 files that no source of pipeline.yaml reads",
    ]
    assert run_audit(config).notes[-1] == (
        "landing/evnt: 2 files that no source of pipeline.yaml reads: in no balance."
    )
    event = replace(config.sources["event"], folders=("landing/evnt/deep",))
    config = replace(config, sources={**config.sources, "event": event})
    assert (
        unread_file_warnings(config)[1]
        == "landing/evnt: 1 file that no source of pipeline.yaml reads"
    )


def test_files_whose_names_do_not_fit_are_told_by_the_folder_of_their_source(
    home: Home, tmp_path: Path
) -> None:
    """Two sources may share a folder, each with a pattern, and one may have a folder elsewhere."""
    config = replace(load({}, PROJECT), layout=home.layout)
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "its disk").mkdir()
    elsewhere.symlink_to("its disk")
    event = replace(config.sources["event"], pattern="*.json", folders=(str(elsewhere),))
    activity = replace(config.sources["activity"], pattern="*.log", folders=("landing/event",))
    config = replace(config, sources={"event": event, "activity": activity})
    landing = home.layout.landing("")
    read = ("event/a.json", "event/a.log", "event/_b.json", "event/deep/c.json")
    hidden = ("event/_SUCCESS", "event/.c.txt", "event/d.csv._COPYING_", "event/.tmp/e.csv")
    others = ("event/f.JSON", "event/deep/g.csv", "activity/h.json")
    for file in (*(landing / n for n in (*read, *hidden, *others)), elsewhere / "deep/i.log"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    reads = "that no source of pipeline.yaml reads: not named as"
    assert unread_file_warnings(config) == [
        f"{elsewhere}: 1 file {reads} *.json",
        f"landing/activity: 1 file {reads} *.log",
        f"landing/event: 2 files {reads} *.json or *.log",
    ]
    several = replace(event, folders=(str(elsewhere), str(elsewhere / "deep"), "landing"))
    config = replace(config, sources={"event": replace(several, pattern="*")})
    assert unread_file_warnings(config) == []
