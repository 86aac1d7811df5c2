"""The counts of landed files equal those of an independent count."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from medallion.cli.render_tables import landed_json, landed_text
from medallion.factory import DataFactory, Landed
from medallion.factory.plan import RATES
from tests.support import SAMPLE

FIGURES = (
    "files", "lines", "malformed", "invalid", "duplicates", "late", "unknown_fields", "blank_lines"
)  # fmt: skip
ACTIVITY_LINE = re.compile(
    r'\{"Recorded_At": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+0000", "Device": "\w+_\d", '
    r'"Index": \d+, "Model": "\w+", "User": "[a-i]", "gt": "[a-z]+", '
    r'"x": -?\d+\.\d+, "y": -?\d+\.\d+, "z": -?\d+\.\d+\}'
)
EVENT_LINE = re.compile(
    r'\{"id":"phone\d+","action":"[a-z]+","ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"\}'
    r'|\{"time":\d{10},"action":"[A-Z][a-z]+"\}'
)

Recounter = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("batches", "files", "rows", "seed"),
    [
        (1, 1, 1, 0),
        (3, 2, 1, 1),
        (4, 3, 7, 2),
        (5, 4, 90, 3),
        (3, 2, 1000, 4),
        (4, 1, 5000, -5),
        (3, 60, 12_000, 6),
    ],
)
def test_dirty_figures_equal_the_count(
    tmp_path: Path, recount: Recounter, batches: int, files: int, rows: int, seed: int
) -> None:
    landing = tmp_path / "landing"
    landed = DataFactory(landing, seed=seed, dirty=True).land(batches, files, rows)
    for source, source_counts in landed.items():
        counted = recount(landing / source)
        assert {name: getattr(source_counts, name) for name in FIGURES} == {
            name: counted.figures[name] for name in FIGURES
        }
        assert source_counts.expected_quarantine == counted.quarantine
        assert source_counts.expected_silver == len(counted.silver)
        assert source_counts.lines == batches * rows
        assert source_counts.batches == batches
        assert (
            source_counts.expected_silver
            + source_counts.expected_quarantined
            + source_counts.duplicates
            == (source_counts.lines)
        )


def test_dirty_landing_has_every_defect(tmp_path: Path) -> None:
    landed = DataFactory(tmp_path / "landing", seed=3, dirty=True).land(2, files=3, rows=20_000)
    for source_counts in landed.values():
        assert all(getattr(source_counts, name) > 0 for name in FIGURES)
        assert source_counts.expected_silver > 0.95 * source_counts.lines
    assert set(landed["activity"].expected_quarantine) == {
        "malformed_line", "missing_event_time", "future_event_time", "missing_device",
        "missing_index", "missing_x", "missing_y", "missing_z",
        "rescued_Recorded_At", "rescued_Index", "rescued_x", "rescued_y", "rescued_z",
    }  # fmt: skip
    assert set(landed["event"].expected_quarantine) == {
        "malformed_line", "missing_event_time", "future_event_time", "missing_action",
        "rescued_ts", "rescued_time",
    }  # fmt: skip


@pytest.mark.parametrize("rows", [1, 50, 3000])
def test_clean_landing_has_no_defect(tmp_path: Path, recount: Recounter, rows: int) -> None:
    landing = tmp_path / "landing"
    landed = DataFactory(landing, seed=5).land(batches=3, files=2, rows=rows)
    for source, source_counts in landed.items():
        assert source_counts == Landed(files=3 * min(2, rows), lines=3 * rows, batches=3)
        counted = recount(landing / source)
        assert counted.figures == {"files": source_counts.files, "lines": source_counts.lines,
                                   "unknown_fields": 0}  # fmt: skip


def test_clean_lines_look_like_the_sample(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    DataFactory(landing).land(rows=2000)
    for source, shape in (("activity", ACTIVITY_LINE), ("event", EVENT_LINE)):
        for folder in (SAMPLE / source, landing / source):
            lines = [line for path in folder.iterdir() for line in path.read_text().splitlines()]
            assert lines
            assert [line for line in lines if not shape.fullmatch(line)] == []


def test_rows_vary(tmp_path: Path, recount: Recounter) -> None:
    landing = tmp_path / "landing"
    DataFactory(landing, seed=1).land(rows=40_000, files=2)
    activity = [row for _, _, row in recount(landing / "activity").silver]
    assert len({row["Device"] for row in activity}) >= 8
    assert {row["User"] for row in activity} == set("abcdefghi")
    assert {row["gt"] for row in activity} == {
        "stand", "sit", "walk", "bike", "stairsup", "stairsdown", "null"
    }  # fmt: skip
    moments = {(row["Device"], row["Recorded_At"]) for row in activity}
    assert len(activity) - len(moments) > 100, "some recordings share device and millisecond"
    assert len({(row["Device"], row["Index"]) for row in activity}) == len(activity)
    events = [row for _, _, row in recount(landing / "event").silver]
    without_device = [row for row in events if "time" in row]
    assert 0.2 < len(without_device) / len(events) < 0.3


@pytest.mark.parametrize(("files", "rows"), [(1, 500), (6, 9000), (2, 40)])
def test_time_increases_with_little_disorder(
    tmp_path: Path, recount: Recounter, files: int, rows: int
) -> None:
    landing = tmp_path / "landing"
    DataFactory(landing, seed=9).land(batches=3, files=files, rows=rows)
    for source in ("activity", "event"):
        latest = None
        for moments in recount(landing / source).times().values():
            assert latest is None or min(moments) >= latest + timedelta(hours=2)
            latest = moments[0]
            for moment in moments:
                assert moment >= latest - timedelta(minutes=5)
                latest = max(latest, moment)


def test_large_batches_cover_more_time(
    tmp_path: Path, recount: Recounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RATES, "event", 2)
    landing = tmp_path / "landing"
    DataFactory(landing, dirty=True).land(batches=2, files=3, rows=18_000, source="event")
    times = recount(landing / "event").times()
    assert max(times[1]) - min(times[1]) > timedelta(hours=2)


def test_crowded_events_stay_unique(
    tmp_path: Path, recount: Recounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the maximum rate, in files of two seconds."""
    monkeypatch.setattr("medallion.factory.plan.SHORTEST_SPAN", 1)
    landing = tmp_path / "landing"
    DataFactory(landing).land(files=20, rows=200 * 40, source="event")
    assert recount(landing / "event").figures["duplicates"] == 0


def test_landed_json_starts_with_the_documented_keys(tmp_path: Path) -> None:
    landed = DataFactory(tmp_path / "landing", dirty=True).land()
    document = landed_json(landed)
    assert list(document) == ["activity", "event"]
    assert list(document["event"])[:7] == list(FIGURES[:7])


def test_landed_text_has_a_line_for_each_figure(tmp_path: Path) -> None:
    landed = DataFactory(tmp_path / "landing", dirty=True).land(rows=30_000)
    head, _, *lines = landed_text(landed).splitlines()
    assert head.replace("|", " ").split() == ["figure", "activity", "event"]
    cells = {line.split()[0]: line.replace("|", " ").split()[1:] for line in lines}
    assert cells["lines"] == ["30000", "30000"]
    malformed = [str(source_counts.malformed) for source_counts in landed.values()]
    assert cells["malformed"] == malformed
    assert "expected_silver" in cells
