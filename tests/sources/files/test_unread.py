"""Files that nobody reads are told of."""

from __future__ import annotations

from dataclasses import replace

from medallion.config.loader import load
from medallion.inspection.audit import audit
from medallion.sources.files.unread import unread
from tests.support import PROJECT
from tests.support.home import Home


def test_files_of_no_source_are_told_by_their_folder(home: Home) -> None:
    config = replace(load({}, PROJECT), layout=home.layout)
    assert unread(config) == [], "there is no landing yet"
    landing = home.layout.landing("")
    read, others = ("activity/a.json", "event/deep/b.json"), ("evnt/c.json", "evnt/deep/d.json")
    for name in (*read, *others, "e.json"):
        (landing / name).parent.mkdir(parents=True, exist_ok=True)
        (landing / name).write_text("{}\n")
    (landing / "evnt/.being-written").touch()
    (landing / "empty").mkdir()
    assert unread(config) == [
        "landing: 1 file that no source of pipeline.yaml reads",
        "landing/evnt: 2 files that no source of pipeline.yaml reads",
    ]
    assert audit(config).notes[-1] == (
        "landing/evnt: 2 files that no source of pipeline.yaml reads: not balanced here."
    )
    event = replace(config.sources["event"], folders=("landing/evnt/deep",))
    config = replace(config, sources={**config.sources, "event": event})
    assert unread(config)[1] == "landing/evnt: 1 file that no source of pipeline.yaml reads"
