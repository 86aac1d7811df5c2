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
# # 4. Joins and sinks
#
# Which recordings followed an opened door, on the same phone and within an hour? Both sides are
# streams, and Spark keeps the rows of each in its state until the watermarks and the condition on
# time exclude further matches. So the state does not grow forever.

# %%
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from delta.tables import DeltaTable
from lesson import Lesson
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import medallion as m

root = Path("lesson4").absolute()
folder = TemporaryDirectory()
lesson = Lesson(root, folder.name)
lesson.clean_up()
spark = m.spark_session()

# %% [markdown]
# Two files of each stream. phone1 records ten minutes after the door, phone2 two hours after it,
# phone3 never. phone4's recording lands before the event that it belongs to. The second files are
# of the next morning: they move the watermarks on.

# %%
LANDING = {
    "opens/1.json": [("phone1", "10:00:00"), ("phone2", "10:05:00"), ("phone3", "10:10:00")],
    "opens/2.json": [("phone4", "10:20:00"), ("phone9", "23:00:00")],
    "recordings/1.json": [("phone1", "10:10:00"), ("phone2", "12:05:00"), ("phone4", "10:30:00")],
    "recordings/2.json": [("phone9", "23:30:00")],
}
for name, rows in LANDING.items():
    lines = [json.dumps({"phone": phone, "at": f"2018-03-02T{time}"}) for phone, time in rows]
    file = Path(folder.name) / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))
lesson.load()

# %% [markdown]
# ## A stream with a stream

# %%
SCHEMA = "phone string, at timestamp"


def joined(opens: DataFrame, recordings: DataFrame, how: str) -> DataFrame:
    """Join opens with the recordings of the same phone within the next hour."""
    left = opens.select("phone", F.col("at").alias("opened_at"))
    right = recordings.select(F.col("phone").alias("recorder"), F.col("at").alias("recorded_at"))
    follows = F.expr(
        "phone = recorder AND recorded_at BETWEEN opened_at AND opened_at + INTERVAL 1 HOUR"
    )
    left = left.withWatermark("opened_at", "1 hour")
    right = right.withWatermark("recorded_at", "2 hours")
    return left.join(right, follows, how).drop("recorder")


def stream(name: str) -> DataFrame:
    """Return the stream of one side's files."""
    return spark.readStream.schema(SCHEMA).json(str(root / "landing" / name))


def writer(rows: DataFrame, name: str) -> DataStreamWriter:
    """Return the writer of a stream, with its name and a checkpoint of its own."""
    checkpoint = str(root / "_checkpoints" / name)
    return rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)


table = str(root / "gold/followed")
matches = joined(stream("opens"), stream("recordings"), "left")
query = writer(matches, "followed").format("delta").start(table)


def followed() -> list[tuple[str, str | None]]:
    """Return the phones with the times of their recordings."""
    query.processAllAvailable()
    time = F.date_format("recorded_at", "HH:mm")
    rows = spark.read.format("delta").load(table).select("phone", time)
    return sorted((tuple(row) for row in rows.collect()), key=str)


first = followed()
first

# %% [markdown]
# The other opens may still match. The second files bring phone4's open, whose recording is in the
# state; and the watermarks pass the hour of phone2 and phone3: a left outer join now writes them as
# unmatched.

# %%
lesson.load()
second = followed()
second

# %% [markdown]
# A batch join of all files has the same result.

# %%
files = (spark.read.schema(SCHEMA).json(str(root / "landing" / s)) for s in ("opens", "recordings"))
batch = joined(*files, "left").select("phone", F.date_format("recorded_at", "HH:mm"))
by_batch = sorted((tuple(row) for row in batch.collect()), key=str)
by_batch == second

# %% [markdown]
# ## Sinks
#
# Delta supports `append` and `complete`. For `update`, in which a batch has only the groups that
# have changed, use `foreachBatch` with a MERGE.

# %%
counts = stream("recordings").groupBy("phone").count()
path = str(root / "gold/recordings")
spark.createDataFrame([], counts.schema).write.format("delta").save(path)


def merge(changed: DataFrame, batch: int) -> None:
    """Replace the groups that a batch has changed."""
    (
        DeltaTable.forPath(spark, path)
        .alias("table")
        .merge(changed.alias("changed"), "table.phone = changed.phone")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )


merging = writer(counts, "recordings").outputMode("update").foreachBatch(merge)
merging.trigger(availableNow=True).start().awaitTermination(300)
merged = sorted(tuple(row) for row in spark.read.format("delta").load(path).collect())
merged

# %% [markdown]
# Files are never rewritten: their sinks support `append` only.

# %%
try:
    writer(counts, "files").format("json").outputMode("complete").start(str(root / "gold/files"))
except AnalysisException as error:
    refused = str(error)
    print(refused)

# %% [markdown]
# A failed stream reports the cause, also after its end, in one line.


# %%
def fail(changed: DataFrame, batch: int) -> None:
    """A function with a mistake."""
    raise ValueError("the other end hung up")


failing = writer(stream("opens"), "failing").foreachBatch(fail).start()
try:
    m.streams.until_stream_is_ready(failing, timeout=300)
except m.streams.StreamError as error:
    print(error)
cause = m.streams.exception(failing)

# %%
print(m.streams.stop_all_streams())
folder.cleanup()
lesson.clean_up()
