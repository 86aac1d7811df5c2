# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 2. The medallion
#
# Three streams in a chain: **bronze** keeps each line as it landed, **silver** has the valid rows,
# typed and without duplicates, and **gold** counts them. `conf/pipeline.yaml` defines them,
# and `medallion nightly` runs them with quality gates in between. Here they run one by one.

# %%
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lesson import Lesson

import medallion as m
from medallion.config.loader import load
from medallion.factory.sample import FILES
from medallion.runtime.pipeline import Pipeline
from medallion.storage.layout import LAYERS

root = Path("lesson2").absolute()
lesson = Lesson(root, FILES)
lesson.clean_up()
spark = m.spark_session()

# %% [markdown]
# The configuration of the project, with another root. The lesson needs one source, the events, and
# one gold table, the actions in windows of ten minutes.

# %%
config = load({"MEDALLION_HOME": str(root)})
config = replace(
    config,
    sources={"event": config.sources["event"]},
    gold={"action_counts": config.gold["action_counts"]},
)
pipeline = Pipeline(spark, config, "lesson", print)


def ingest() -> None:
    """Land the next file, and run each layer."""
    lesson.load(source="event")
    for layer in LAYERS:
        pipeline.run(layer)


ACTIONS = """
    SELECT window_start, action, total_events FROM gold.action_counts
    ORDER BY window_start, action
"""

# %% [markdown]
# `medallion.query` runs SQL over the tables without Spark, also while streams run.

# %%
ingest()
after_file1 = m.query(str(root), ACTIONS).rows
after_file1

# %%
ingest()
after_file2 = m.query(str(root), ACTIONS).rows
after_file2

# %%
ingest()
after_file3 = m.query(str(root), ACTIONS).rows
after_file3

# %% [markdown]
# No row is lost. The ledger has each file, and `ops.runs` has the metrics of each query.

# %%
files = m.query(str(root), "SELECT path, state, rows FROM ops.files ORDER BY path").rows
files

# %%
rows = {
    table: m.query(str(root), f"SELECT count(*) FROM {table}").rows[0][0]
    for table in ("bronze.event", "silver.event", "quarantine.event")
}
rows

# %% [markdown]
# Each table is a Delta table, so it can be read as a stream, too.

# %%
silver = spark.readStream.format("delta").load(str(root / "silver/event"))
m.streams.display(silver.select("event_at", "device", "action"), trigger="available-now")

# %% [markdown]
# ## Tables that change
#
# With `cdc`, a line is a change of a row. Silver has the latest row of each key, whatever order the
# changes arrive in, and gold follows. See docs/tables-that-change.md.

# %%
folder = TemporaryDirectory()
shop = Path(folder.name)
(shop / "conf").mkdir()
(shop / "conf/pipeline.yaml").write_text("""
sources:
  orders:
    schema: { id: long, status: string, at: timestamp, op: string }
    silver: { order_id: id, status: status }
    keys: [order_id]
    cdc: { sequence_by: at, apply_as_deletes: op = 'd' }
gold:
  by_status:
    source: silver.orders
    group_by: [status]
    measure: { orders: count(*) }
""")
config = load({"MEDALLION_HOME": str(shop), "MEDALLION_CONF": str(shop / "conf")})
orders = Pipeline(spark, config, "lesson", print)
landing = shop / "landing/orders"
landing.mkdir(parents=True)


def change(name: str, lines: str) -> tuple[list[tuple[object, ...]], ...]:
    """Land a file of changes, run each layer, and return the rows of silver and gold."""
    (landing / name).write_text(lines)
    for layer in LAYERS:
        orders.run(layer)
    tables = ("silver.orders", "gold.by_status")
    return tuple(
        m.query(str(shop), f"SELECT {columns} FROM {table} ORDER BY 1").rows
        for table, columns in zip(tables, ("order_id, status", "status, orders"), strict=True)
    )


# %%
first_changes = change(
    "1.json",
    """
{"id": 1, "status": "new", "at": "2026-05-01T10:00:00Z", "op": "c"}
{"id": 1, "status": "paid", "at": "2026-05-01T12:00:00Z", "op": "u"}
{"id": 2, "status": "new", "at": "2026-05-01T10:00:00Z", "op": "c"}
""",
)
first_changes

# %% [markdown]
# A change that arrives late is older than the row; a delete removes its row.

# %%
second_changes = change(
    "2.json",
    """
{"id": 1, "status": "packed", "at": "2026-05-01T11:00:00Z", "op": "u"}
{"id": 2, "status": "new", "at": "2026-05-01T13:00:00Z", "op": "d"}
""",
)
second_changes

# %%
folder.cleanup()
lesson.clean_up()
