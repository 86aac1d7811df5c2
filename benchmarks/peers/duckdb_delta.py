"""DuckDB with delta-rs: one process without a JVM, which recomputes everything each run.

It keeps no ledger, no state, no rules and no rescue: what it knows is what lies in landing.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
from deltalake import write_deltalake

SILVER = """
    SELECT Recorded_At AS recorded_at, Device AS device, "Index" AS user_id, Model AS model,
        "User" AS "user", gt, x, y, z, filename AS _source_file
    FROM read_json(?, format = 'newline_delimited', filename = true, columns = {
        Recorded_At: 'TIMESTAMPTZ', Device: 'VARCHAR', "Index": 'BIGINT', Model: 'VARCHAR',
        "User": 'VARCHAR', gt: 'VARCHAR', x: 'DOUBLE', y: 'DOUBLE', z: 'DOUBLE'})
    QUALIFY row_number() OVER (PARTITION BY device, user_id, recorded_at) = 1
"""
GOLD = {
    "device_counts": """
        SELECT time_bucket(INTERVAL 10 MINUTE, recorded_at) AS window_start,
            window_start + INTERVAL 10 MINUTE AS window_end, device,
            count(*) AS total_recordings FROM silver GROUP BY ALL""",
    "device_totals": "SELECT device, count(*) AS total_recordings FROM silver GROUP BY ALL",
}


def main(root: Path) -> None:
    """Make the tables of `root`; bronze is what lies in landing."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute(f"CREATE TABLE silver AS {SILVER}", [f"{root}/landing/activity/*.json"])
    write_deltalake(str(root / "silver/activity"), duck.sql("FROM silver"), mode="overwrite")
    for name, query in GOLD.items():
        write_deltalake(str(root / "gold" / name), duck.sql(query), mode="overwrite")


if __name__ == "__main__":
    main(Path(os.environ["MEDALLION_HOME"]))
