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
# Phones tell when a door was opened or closed: one event a line of JSON, some lines a file.
# This lesson reads such files as they land, and counts. It opens with Spark's own words, and ends
# with this project's, which start, watch and stop the same streams.
#
# `DataFactory` plays the phones: `load()` lands the next file of the sample.

# %%
from pathlib import Path

from pyspark.sql import functions as F

import medallion as m
from medallion.factory.sample import FILES

root = Path("lesson1").absolute()
factory = m.DataFactory(root / "landing", given=FILES)
print(factory.clean_up())  # what an earlier go has left
spark = m.spark_session()

# %% [markdown]
# ## In Spark's own words
#
# A stream needs a schema before its first row. A file that does not have all of the columns is no
# error: they are null then.

# %%
print(factory.load(source="event"))
events = spark.readStream.schema("id string, action string, ts timestamp").json(
    str(root / "landing/event")
)
print("a stream:", events.isStreaming)

# %% [markdown]
# Doors by action, in windows of ten minutes. `complete` gives the whole result at each batch, here
# into a table in memory that is called as the query is.

# %%
actions = events.groupBy(F.window("ts", "10 minutes"), "action").count()
query = actions.writeStream.format("memory").queryName("actions").outputMode("complete").start()
query.processAllAvailable()


def counted() -> list[tuple[str, str, int]]:
    """What the table in memory says now."""
    found = spark.sql(
        "SELECT date_format(window.start, 'HH:mm') AS start, action, count FROM actions"
    )
    return sorted(tuple(row) for row in found.collect())


after_file1 = counted()
after_file1

# %% [markdown]
# Three doors were opened and one was closed. The next file changes the groups that it touches.

# %%
factory.load(source="event")
query.processAllAvailable()
after_file2 = counted()
after_file2

# %% [markdown]
# The third file has the first event after ten past ten: a window of its own.

# %%
factory.load(source="event")
query.processAllAvailable()
after_file3 = counted()
after_file3

# %%
query.stop()

# %% [markdown]
# Memory is for looking. What is to last goes to Delta, and the checkpoint keeps how far the stream
# has come: a query that starts again goes on there, and takes no file twice.

# %%
table, checkpoint = str(root / "bronze/doors"), str(root / "_checkpoints/doors")


def take_in() -> int:
    """Everything that is there, then the end; the rows of the table."""
    query = (
        events.writeStream.format("delta")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    return spark.read.format("delta").load(table).count()


rows_of_three_files = take_in()
factory.load(source="event")
rows_of_four_files = take_in()
rows_of_three_files, rows_of_four_files

# %% [markdown]
# ## In this project's
#
# `display` shows a stream while it runs: in a notebook in the output of its cell, in a terminal as
# a table that changes. Here it ends by itself, because the trigger does.

# %%
m.streams.display(
    actions.orderBy("window", "action"), "doors", trigger="available-now", bar="count"
)

# %% [markdown]
# `write` starts a stream by the name of a sink and a trigger. What does not go together Spark
# refuses, here in one sentence: a table of Delta takes no `update` (lesson 4 has the way).

# %%
try:
    m.streams.write(actions, "delta", table, checkpoint=checkpoint, output_mode="update")
except m.streams.UsageError as error:
    refused = str(error)
    print(refused)

# %%
query = m.streams.write(actions, "memory", name="by_hand", output_mode="complete")
m.streams.until_stream_is_ready("by_hand", timeout=120)
running = m.streams.streams()
running

# %%
stopped = m.streams.stop_all_streams()
stopped

# %% [markdown]
# At last the lesson takes away what it made, and nothing else.

# %%
cleaned = factory.clean_up()
print(cleaned)
