"""The layers as lakehouse-engine's users write them; run by the Python of its environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lakehouse_engine.core.exec_env import ExecEnv
from lakehouse_engine.engine import load_data
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ROOT = Path(sys.argv[1])
SAID = json.loads((ROOT / "source.json").read_text(encoding="utf-8"))


def silver(bronze: DataFrame) -> DataFrame:
    """Silver's columns."""
    columns = [F.expr(sql).alias(name) for name, sql in SAID["silver"].items()]
    return bronze.select(*columns, "lhe_extraction_filepath", "_ingested_at")


def by_window(rows: DataFrame) -> DataFrame:
    """Counts of windows of ten minutes."""
    window = F.window(SAID["event_time"], "10 minutes")
    counted = rows.groupBy(window, "device").agg(F.count(F.lit(1)).alias("total_recordings"))
    return counted.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "device",
        "total_recordings",
    )


def by_device(rows: DataFrame) -> DataFrame:
    """Counts of devices."""
    return rows.groupBy("device").agg(F.count(F.lit(1)).alias("total_recordings"))


def run(table: str, read: dict[str, Any], transformers: list[Any], write_type: str) -> None:
    """One load of all that is there."""
    load_data(
        acon={
            "input_specs": [{"spec_id": "in", "read_type": "streaming", **read}],
            "transform_specs": [{"spec_id": "out", "input_id": "in", "transformers": transformers}],
            "output_specs": [
                {
                    "spec_id": table,
                    "input_id": "out",
                    "write_type": write_type,
                    "data_format": "delta",
                    "location": str(ROOT / table),
                    "options": {"checkpointLocation": str(ROOT / "checkpoints" / table)},
                }
            ],
        },
        collect_engine_usage="disabled",
    )


def custom(function: Any) -> dict[str, Any]:
    return {"function": "custom_transformation", "args": {"custom_transformer": function}}


def delta(table: str) -> dict[str, Any]:
    return {"data_format": "delta", "location": str(ROOT / table)}


def main() -> None:
    """All layers."""
    ExecEnv.get_or_create(
        app_name="lakehouse-engine", enable_hive_support=False, config=SAID["settings"]
    )
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in SAID["schema"].items()
    ]
    landing = {
        "data_format": "json",
        "location": str(ROOT / "landing/activity"),
        "schema": {"type": "struct", "fields": fields},
        "with_filepath": True,
    }
    ingested = {"function": "add_current_date", "args": {"output_col": "_ingested_at"}}
    run("bronze/activity", landing, [ingested], "append")
    watermark = {"col": SAID["event_time"], "watermarking_time": SAID["watermark"]}
    once = {
        "function": "drop_duplicate_rows",
        "args": {"cols": SAID["keys"], "watermarker": watermark},
    }
    run("silver/activity", delta("bronze/activity"), [custom(silver), once], "append")
    run("gold/device_counts", delta("silver/activity"), [custom(by_window)], "complete")
    run("gold/device_totals", delta("silver/activity"), [custom(by_device)], "complete")


if __name__ == "__main__":
    main()
