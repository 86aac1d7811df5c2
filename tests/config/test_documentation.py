"""The examples of the documentation are valid, and the reference is that of the code."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

from medallion.config.loader import load
from medallion.quality.suites import read_suite, suite_path
from tests.support import PROJECT
from tools import reference


def test_a_source_its_rules_and_a_table_of_gold(tmp_path: Path) -> None:
    text = (PROJECT / "docs/configuration.md").read_text(encoding="utf-8")
    steps = text[text.index("## Add a source") : text.index("That is all.")]
    blocks = re.findall(r"^ *```(\w+)\n(.*?)^ *```", steps, re.DOTALL | re.MULTILINE)
    source, rules, gold = (dedent(block) for _, block in blocks)
    (tmp_path / "pipeline.yaml").write_text(source + gold)
    suite = suite_path(tmp_path, "silver.sales")
    suite.parent.mkdir(parents=True)
    suite.write_text(rules)

    config = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    assert (list(config.sources), list(config.gold)) == (["sales"], ["sales_by_day"])
    assert [(one.name, one.on_failure) for one in read_suite(tmp_path, "silver.sales")] == [
        ("missing_event_time", "quarantine"),
        ("future_event_time", "quarantine"),
        ("amount_above_0", "quarantine"),
    ]


def test_reference_is_up_to_date() -> None:
    """Run .venv/bin/python tools/reference.py if this fails."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page()
