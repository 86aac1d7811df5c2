"""`medallion erase`: a person is removed from tables, state, aggregates, files and records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from medallion.errors import UsageError
from medallion.inspect.audit import Audit, run_audit
from medallion.runtime import erase, refresh
from medallion.runtime.erase import Request
from medallion.state import journal
from medallion.state.journal import Entry, Erasure
from medallion.storage.layout import LAYERS, PUBLISH
from tests.support import runs
from tests.support.lakehouse import Lakehouse
from tests.support.steps import repeated_steps

ALICE = "customer = 'Alice'"
ORDERS = {
    "schema": {"order_id": "string", "customer": "string", "amount": "double", "at": "timestamp"},
    "silver": {"order_id": "order_id", "customer": "customer", "amount": "amount", "at": "at"},
    "event_time": "at",
    "keys": ["order_id", "customer", "at"],
    "watermark": "1 hour",
}
PEOPLE = {
    "format": "csv",
    "schema": {"name": "string", "city": "string", "at": "timestamp"},
    "silver": {"name": "name", "city": "city", "at": "at"},
    "event_time": "at",
    "keys": ["name", "at"],
    "watermark": "1 hour",
}
GOLD = {
    "spent": {
        "source": "silver.orders",
        "group_by": ["customer"],
        "measure": {"total": "sum(amount)", "orders": "count(*)"},
        "output_mode": "update",
        "publish": {"files": {"format": "json"}},
    },
}


def order(number: str, customer: str, amount: Any, time: str) -> str:
    at = f"2026-01-01T{time}:00Z"
    return json.dumps({"order_id": number, "customer": customer, "amount": amount, "at": at})


BOB = order("3", "Bob", 7, "15:00")
FIRST = [
    order("1", "Alice", 10, "10:00"),
    order("1", "Alice", 10, "10:00"),
    order("2", "Alice", "Alice pays", "10:30"),  # quarantined
    BOB,
    "{broken",
]
# The first is late, the last a duplicate.
SECOND = [order("5", "Alice", 20, "09:00"), *[order("6", "Bob", 1, "16:00")] * 2]
CSV = 'name,city,at\n"Alice","Rome",2026-01-01T10:00:00Z\n"Bob","Oslo",2026-01-01T10:00:00Z\n'


def run(lakehouse: Lakehouse) -> None:
    lakehouse.fill(*LAYERS, PUBLISH)


@pytest.fixture(scope="module")
def two_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    folder = tmp_path_factory.mktemp("erase")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    sources = {"orders": ORDERS, "people": PEOPLE}
    lakehouse.configure(folder, {"sources": sources, "gold": GOLD})
    for suite in (lakehouse.config.expectations / "expectations").glob("*.json"):
        suite.unlink()
    lakehouse.land("orders", "a.json", *FIRST)
    compressed = lakehouse.land("orders", "b.json.gz")
    compressed.write_bytes(gzip.compress(f"{order('4', 'Bob', 3, '15:10')}\n".encode()))
    lakehouse.land("people", "p.csv").write_text(CSV)
    lakehouse.fill("bronze", "silver")
    lakehouse.land("orders", "c.json", *SECOND)
    run(lakehouse)
    assert figures(lakehouse) == (9, 9, 5, 2, 2, 0)
    assert spent(lakehouse) == [("Alice", 30.0, 2), ("Bob", 11.0, 3)]
    return lakehouse


@pytest.fixture
def filled(two_runs: Lakehouse, tmp_path: Path) -> Lakehouse:
    return two_runs.copy(tmp_path / "lakehouse")


def balanced_audit(lakehouse: Lakehouse, everything: bool = False) -> Audit:
    audit = run_audit(lakehouse.config, everything)
    assert audit.is_balanced, audit
    return audit


def figures(lakehouse: Lakehouse) -> tuple[int, ...]:
    balance = balanced_audit(lakehouse).balances["orders"]
    rows = (
        balance.landed_lines,
        balance.bronze_rows,
        balance.silver_rows,
        balance.quarantined_rows,
    )
    return (*rows, balance.duplicate_rows, balance.erased_rows)


def spent(lakehouse: Lakehouse) -> list[tuple[Any, ...]]:
    return lakehouse.rows("gold.spent", "customer", "total", "orders")


def files_with(root: Path, name: bytes) -> set[str]:
    """Return the files that contain a name: as bytes, compressed, or in a Parquet column."""
    names = set()
    for file in filter(Path.is_file, root.rglob("*")):
        content = file.read_bytes()
        if file.suffix == ".gz":
            content += gzip.decompress(content)
        if content.startswith(b"PAR1"):
            content += repr(pq.read_table(file, partitioning=None).to_pylist()).encode()
        if name in content:
            names.add(str(file.relative_to(root)))
    return names


ERASED = {"bronze.orders": 4, "silver.orders": 2, "quarantine.orders": 1}


@pytest.fixture(scope="module")
def erased(two_runs: Lakehouse, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse whose orders of Alice are purged; each step has run twice."""
    lakehouse = two_runs.copy(tmp_path_factory.mktemp("erased") / "lakehouse")
    erase_from_people(lakehouse, purge=False)
    with repeated_steps():
        request = Request("silver.orders", ALICE, cascade=True, purge=True)
        result = erase.erase_rows(lakehouse.pipeline(), request)
    assert result.erasure.rows == ERASED
    assert result.erasure.undecided == 1  # {broken
    return lakehouse


def erase_from_people(lakehouse: Lakehouse, purge: bool) -> None:
    runs.record(lakehouse.config, "nightly", kind="run", state="failed", error="Alice is no number")
    assert len(files_with(lakehouse.root, b"Alice")) > 10
    request = Request("silver.people", "name = 'Alice'", cascade=True, purge=purge)
    erasure = erase.erase_rows(lakehouse.pipeline(), request).erasure
    assert erasure.rows == {"bronze.people": 1, "silver.people": 1, "quarantine.people": 0}
    assert lakehouse.rows("silver.people", "name", "city") == [("Bob", "Oslo")]
    assert figures(lakehouse) == (9, 9, 5, 2, 2, 0), "the other source is unchanged"
    assert files_with(lakehouse.root, str(request.condition).encode()) == set()


def test_erase_dry_run_counts(two_runs: Lakehouse) -> None:
    before = {file: file.stat().st_mtime_ns for file in two_runs.root.rglob("*")}
    request = Request("silver.orders", ALICE, is_dry_run=True)
    result = erase.erase_rows(two_runs.pipeline(), request)
    erasure = result.erasure
    assert erasure.rows == ERASED
    assert not any(note.startswith("Other tables") for note in result.notes)
    assert {(o.location, o.rows, o.action) for o in erasure.origins} == {
        ("archive/orders/a.json", 3, "deleted"),
        ("archive/orders/c.json", 1, "deleted"),
    }
    assert {file: file.stat().st_mtime_ns for file in two_runs.root.rglob("*")} == before


def test_erase_names_tables_with_the_column(two_runs: Lakehouse) -> None:
    request = Request("silver.people", "at is null", is_dry_run=True)
    notes = erase.erase_rows(two_runs.pipeline(), request).notes
    (note,) = (each for each in notes if each.startswith("Other tables with a column at are not"))
    tables = {*note.rstrip(".").partition(": ")[2].split(", ")}
    assert tables == {"bronze.orders", "quarantine.orders", "silver.orders"}


def test_erase_one_person(erased: Lakehouse) -> None:
    """The rows are removed from tables, files and aggregates; the record has their number."""
    # The other rows of the deleted files are in bronze.
    assert [file.name for file in (erased.root / "archive/orders").iterdir()] == ["b.json.gz"]
    assert figures(erased) == (9, 5, 3, 1, 1, 4)
    assert spent(erased) == [("Bob", 11.0, 3)]
    balanced_audit(erased, everything=True)
    runs = erased.rows("ops.runs", "query", "state", "rows_in", "duplicate_rows", "late_rows")
    assert ("silver.orders", "refreshed", 5, 1, 0) in runs
    assert journal.read_entries(erased.config, Erasure) == []
    rows = erased.rows("ops.erasures", "item", "action", "rows")
    assert ("bronze.orders", "erased", 4) in rows
    assert ("landing/orders/a.json", "deleted", 3) in rows
    assert ("gold.spent", "rebuilt", None) in rows


def test_purge_leaves_no_byte(erased: Lakehouse) -> None:
    """Also none of the condition, and of an error that quoted a value; her row of people may."""
    assert not [name for name in files_with(erased.root, b"Alice") if "/people/" not in name]
    assert files_with(erased.root, b"Bob") != set()


def test_erased_rows_do_not_return(erased: Lakehouse, tmp_path: Path) -> None:
    """They do not return with the next run, or with the same file."""
    check_next_run(erased.copy(tmp_path / "lakehouse"))


def check_next_run(lakehouse: Lakehouse) -> None:
    lakehouse.land("orders", "d.json", order("7", "Carol", 2, "17:00"))
    lakehouse.land("orders", "a.json", *FIRST)  # the ledger refuses its name
    run(lakehouse)
    assert spent(lakehouse) == [("Bob", 11.0, 3), ("Carol", 2.0, 1)]
    assert figures(lakehouse) == (10, 6, 4, 1, 1, 4)


@pytest.mark.slow  # `erased` runs each step twice, and test_journal kills at each write
def test_interrupted_purge_leaves_no_byte(
    filled: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is repeated, because the process dies before it marks the step as done."""
    erase_from_people(filled, purge=True)
    interrupted, write = set[Any](), journal.write_entry

    def interrupt_once(layout: Any, entry: Entry[Any]) -> None:
        if entry.command == "erase" and entry.done and entry.done not in interrupted:
            interrupted.add(entry.done)
            raise KeyboardInterrupt
        write(layout, entry)

    monkeypatch.setattr(journal, "write_entry", interrupt_once)
    request = Request("silver.orders", ALICE, cascade=True, purge=True)
    while True:
        try:
            erase.erase_rows(filled.pipeline(), request)
            break
        except KeyboardInterrupt:
            with (
                pytest.raises(UsageError, match="medallion erase, without arguments"),
                journal.lock_layers(filled.config, LAYERS, "nightly"),
            ):
                pass
            assert not run_audit(filled.config).is_balanced
            request = Request()
    assert len(interrupted) == 6
    assert files_with(filled.root, b"Alice") == set()
    assert files_with(filled.root, b"Bob") != set()
    assert figures(filled) == (9, 5, 3, 1, 1, 4)
    assert spent(filled) == [("Bob", 11.0, 3)]
    check_next_run(filled)
    refresh.refresh_table(filled.pipeline(), "silver.orders")
    assert figures(filled) == (10, 6, 4, 1, 1, 4)
    assert spent(filled) == [("Bob", 11.0, 3), ("Carol", 2.0, 1)]
    balanced_audit(filled, everything=True)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("custmer = 1", "custmer"),
        ("amount", "neither true nor false"),
        ("at < current_timestamp()", "current time"),
    ],
)
def test_erase_refuses_conditions(two_runs: Lakehouse, condition: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        erase.erase_rows(two_runs.pipeline(), Request("silver.orders", condition, cascade=True))


def test_erase_refuses_unread_input(filled: Lakehouse) -> None:
    filled.land("orders", "d.json", order("7", "Carol", 2, "17:00"))
    request = Request("silver.orders", ALICE, cascade=True)
    with pytest.raises(UsageError, match=r"bronze.orders .*new input.* nightly first"):
        erase.erase_rows(filled.pipeline(), request)
