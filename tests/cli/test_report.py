"""The page of a lakehouse: what is on it, and nothing of what others write into it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from medallion.cli import report
from medallion.errors import UsageError
from medallion.inspect.audit import Audit
from medallion.inspect.balance import Balance
from medallion.inspect.catalog import FirstRows, Overview, QueryRun
from medallion.sql.engine import Result
from medallion.state.runs import GateRecord

HOSTILE = "<script>alert(1)</script>\x1b[2J"
RUN = QueryRun("bronze.event", "failed", 0, 2.5, 1234567, 5, None, None, None, HOSTILE)
FOUND = Overview(
    root="/some/where",
    created_at=0,
    audit=Audit({"event": Balance(10, 10, 6, 3, 1, 0, 0)}, ()),
    gold=(FirstRows("gold.totals", 7, Result(("device", "n"), [(HOSTILE, 8), ("phone", 2)])),),
    broken={"event": {"no_device": 4, "too_late": 1}, "activity": {}},
    gates={"silver.event": GateRecord("held", 3, HOSTILE)},
    runs=(RUN, replace(RUN, seconds=None)),
)


def test_report_html_content() -> None:
    page = report.report_html(FOUND)
    for there in (
        "<h3>gold.totals: 7 rows, the first 2</h3>",
        '<td class=n>8<td><span class=bar style="width:20.00em">',  # the longest bar
        '<td class=n>2<td><span class=bar style="width:5.00em">',  # a fourth of it
        '<div class=silver style="flex-grow:6" title="silver: 6">',
        '<div class=quarantined style="flex-grow:3"',
        '<div class=duplicate style="flex-grow:1"',
        '<td>too_late<td class=n>1<td><span class=bar style="width:5.00em">',
        "<td class=n>1234567",
        "<b class=good>balanced</b>",
        "1970-01-01T00:00:00",
    ):
        assert there in page
    assert "<div class=waiting" not in page
    assert "\n<h3>activity: rows of quarantine" not in page


def test_report_html_escapes_values() -> None:
    page = report.report_html(FOUND)
    assert "<script" not in page
    assert "\x1b" not in page
    assert page.count("&lt;script&gt;") == 4


def test_report_html_bars_of_last_number() -> None:
    rows = [("a", True, 3, None), ("b", False, 1000, 2.5), ("c", None, 2026, float("nan"))]
    first = Result(("k", "is", "n", "mean"), rows)
    page = report.report_html(replace(FOUND, gold=(FirstRows("gold.t", 3, first),)))
    widths = re.findall(r'<td><span class=bar style="width:([0-9.]+)em', page)[:3]
    assert widths == ["0.00", "20.00", "0.00"]
    assert "<td>true" in page
    assert "<td class=n>2026<" in page


def test_report_html_of_an_empty_lakehouse() -> None:
    empty = replace(FOUND, gold=(), broken={}, gates={}, runs=())
    page = report.report_html(replace(empty, audit=Audit({}, ("event: a row is lost.",))))
    assert "<b class=bad>NOT BALANCED</b>" in page
    assert "<p class=bad>event: a row is lost.</p>" in page


def test_report_json_content() -> None:
    found = json.loads(json.dumps(report.report_json(FOUND)))
    assert found["balanced"] is True
    assert found["gold"]["gold.totals"]["first"][1] == ["phone", 2]
    assert found["quarantined"]["event"] == {"no_device": 4, "too_late": 1}
    assert found["runs"][0]["seconds"] == 2.5


def test_write_report_is_atomic_or_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert report.write_report(FOUND, page) == str(page)
    assert page.read_text(encoding="utf-8") == report.report_html(FOUND)
    with pytest.raises(UsageError, match=r"--output .*/none/page.html: No such file"):
        report.write_report(FOUND, tmp_path / "none" / "page.html")
    os.mkfifo(pipe := tmp_path / "pipe")  # as a device is: it is left what it is
    for place in (tmp_path, Path("/"), pipe):
        with pytest.raises(UsageError, match=f"{place}: not a regular file; name a file"):
            report.write_report(FOUND, place)
    assert pipe.is_fifo()
    (link := tmp_path / "link").symlink_to(page)
    page.write_text("older")
    assert report.write_report(FOUND, link) == str(link)
    assert page.read_text(encoding="utf-8") == report.report_html(FOUND)
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, page, pipe]
