"""Write the lakehouse of this directory with the code of another state of the project.

Run it in a worktree of that state; `README.md` has the call.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from medallion.config.loader import load
from medallion.runtime.erase import Request, erase_rows
from medallion.runtime.opening import open_pipeline
from medallion.runtime.refresh import refresh_table
from medallion.runtime.replay import replay_rows
from medallion.storage.paths import StoragePath
from tests.support.broker import running
from tests.support.lakehouse import rows_of

ITEMS = "array<struct<sku: string, qty: long>>"
PIPELINE: dict[str, Any] = {
    "sources": {
        "orders": {
            "schema": {"id": "long", "at": "timestamp", "city": "string", "items": ITEMS},
            "silver": {"order_id": "id", "ordered_at": "at", "city": "city", "items": "items"},
            "event_time": "ordered_at",
            "keys": ["order_id", "ordered_at"],
        },
        "customers": {
            "schema": {"id": "long", "name": "string", "at": "timestamp", "op": "string"},
            "silver": {"customer_id": "id", "name": "name"},
            "keys": ["customer_id"],
            "cdc": {
                "sequence_by": "at",
                "apply_as_deletes": "op = 'd'",
                "stored_as_scd_type": 2,
            },
        },
        "visits": {
            "format": "csv",
            "silver": {"page": "page", "visited_at": "at", "visit_id": "id"},
            "hints": {"at": "timestamp"},
            "event_time": "visited_at",
            "keys": ["visit_id"],
        },
        "clicks": {
            "format": "kafka",
            "servers": [],
            "topics": ["clicks"],
            "schema": "infer",
            "silver": {"at": "at", "person": "user"},
            "event_time": "at",
            "keys": ["person", "at"],
        },
    },
    "silver": {
        "order_items": {
            "source": "silver.orders",
            "explode": "items",
            "columns": {"order_id": "order_id", "sku": "item.sku", "qty": "item.qty"},
            "keys": ["order_id", "sku"],
        },
    },
    "gold": {
        "sold": {
            "source": "silver.order_items",
            "group_by": ["sku"],
            "measure": {"qty": "sum(qty)"},
        },
        "per_day": {
            "source": "silver.orders",
            "window": "1 day",
            "group_by": ["city"],
            "measure": {"orders": "count(*)"},
            "output_mode": "update",
        },
        "names": {
            "source": "silver.customers",
            "group_by": ["name"],
            "measure": {"versions": "count(*)"},
        },
    },
}


def order(number: int, at: str, city: str | None, *items: tuple[str, int]) -> str:
    listed = [{"sku": sku, "qty": qty} for sku, qty in items]
    return json.dumps({"id": number, "at": f"2026-05-{at}:00Z", "city": city, "items": listed})


def customer(number: int, name: str, at: str, op: str = "u") -> str:
    return json.dumps({"id": number, "name": name, "at": f"2026-05-{at}:00Z", "op": op})


FILES: dict[str, dict[str, dict[str, list[str]]]] = {
    "first": {
        "orders": {
            "a.json": [
                order(1, "01T10:00", "Rome", ("nut", 5), ("bolt", 2)),
                order(2, "01T10:05", "Oslo", ("nut", 1)),
                order(2, "01T10:05", "Oslo", ("nut", 1)),  # a duplicate
                order(3, "01T10:10", None, ("cog", 1)),  # to quarantine
                "{no JSON",
            ],
            "b.json": [
                order(4, "01T23:00", "Rome", ("cog", 3), ("cog", 4)),
                '{"id": 5, "at": "2026-05-01T23:30:00Z", "city": "Oslo", "items": [], "tip": 1}',
            ],
        },
        "customers": {
            "a.json": [customer(1, "Ada", "01T08:00"), customer(2, "Bob", "01T08:00")],
        },
        "visits": {
            "a.csv": ["id,at,page", "1,2026-05-01T09:00:00Z,home", "2,2026-05-01T09:01:00Z,"],
        },
    },
    "second": {
        "orders": {
            "c.json": [
                order(6, "02T09:00", "Rome", ("nut", 2)),
                order(7, "01T09:00", "Oslo", ("gear", 1)),  # late
                order(4, "01T23:00", "Rome", ("cog", 3)),  # a duplicate of the first run
            ],
        },
        "customers": {
            "b.json": [
                customer(1, "Eve", "02T08:00"),  # the gate refuses this name
                customer(2, "Bob", "02T08:00", "d"),
            ],
        },
        "visits": {"b.csv": ["id,at,page", "3,2026-05-02T09:00:00Z,home"]},
    },
    "next": {
        "orders": {
            "d.json": [
                order(8, "02T12:00", "Oslo", ("bolt", 1)),
                order(6, "02T09:00", "Rome", ("nut", 2)),  # a duplicate of the second run
                order(9, "01T08:00", "Rome", ("gear", 2)),  # late
            ],
        },
        "customers": {"c.json": [customer(3, "Cyd", "03T08:00"), customer(1, "Ada", "03T08:00")]},
        "visits": {
            "c.csv": ["id,at,page", "3,2026-05-02T09:00:00Z,home", "4,2026-05-03T09:00:00Z,help"],
        },
    },
    "backfill": {"orders": {"old.json": [order(10, "01T07:00", "Oslo", ("nut", 7))]}},
}
VOLATILE = {"_ingested_at"}


class Died(BaseException):
    """Stands for the end of the process."""


def dying_after(pattern: str, run: Callable[[], object]) -> None:
    """Run a command that dies after it has written a file whose path and content match."""
    write = StoragePath.write_atomic

    def write_and_die(path: StoragePath, data: str | bytes) -> None:
        write(path, data)
        if all(part in f"{path} {data!r}" for part in pattern.split()):
            raise Died

    with patch.object(StoragePath, "write_atomic", write_and_die):
        try:
            run()
        except Died:
            return
    raise AssertionError(f"nothing was written to {pattern}")


def medallion(*arguments: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "medallion", *arguments], check=False)
    assert ended.returncode in (0, 1), arguments


def request_backfill(folder: Path) -> None:
    """Request a backfill from this process, which holds the locks, and kill the command."""
    command = [sys.executable, "-m", "medallion", "backfill", "orders", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert any("requested from" in line for line in process.stdout)
        process.kill()


def write_files(folder: Path, files: dict[str, list[str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, lines) in enumerate(files.items()):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.utime(folder / name, (1777626000 + number, 1777626000 + number))


def write_suite(conf: Path, table: str, *expectations: tuple[str, str, dict[str, Any]]) -> None:
    file = conf / f"great_expectations/expectations/{table.replace('.', '/')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    listed = [
        {"type": type_, "kwargs": kwargs, "meta": {"name": type_, "on_failure": on_failure}}
        for type_, on_failure, kwargs in expectations
    ]
    file.write_text(json.dumps({"name": table, "expectations": listed}), encoding="utf-8")


def write_rows(root: Path, file: Path, tables: Iterable[str]) -> None:
    """Write the rows of tables without the columns that differ in each run."""
    rows = {}
    for table in sorted(tables):
        folder = root / table.replace(".", "/")
        columns = [c for c in columns_of(folder) if c not in VOLATILE]
        rows[table] = {"columns": columns, "rows": rows_of(folder, *columns)}
    file.write_text(json.dumps(rows, default=str, indent=1) + "\n", encoding="utf-8")


def columns_of(table: Path) -> list[str]:
    from deltalake import DeltaTable

    return sorted(field.name for field in DeltaTable(table).schema().fields)


def write(folder: Path) -> None:
    root, conf = folder / "root", folder / "conf"
    os.environ |= {"MEDALLION_HOME": str(root), "MEDALLION_CONF": str(conf)}
    (folder / "broker").mkdir(parents=True)
    with running(folder / "broker") as broker:
        broker.create("clicks")
        PIPELINE["sources"]["clicks"]["servers"] = [broker.server]
        conf.mkdir(parents=True)
        (conf / "pipeline.yaml").write_text(yaml.safe_dump(PIPELINE), encoding="utf-8")
        not_null = "expect_column_values_to_not_be_null"
        names = {"column": "name", "value_set": ["Ada", "Bob"]}
        write_suite(conf, "silver.orders", (not_null, "quarantine", {"column": "city"}))
        write_suite(conf, "silver.visits", (not_null, "quarantine", {"column": "page"}))
        write_suite(conf, "silver.customers", ("expect_column_values_to_be_in_set", "stop", names))
        for number, run in enumerate(("first", "second")):
            for source, files in FILES[run].items():
                write_files(root / "landing" / source, files)
            at = f"2026-05-0{number + 1}T10:00:00Z"
            broker.send("clicks", json.dumps({"user": "p", "at": at}))
            medallion("nightly")
        write_files(root / "old", FILES["backfill"]["orders"])
        config = load(dict(os.environ), folder)
        request = Request("silver.visits", "visit_id = 3", cascade=True)
        with open_pipeline(config, "test", ["bronze", "silver", "gold"], print) as pipeline:
            dying_after(ERASE.strip("*"), lambda: erase_rows(pipeline, request))
            (erase_plan,) = root.glob(ERASE)
            shutil.copy(erase_plan, folder / "erase.json")
            erase_plan.unlink()
            write_suite(conf, "silver.visits", (not_null, "warn", {"column": "page"}))
            dying_after(REPLAY, lambda: replay_rows(pipeline, "visits", None))
            dying_after(REFRESH, lambda: refresh_table(pipeline, "silver.orders"))
            request_backfill(root / "old")
        shutil.copytree(root, folder / "after")
        write_files(folder / "next", {})
        for source, files in FILES["next"].items():
            write_files(folder / "next" / source, files)
            write_files(folder / "after/landing" / source, files)
        os.environ["MEDALLION_HOME"] = str(folder / "after")
        medallion("nightly")
    for state in ("root", "after"):
        tables = load({**os.environ, "MEDALLION_HOME": str(folder / state)}, folder).layout.tables()
        written = [table for table in tables if not table.startswith("ops.")]
        write_rows(folder / state, folder / f"{state}.json", written)


# The file after which a command dies, by whether the state has the journal.
ERASE, REPLAY, REFRESH = (
    ("_journal/erase-*", "_journal/replay-", '_journal/refresh-silver.orders ["silver.orders"')
    if find_spec("medallion.state.journal")
    else (
        "_erase/plan.json",
        "_checkpoints/silver.visits/ quarantine_version",
        '_refresh/plan.json ["silver.orders"',
    )
)

if __name__ == "__main__":
    write(Path(sys.argv[1]))
