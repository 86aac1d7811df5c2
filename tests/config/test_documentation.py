"""Examples in the documentation are valid, and the reference matches the code."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from medallion.config.loader import load
from medallion.inspect.problems import ProblemCode
from medallion.quality.suites import read_suite, suite_path
from tests.support import PROJECT
from tools import reference


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each code block of a page."""
    text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_getting_started_is_a_valid_configuration(tmp_path: Path) -> None:
    examples = dict(blocks("getting-started.md"))
    (tmp_path / "pipeline.yaml").write_text(examples["yaml"])
    suite = suite_path(tmp_path, "silver.sales")
    suite.parent.mkdir(parents=True)
    suite.write_text(examples["json"])

    config = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    assert (list(config.sources), list(config.gold)) == (["sales"], ["sales_by_day"])
    assert [
        (expectation.name, expectation.on_failure)
        for expectation in read_suite(tmp_path, "silver.sales")
    ] == [
        ("missing_amount", "quarantine"),
    ]
    header = examples["csv"].splitlines()[0].split(",")
    sql = " ".join(config.sources["sales"].silver.values())
    assert [field for field in header if not re.search(rf"\b{field}\b", sql)] == []


def test_changing_tables_page_is_a_valid_configuration(tmp_path: Path) -> None:
    yaml_blocks = (text for name, text in blocks("tables-that-change.md") if name == "yaml")
    example, dumps, defaults, tables = yaml_blocks
    (tmp_path / "pipeline.yaml").write_text(dumps)
    dump = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path).sources["customers"].cdc
    assert dump is not None
    assert (dump.snapshot, dump.sequence_by) == (True, "_source_modified_at")
    (tmp_path / "pipeline.yaml").write_text(example)
    sources = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path).sources
    scd_types = {
        name: source.cdc and source.cdc.stored_as_scd_type for name, source in sources.items()
    }
    assert scd_types == {"orders": 1, "customers": 2}
    document = yaml.safe_load(example)
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document | yaml.safe_load(tables)))
    config = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    assert config.changing_tables == {"silver.orders", "silver.customers", "silver.order_items"}
    del document["sources"]["customers"]["cdc"]
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document))
    cdc = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path).sources["customers"].cdc
    assert cdc is not None
    assert yaml.safe_load(defaults)["cdc"] == {
        "sequence_by": cdc.sequence_by,
        "apply_as_deletes": cdc.apply_as_deletes,
        "apply_as_truncates": cdc.apply_as_truncates,
        "unavailable_value": cdc.unavailable_value,
    }


def test_complete_project_is_a_valid_configuration(tmp_path: Path) -> None:
    examples = dict(blocks("example.md"))
    (tmp_path / "pipeline.yaml").write_text(examples["yaml"])
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold/revenue_by_segment.sql").write_text(examples["sql"])
    suite = suite_path(tmp_path, "silver.orders")
    suite.parent.mkdir(parents=True)
    suite.write_text(examples["json"])
    config = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path)
    assert list(config.sources) == ["orders", "customers", "clicks"]
    assert list(config.gold) == [
        *("orders_by_country", "revenue_by_day", "visits", "revenue_by_segment"),
    ]
    assert len(read_suite(tmp_path, "silver.orders")) == 2


def test_runbook_has_each_problem_once() -> None:
    page = (PROJECT / "docs/runbook.md").read_text(encoding="utf-8")
    table = page.split("## By problem")[1].split("\n## ")[0]
    firsts = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    assert [code for first in firsts for code in re.findall(r"\w+", first)] == [*ProblemCode]


def test_examples_of_gold_are_valid(tmp_path: Path) -> None:
    """They use the sources of the project."""
    gold = next(text for _, text in blocks("configuration.md") if text.startswith("gold:"))
    sources = (PROJECT / "conf/pipeline.yaml").read_text().split("\ngold:")[0]
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold/open_devices.sql").write_text("SELECT device FROM silver.event")
    (tmp_path / "pipeline.yaml").write_text(f"{sources}\n{gold}")
    tables = load({"MEDALLION_CONF": str(tmp_path)}, tmp_path).gold
    assert list(tables) == [
        *("model_counts", "daily_recordings", "device_sessions", "open_devices"),
        "recordings_near_opens",
    ]


def test_keys_of_examples_are_in_the_reference() -> None:
    """Examples of sources are parts of an entry; each key has a row in the reference."""
    known = set(re.findall(r"^\| `(\w+)` \|", reference.page(), re.MULTILINE))
    parts = [yaml.safe_load(text) for name, text in blocks("configuration.md") if name == "yaml"]
    names = {"sources", "gold", "maintain", "clicks"}
    for part in parts:
        entries = [part, part.get("clicks", {}), *part.get("gold", {}).values()]
        keys = {key for entry in entries for key in entry} - names
        assert keys <= known


def test_links_of_pages_are_valid() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]
    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        if not link.startswith("http") and not is_valid_link(page, link)
    ]
    assert broken == []


def is_valid_link(page: Path, link: str) -> bool:
    """Return whether a relative link names an existing file and heading."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists() or not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.+)", target.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


def test_reference_is_up_to_date() -> None:
    """If this fails, run `make reference`."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page()
    assert reference.INDEX.read_text(encoding="utf-8") == reference.index()
