"""The report in Chromium: nothing overflows, fails or is loaded, and all charts are drawn."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from medallion.cli import report
from tests.support.home import Home
from tests.support.overview import OVERVIEW
from tests.support.runs import record

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (400, 800, 1440)
TOO_WIDE = """[...document.querySelectorAll("main > section, article, .chart")].filter(
    e => !e.closest(".scroll") && e.getBoundingClientRect().right > innerWidth).length"""
THIRD_CELLS = """[...document.querySelectorAll('[data-table="gold.counts"] tbody tr')].map(
    row => row.cells[2].textContent)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install -e '.[browser]'")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(browser: Any, url: str, width: int, scheme: str) -> tuple[Any, list[str]]:
    """Return the opened page, and its errors and requests."""
    viewport, events = {"width": width, "height": 900}, list[str]()
    page = browser.new_page(viewport=viewport, color_scheme=scheme)
    page.on("console", lambda message: events.append(message.text))
    page.on("pageerror", lambda error: events.append(str(error)))
    page.on("dialog", lambda dialog: events.append(dialog.message))
    page.on("request", lambda request: events.append(request.url))
    page.goto(url)
    return page, events


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    file: Path = tmp_path_factory.mktemp("report") / "page.html"
    report.write_report(OVERVIEW, file)
    return file.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_and_loads_nothing(browser: Any, url: str, width: int, scheme: str) -> None:
    page, events = open_page(browser, url, width, scheme)
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    assert page.evaluate(TOO_WIDE) == 0
    drawn = "[...document.querySelectorAll('[data-chart]')].map(e => !!e.querySelector('svg path'))"
    assert set(page.evaluate(drawn)) == {True}
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background.strip("rgb()").split(","))) < 300) == (scheme == "dark")
    assert events == [url]
    page.close()


def test_tables_sort_and_filter(browser: Any, url: str) -> None:
    page, _ = open_page(browser, url, 1440, "light")
    box = page.locator('[data-table="gold.counts"]')
    assert page.evaluate(THIRD_CELLS) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    header = box.get_by_role("button", name="n", exact=True)
    header.click()
    header.click()
    assert page.evaluate(THIRD_CELLS) == ["3", "3", "2", "2", "1", "1", "0", "0"]
    box.get_by_placeholder("filter rows").fill("PHONE")
    assert page.evaluate(THIRD_CELLS) == ["3", "2", "1", "0"]
    assert box.get_by_text("4 of 8 rows").is_visible()
    page.close()


def test_chart_of_another_measure(browser: Any, url: str) -> None:
    page, events = open_page(browser, url, 800, "dark")
    figure = page.locator("figure", has=page.locator('[data-chart="gold:gold.counts"]'))
    before = figure.locator("svg").inner_html()
    figure.get_by_label("measure").select_option("n")  # the last one, mean, is shown first
    assert figure.locator("svg").inner_html() != before
    assert events == [url]
    page.close()


def test_served_page_refreshes_itself(
    browser: Any, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New content replaces the old content; the filter of a table is kept."""
    monkeypatch.setattr(report, "REFRESH_SECONDS", 1)
    home.layout.root.local.mkdir(parents=True)
    for _ in range(7):
        record(home.config, "bronze.activity", rows_in=1)
    server = report.ReportServer(home.config, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page, _ = open_page(browser, f"http://127.0.0.1:{server.server_port}/", 800, "light")
    table = page.locator('[data-table="runs"]')
    table.get_by_placeholder("filter rows").fill("activity")
    table.get_by_placeholder("filter rows").blur()
    record(home.config, "bronze.activity", rows_in=7654321)
    table.get_by_text("8 rows").wait_for()
    assert table.get_by_text("7,654,321").is_visible()
    assert table.get_by_placeholder("filter rows").input_value() == "activity"
    server.shutdown()
    server.server_close()
    page.close()
