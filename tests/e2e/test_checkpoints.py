"""Checkpoints that are missing, truncated or damaged, and settings that they keep."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession

from medallion.config.values import Duration
from medallion.errors import MedallionError
from medallion.inspect.audit import run_audit
from medallion.runtime import refresh
from medallion.spark import checkpoints
from medallion.spark.checkpoints import last_planned
from medallion.spark.errors import StreamError
from medallion.state import ledger
from medallion.storage import delta_tables
from tests.support.lakehouse import Lakehouse
from tests.support.runs import ends_idle
from tests.support.settings import changed_settings
from tests.support.three_nights import FIRST, NAME, SECOND, THIRD, recording

QUERIES = ("bronze.recordings", "silver.recordings", "gold.device_totals")
AFTER_FIRST = [("phone", 4)]
AFTER_SECOND = [("other", 1), ("phone", 6)]


@pytest.fixture(scope="module")
def second_ingested(after_first_run: Lakehouse, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of a lakehouse whose second file is in bronze."""
    lakehouse = after_first_run.copy(tmp_path_factory.mktemp("second") / "lakehouse")
    lakehouse.land(NAME, "1.json", *SECOND)
    lakehouse.fill("bronze")
    return lakehouse.root


@pytest.fixture
def waiting(after_first_run: Lakehouse, second_ingested: Path, tmp_path: Path) -> Lakehouse:
    """Return a copy of that lakehouse, which tests may change."""
    lakehouse = Lakehouse(after_first_run.spark, second_ingested)
    lakehouse.config = replace(after_first_run.config, layout=lakehouse.layout)
    return lakehouse.copy(tmp_path / "lakehouse")


def test_missing_checkpoints(filled: Lakehouse) -> None:
    """Bronze continues from its ledger, silver is not written twice, and gold is recomputed.

    test_refresh repairs such a silver table.
    """
    lakehouse = filled
    layout = lakehouse.config.layout
    before = {name: lakehouse.rows(name) for name in QUERIES[1:]}
    for name in QUERIES:
        shutil.rmtree(layout.checkpoint(name))
    lakehouse.land(NAME, "1.json", *SECOND)
    lakehouse.run("bronze")
    assert delta_tables.row_count(layout.table("bronze.recordings")) == len(FIRST) + len(SECOND)
    with pytest.raises(MedallionError, match=r"medallion refresh silver\.recordings"):
        lakehouse.fill("silver")
    lakehouse.fill("gold")
    assert {name: lakehouse.rows(name) for name in before} == before
    assert last_planned(layout.checkpoint("gold.device_totals")) == 0, "it was recomputed"


@pytest.mark.parametrize("lost", ["ledger", "queue", "plan"])
def test_older_ledger_queue_or_plan_of_bronze(
    after_first_run: Lakehouse, waiting: Lakehouse, lost: str
) -> None:
    """The ledger is repaired from bronze's log, and each file is ingested once."""
    lakehouse, layout = waiting, waiting.config.layout
    if lost == "ledger":
        shutil.rmtree(layout.table("ops.files"))
        shutil.copytree(after_first_run.layout.table("ops.files"), layout.table("ops.files"))
    elif lost == "queue":
        queue = layout.queue(NAME)
        (queue / f"_delta_log/{delta_tables.table_version(queue):020}.json").local.unlink()
    else:
        checkpoint = layout.checkpoint("bronze.recordings")
        (checkpoint / "offsets" / str(last_planned(checkpoint))).local.write_text("v1\n{")
    lakehouse.land(NAME, "2.json", *THIRD)
    if lost == "plan":
        lakehouse.run("bronze")  # Spark continues from the new checkpoint
    else:
        lakehouse.fill("bronze")
    assert delta_tables.row_count(layout.table("bronze.recordings")) == 17
    entries = ledger.read_entries(layout, NAME)
    assert [(Path(e.path).name, e.state, e.rows) for e in entries] == [
        ("0.json", ledger.State.ARCHIVED, len(FIRST)),
        ("1.json", ledger.State.ARCHIVED, len(SECOND)),
        ("2.json", ledger.State.ARCHIVED, len(THIRD)),
    ]


def test_missing_gold_table_is_recomputed(filled: Lakehouse) -> None:
    """Without other work, and also if its checkpoint is damaged."""
    lakehouse = filled
    layout = lakehouse.config.layout
    shutil.rmtree(layout.table("gold.device_totals"))
    assert run_audit(lakehouse.config, everything=True).findings == (
        "gold.device_totals: the table is missing; `medallion run gold` reports what to do.",
    )
    assert ends_idle(lakehouse.config, print) is None
    # The machine stopped.
    (layout.checkpoint("gold.device_totals") / "metadata").local.write_text("")
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == AFTER_FIRST
    # The process was killed while it wrote its first plan; Spark starts no query beside the
    # remnants.
    for part in ("offsets", "commits"):
        shutil.rmtree(layout.checkpoint("gold.device_totals") / part)
        (layout.checkpoint("gold.device_totals") / part).local.mkdir()
    (layout.checkpoint("gold.device_totals") / "offsets/.0.1a.tmp").local.touch()
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == AFTER_FIRST


def test_missing_or_older_bronze_is_refused(after_first_run: Lakehouse, waiting: Lakehouse) -> None:
    """Nothing is ingested, so that the restored table gets each file once."""
    lakehouse, layout = waiting, waiting.config.layout
    layout.table("bronze.recordings").local.rename(lakehouse.root / "away")
    with pytest.raises(MedallionError, match=r"bronze/recordings is missing, and nothing else"):
        lakehouse.fill("bronze")
    assert not layout.table("bronze.recordings").local.exists()
    assert not run_audit(lakehouse.config).is_balanced
    older = after_first_run.layout.table("bronze.recordings")
    shutil.copytree(older, layout.table("bronze.recordings"))
    lakehouse.land(NAME, "2.json", recording("13:30:02"))
    message = r"bronze.recordings cannot start: bronze.recordings is older .* from one backup\.$"
    with pytest.raises(MedallionError, match=message):
        lakehouse.fill("bronze")
    assert delta_tables.row_count(layout.table("bronze.recordings")) == len(FIRST)
    shutil.rmtree(layout.table("bronze.recordings"))
    (lakehouse.root / "away").rename(layout.table("bronze.recordings"))
    lakehouse.fill("bronze")
    balance = run_audit(lakehouse.config).balances[NAME]
    assert balance.landed_lines == balance.bronze_rows == 15


def test_missing_commits_are_written_again(filled: Lakehouse) -> None:
    """Then gold's older checkpoint is restored, whose next batch Delta would skip as written."""
    lakehouse = filled
    layout = lakehouse.config.layout
    gold = layout.checkpoint("gold.device_totals")
    shutil.copytree(gold, lakehouse.root / "copy")
    for name in QUERIES:
        commits = (layout.checkpoint(name) / "commits").local
        max(commits.glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    lakehouse.land(NAME, "1.json", *SECOND)
    lakehouse.run()
    assert run_audit(lakehouse.config).is_balanced
    assert lakehouse.rows("gold.device_totals") == AFTER_SECOND
    shutil.rmtree(gold)
    (lakehouse.root / "copy").rename(gold)
    add_row_to_silver(lakehouse, "device = 'other'")
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == [("other", 2), ("phone", 6)]


def add_row_to_silver(lakehouse: Lakehouse, condition: str) -> None:
    """Append a row for gold, without a run of silver: a copy of one that meets a condition."""
    (name,) = lakehouse.config.sources
    table = DeltaTable(lakehouse.config.layout.table(f"silver.{name}"))
    sql = f"select * from t where {condition} limit 1"
    write_deltalake(table, QueryBuilder().register("t", table).execute(sql), mode="append")


def test_corrupt_plan_of_gold_is_recomputed(filled: Lakehouse) -> None:
    lakehouse = filled
    checkpoint = lakehouse.config.layout.checkpoint("gold.device_totals")
    (checkpoint / "offsets" / str(last_planned(checkpoint))).local.write_text("v1\n{")
    messages: list[str] = []
    replace(lakehouse.pipeline(), report=messages.append).run("gold")
    assert [text for text in messages if "is missing or corrupt: recomputed from all rows" in text]
    assert lakehouse.rows("gold.device_totals") == AFTER_FIRST
    assert last_planned(lakehouse.config.layout.checkpoint("gold.device_totals")) >= 0


@pytest.mark.slow  # `test_older_tables` has the reasons
def test_restored_silver_is_refused(filled: Lakehouse) -> None:
    """Silver and the records are restored from the run before, but gold is not."""
    lakehouse = filled
    layout = lakehouse.config.layout
    silver_tables = ("silver.recordings", "quarantine.recordings", "ops.runs", "ops.files")
    backup = [*map(layout.table, silver_tables), layout.checkpoint("silver.recordings")]
    for folder in backup:
        shutil.copytree(folder, lakehouse.root / "copy" / folder.local.relative_to(lakehouse.root))
    lakehouse.land(NAME, "1.json", *SECOND)
    lakehouse.fill()
    # Its new checkpoint has read as much.
    refresh.refresh_table(lakehouse.pipeline(), "gold.device_totals")
    for folder in backup:
        shutil.rmtree(folder)
        shutil.copytree(lakehouse.root / "copy" / folder.local.relative_to(lakehouse.root), folder)
    lakehouse.land(NAME, "2.json", recording("13:30:02"))
    message = r"(silver|gold)\.\w+ cannot start: silver.recordings is older .* medallion refresh \1"
    errors = lakehouse.run_without_gates().errors
    assert [bool(re.search(message, error)) for error in errors] == [True, True]
    refresh.refresh_table(lakehouse.pipeline(), "gold.device_totals")
    assert lakehouse.run_without_gates().is_good
    assert lakehouse.rows("gold.device_totals") == [("other", 1), ("phone", 7)]


ORDERS: dict[str, Any] = {
    "schema": {"id": "string", "at": "timestamp"},
    "silver": {"id": "id", "ordered_at": "at"},
    "event_time": "ordered_at",
    "keys": ["id", "ordered_at"],
}
COUNTS = {"source": "silver.orders", "group_by": ["id"], "measure": {"n": "count(*)"}}


def order(id_: str, time: str) -> str:
    return json.dumps({"id": id_, "at": f"2026-05-01T{time}:00Z"})


@pytest.fixture(scope="module")
def with_state(
    production_streams: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Lakehouse:
    """Return a lakehouse of few columns after a run with states as in production."""
    folder = tmp_path_factory.mktemp("state")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    lakehouse.configure(folder, {"sources": {"orders": ORDERS}, "gold": {"counts": COUNTS}})
    lines = (order("a", "10:00"), order("a", "10:00"), order("b", "13:00"))
    lakehouse.land("orders", "0.json", *lines)
    lakehouse.fill()
    return lakehouse


@pytest.fixture
def orders(with_state: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Return a copy with another file in landing."""
    lakehouse = with_state.copy(tmp_path / "lakehouse")
    lakehouse.land(
        "orders", "1.json", order("b", "13:00"), order("c", "13:30"), order("d", "09:00")
    )
    return lakehouse


def test_damaged_or_missing_state(orders: Lakehouse) -> None:
    """Python writes silver's batches, and Spark writes gold's."""
    names = ("silver.orders", "gold.counts")
    silver, gold = (orders.config.layout.checkpoint(name) / "state" for name in names)
    orders.fill("bronze")
    add_row_to_silver(orders, "id = 'a'")
    before = [orders.rows(name) for name in names]
    for state, layer, name in ((gold, "gold", names[1]), (silver, "silver", names[0])):
        message = f"state cannot be read: medallion refresh {name} "
        for file in [*state.local.rglob("*.zip"), *state.local.rglob("*.sst")]:
            file.write_bytes(b"damaged")
        with pytest.raises(StreamError, match=message):
            orders.fill(layer)
        shutil.rmtree(state)
        with pytest.raises(StreamError, match=message):
            orders.fill(layer)
    assert [orders.rows(name) for name in names] == before


OTHER_SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


def test_settings_that_a_state_keeps(orders: Lakehouse) -> None:
    """The state keeps its partitions and type; the watermark's delay applies at once."""
    source = orders.config.sources["orders"]
    shorter = replace(source, watermark=Duration.parse("30 minutes"))
    orders.config = replace(orders.config, sources={"orders": shorter}, gold={})
    orders.fill("bronze")
    with changed_settings(orders.spark, OTHER_SETTINGS):
        orders.fill("silver")
    silver = orders.config.layout.checkpoint("silver.orders")
    minutes = (datetime(2026, 5, 1, hour, 0, tzinfo=UTC).timestamp() for hour in (12, 13))
    # The first run leaves 13:00 less an hour; the second 13:30 less half an hour.
    watermarks = {checkpoints.watermark(silver, n) for n in range(last_planned(silver) + 1)} - {
        None
    }
    assert watermarks == {1000 * at for at in minutes}
    balance = run_audit(orders.config).balances["orders"]
    # Only the state has the key of the second `b`, and `d` is late.
    assert (balance.is_balanced, balance.silver_rows, balance.duplicate_rows) == (True, 4, 2)
