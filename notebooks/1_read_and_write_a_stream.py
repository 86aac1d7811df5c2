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
# # 1. Read and write a stream
#
# Phones report when a door is opened or closed: one event per line of JSON, some lines per file.
# This lesson reads such files as they land, and counts events with Spark. This project's functions
# show and stop the same streams.
#
# `Lesson` plays the phones: `load()` lands the next file of the sample.

# %%
from pathlib import Path

from lesson import Lesson
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import medallion as m
from medallion.factory.sample import FILES

root = Path("lesson1").absolute()
lesson = Lesson(root, FILES)
lesson.clean_up()  # files of an earlier run
spark = m.spark_session()

# %% [markdown]
# ## With Spark alone
#
# A stream needs a schema before its first row. If a file lacks some of the columns, they are null.

# %%
print(lesson.load(source="event"))
events = spark.readStream.schema("id string, action string, ts timestamp").json(
    str(root / "landing/event")
)
print("a stream:", events.isStreaming)

# %% [markdown]
# Doors by action, in windows of ten minutes. In output mode `complete` each batch writes the
# complete result, here to a table in memory with the name of the query.

# %%
actions = events.groupBy(F.window("ts", "10 minutes"), "action").count()
query = actions.writeStream.format("memory").queryName("actions").outputMode("complete").start()
query.processAllAvailable()


def counted() -> list[tuple[str, str, int]]:
    """Return the rows of the table in memory."""
    rows = spark.sql(
        "SELECT date_format(window.start, 'HH:mm') AS start, action, count FROM actions"
    )
    return sorted(tuple(row) for row in rows.collect())


after_file1 = counted()
after_file1

# %% [markdown]
# Three doors were opened and one was closed. The next file changes the groups that it touches.

# %%
lesson.load(source="event")
query.processAllAvailable()
after_file2 = counted()
after_file2

# %% [markdown]
# The third file has the first event after ten past ten: a window of its own.

# %%
lesson.load(source="event")
query.processAllAvailable()
after_file3 = counted()
after_file3

# %%
query.stop()

# %% [markdown]
# A table in memory ends with the session. A Delta table keeps its rows, and the checkpoint keeps
# the names of the files that were read: a restarted query continues there, and reads no file twice.

# %%
table, checkpoint = str(root / "bronze/doors"), str(root / "_checkpoints/doors")


def ingest() -> int:
    """Process all available files; return the number of rows in the table."""
    query = (
        events.writeStream.format("delta")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    return spark.read.format("delta").load(table).count()


rows_of_three_files = ingest()
lesson.load(source="event")
rows_of_four_files = ingest()
rows_of_three_files, rows_of_four_files

# %% [markdown]
# Delta does not support output mode `update` (lesson 4 uses a MERGE instead): Spark refuses the
# query before it reads a file.

# %%
updates = actions.writeStream.format("delta").option("checkpointLocation", checkpoint)
try:
    updates.outputMode("update").start(table)
except AnalysisException as error:
    refused = str(error)
    print(refused)

# %% [markdown]
# ## With this project's functions
#
# `display` shows a stream while it runs, in the output of its cell. With the trigger
# `available-now` it ends when all files are processed.

# %%
m.streams.display(
    actions.orderBy("window", "action"), "doors", trigger="available-now", bar="count"
)

# %% [markdown]
# `until_stream_is_ready` waits for the first result of a stream.

# %%
query = actions.writeStream.format("memory").queryName("by_hand").outputMode("complete").start()
m.streams.until_stream_is_ready(query, timeout=120)
running = [query.name for query in spark.streams.active]
running

# %%
still_running = m.streams.stop_all_streams()
still_running

# %% [markdown]
# The lesson removes its lakehouse.

# %%
lesson.clean_up()
