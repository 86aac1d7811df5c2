"""The sample files land once, and only if a source reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from medallion.config.loader import load
from medallion.config.model import Config, SourceConfig
from medallion.errors import UsageError
from medallion.factory import sample
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage.layout import Layout
from tests.support import SAMPLE
from tests.support.lakehouse import activity_source

CONF = "sources: {%s: {event_time: at, keys: [at], silver: {at: ts}}}"


def config(tmp_path: Path, source: str) -> Config:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/pipeline.yaml").write_text(CONF % source)
    return load({"MEDALLION_CONF": "conf", "MEDALLION_HOME": "lake"}, tmp_path)


def test_sample_lands_once(tmp_path: Path) -> None:
    conf = config(tmp_path, "event")
    assert sample.land(conf) == {"event": 4}
    landing = conf.layout.landing("event")
    for file in (SAMPLE / "event").iterdir():
        assert (landing / file.name).local.read_bytes() == file.read_bytes()
    assert len(list(landing.local.iterdir())) == 4
    assert sample.land(conf) == {}


def test_interrupted_sample_is_completed(tmp_path: Path) -> None:
    conf = config(tmp_path, "event")
    sample.land(conf)
    landing = conf.layout.landing("event")
    for name in ("file3.json", "newaction.json"):
        (landing / name).local.unlink()
    assert sample.land(conf) == {"event": 2}
    assert len(list(landing.local.iterdir())) == 4


def test_sample_does_not_land_in_a_used_lakehouse(tmp_path: Path) -> None:
    """All files may have been rejected, or be in another directory."""
    conf = config(tmp_path, "event")
    rejected = Entry("event", "landing/event/a.json", 1, 5, 0, 0, state=State.REJECTED)
    Ledger(conf.layout, "event").write([rejected])
    assert sample.land(conf) == {}
    elsewhere = replace(conf.sources["event"], folders=("../drop",))
    conf = replace(conf, layout=Layout(tmp_path / "new"), sources={"event": elsewhere})
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop/a.json").touch()
    assert sample.land(conf) == {}
    (tmp_path / "drop/a.json").unlink()
    assert sample.land(conf) == {"event": 4}


def test_sample_needs_a_source_of_its_name(tmp_path: Path) -> None:
    conf = config(tmp_path, "orders")
    assert sample.land(conf) == {}
    assert not conf.layout.root.local.exists()


def test_sample_needs_a_source_that_reads_it(tmp_path: Path) -> None:
    conf = config(tmp_path, "event")
    source = conf.sources["event"]
    for settings in (
        {"format": "csv"},
        {"format": "kafka"},
        {"multi_line": True},
        {"pattern": "x*"},
    ):
        changed = replace(conf, sources={"event": replace(source, **settings)})
        assert sample.land(changed) == {}
    files = replace(conf, sources={"event": replace(source, pattern="file*")})
    assert sample.land(files) == {"event": 3}


@pytest.mark.parametrize(
    "unread",
    [
        activity_source(format="csv"),
        activity_source(format="kafka"),
        activity_source(multi_line=True),
        activity_source(pattern="event.*"),
    ],
)
def test_refuse_unread(unread: SourceConfig) -> None:
    sources = {"activity": activity_source(pattern="*.json"), "event": unread}
    sample.refuse_unread(sources, "activity")
    for source in (None, "event"):
        with pytest.raises(UsageError, match=r"no source event of JSON lines .*: use --source a"):
            sample.refuse_unread(sources, source)
    with pytest.raises(UsageError, match=r"no source activity .*: land files of your own"):
        sample.refuse_unread({"orders": unread}, None)
