"""The report page: its sections, and hostile values as harmless text."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from medallion.cli import report
from medallion.errors import UsageError
from medallion.inspect.audit import Audit
from medallion.inspect.balance import Balance
from medallion.inspect.overview import Overview
from medallion.inspect.problems import LakehouseVerdict, Problem, ProblemCode
from tests.support.overview import OVERVIEW

HEALTHY = Overview("/some/where", 0, Audit({"event": Balance(10, 10, 10, 0, 0, 0, 0)}))
LOST = Problem(ProblemCode.UNBALANCED, "event", "a row is lost.")
WARNING = LakehouseVerdict(OVERVIEW.seen.verdict.problems[2:])


class Elements(HTMLParser):
    """Element names, attributes that run scripts or load resources, and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.loaded: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.loaded += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("src", "href") or name.startswith("on")
        ]

    def handle_data(self, data: str) -> None:
        self.text += f"{data.strip()}\n" if data.strip() else ""


def test_report_html_sections() -> None:
    page = report.report_html(OVERVIEW)
    text = Elements(page.partition('<script type="application/json"')[0]).text
    for expected in (
        "not healthy",
        "as of \n1970-01-01 00:00",
        "To do: run medallion nightly.",
        "rescued values\nevent: 2 rows do not fit",
        "landed lines\nbronze rows\nsilver rows\nquarantined rows",
        "gold.counts\n8 rows",
        "gold.totals\n7 rows, 2 shown",
        "gold.broken: a file is missing",
        "2026-05-04 00:00",
        "it is not gzip",
        "1,234,567",
        "small: 3 of 12 rows are large",
        "example rows of failed expectations",
        "+ id string",
    ):
        assert "".join(expected.split()) in "".join(text.split()), expected


def test_report_html_folds_what_has_no_rows() -> None:
    folded = re.findall(r"<summary>(\d+) without rows</summary><p>(.*?)</p>", page_of(OVERVIEW))
    assert folded == [("1", "idle"), ("1", "gold.empty"), ("1", "quarantine.activity")]
    assert "without rows" not in page_of(HEALTHY)


def test_report_html_headline_and_stale_badge() -> None:
    sentence, long = "3 rows do not fit: a (2), b (1)", f"[CAST] {'many words ' * 20}".strip()
    rescued = Problem(ProblemCode.RESCUED, "event", sentence, "repair it", "3 rows do not fit")
    failed = Problem(ProblemCode.FAILED, "silver.event", f"silver.event: {long}")
    seen = replace(OVERVIEW.seen, verdict=LakehouseVerdict((rescued, failed)))
    page = page_of(replace(OVERVIEW, seen=seen))
    assert "<b>event</b>: 3 rows do not fit</li>" in page
    assert f"<b>event</b>: {sentence}<br>" in page
    assert "<b>silver.event</b>: [CAST] many words many" in page
    assert f"<b>silver.event</b>: silver.event: {long}</li>" in page
    # In the first cell, which a phone shows.
    assert '<tr><td>event <span class="pill bad">stale</span></td>' in page_of(OVERVIEW)


def page_of(overview: Overview) -> str:
    return str(report.report_html(overview))


def test_report_html_hostile_values_are_text() -> None:
    page = report.report_html(OVERVIEW)
    elements = Elements(page)
    # The data, the chart library, and the page's own script.
    assert elements.names.count("script") == 3
    assert "img" not in elements.names
    links = {attribute for attribute in elements.loaded if not attribute.startswith("a href=#")}
    assert links == {"link href=data:,"}
    assert "\x1b" not in page


def test_report_html_policy_names_its_scripts() -> None:
    content = r'Content-Security-Policy" content="([^"]*)"'
    (policy,) = re.findall(content, report.report_html(HEALTHY))
    assert "default-src 'none'" in policy
    assert len(re.findall(r"'sha256-[\w+/]{43}='", policy)) == 2
    assert "connect-src 'none'" in policy
    assert "connect-src 'self'" in report.report_html(HEALTHY, refresh_seconds=5)


def test_report_html_is_small_enough_to_send() -> None:
    assert len(report.report_html(HEALTHY).encode()) < 1_000_000


@pytest.mark.parametrize(
    ("overview", "title", "tone"),
    [
        (HEALTHY, "healthy", "good"),
        (replace(HEALTHY, audit=Audit({}, (LOST,))), "not healthy", "bad"),
        (replace(HEALTHY, seen=OVERVIEW.seen), "not healthy", "bad"),
        (replace(HEALTHY, unreadable=("ops.runs: corrupt",)), "not healthy", "bad"),
        (
            replace(HEALTHY, seen=replace(OVERVIEW.seen, verdict=WARNING)),
            "healthy, with 1 warning",
            "warn",
        ),
    ],
)
def test_report_html_verdict(overview: Overview, title: str, tone: str) -> None:
    page = report.report_html(overview)
    (line,) = re.findall(r'<section id="verdict" class="verdict (\w+)">\s*<h2>(.*?)</h2>', page)
    assert line == (tone, title)


def test_write_report_is_atomic_or_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert report.write_report(OVERVIEW, page) == str(page)
    assert page.read_text(encoding="utf-8") == report.report_html(OVERVIEW)
    with pytest.raises(UsageError, match=r"--output .*/none/page.html: there is no such folder"):
        report.write_report(OVERVIEW, tmp_path / "none" / "page.html")
    os.mkfifo(pipe := tmp_path / "pipe")  # like a device: it is not replaced
    for path in (tmp_path, Path("/"), pipe):
        with pytest.raises(UsageError, match=f"{path}: not a regular file; name a file"):
            report.write_report(OVERVIEW, path)
    assert pipe.is_fifo()
    (link := tmp_path / "link").symlink_to(page)
    page.write_text("older")
    assert report.write_report(OVERVIEW, link) == str(link)
    assert page.read_text(encoding="utf-8") == report.report_html(OVERVIEW)
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, page, pipe]
