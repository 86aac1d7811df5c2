"""What a gate found, in words and on a page: what landed is anybody's text."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from medallion.quality.gates import Gates, escaped_for_html
from medallion.storage.paths import StoragePath
from tests.support import PROJECT

EVIL = "</pre></td><script>alert(1)</script><img src=x onerror=alert(2)>&amp;"
SHOWN = "&lt;/pre&gt;&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("<b>", "&lt;b&gt;"),
        ('it\'s "plain"', 'it\'s "plain"'),
        ({"<k>": ["<v>", 1, None, True]}, {"&lt;k&gt;": ["&lt;v&gt;", 1, None, True]}),
        (Row(a="<v>", b=2), ["&lt;v&gt;", 2]),
        (b"<v>", "b'&lt;v&gt;'"),
        (NOW, NOW),
        ([Decimal("1.50"), 2.5], [Decimal("1.50"), 2.5]),
    ],
)
def test_values_are_escaped(value: Any, shown: Any) -> None:
    assert escaped_for_html(value) == shown


class Tags(HTMLParser):
    """The scripts and the handlers of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}={value}" for name, value in attrs if name == "onerror"]

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and "alert(1)" in data:
            self.found.append(data)


def test_data_docs_run_no_landed_scripts(spark: SparkSession, tmp_path: Path) -> None:
    """In a list of values, in rows that a query found, in a value observed, in an error's words."""
    conf, column = tmp_path / "conf", "device"
    shutil.copytree(PROJECT / "conf/great_expectations", conf / "great_expectations")
    kinds: dict[str, dict[str, Any]] = {
        "expect_column_values_to_be_in_set": {"column": column, "value_set": ["good"]},
        "unexpected_rows_expectation": {
            "unexpected_rows_query": "SELECT * FROM {batch} WHERE device <> 'good'"
        },
        "expect_column_distinct_values_to_be_in_set": {"column": column, "value_set": ["good"]},
        "expect_column_values_to_be_between": {"column": EVIL, "max_value": 1},
    }
    expectations = [
        {"type": kind, "kwargs": kwargs, "meta": {"name": f"<i>{kind}", "on_failure": "warn"}}
        for kind, kwargs in kinds.items()
    ]
    suite = conf / "great_expectations/expectations/silver/evil.json"
    suite.write_text(json.dumps({"name": "silver.evil", "expectations": expectations}))
    gates = Gates(conf, StoragePath(tmp_path / "results"))
    verdict = gates.validate("silver.evil", spark.createDataFrame([(EVIL,), ("good",)], [column]))
    assert verdict is not None
    assert len(verdict.failures) == 4
    assert EVIL in verdict.failures[0].examples[0]  # a terminal gets what it can show, elsewhere
    assert gates.build_docs() is not None
    pages = list((tmp_path / "results/data_docs").rglob("*.html"))
    assert [found for page in pages for found in Tags(page.read_text()).found] == []
    (validated,) = (page.read_text() for page in pages if "evil" in str(page.parent))
    assert SHOWN in validated
