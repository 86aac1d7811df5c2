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
# # 3. Windows, watermarks and late rows
#
# An event arrives later than it happens. Windows use the time at which it happened (event time);
# a watermark defines how long a window waits for rows that arrive late.

# %%
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from lesson import Lesson
from pyspark.sql import Column
from pyspark.sql import functions as F

import medallion as m
from medallion.factory.sample import FILES

root = Path("lesson3").absolute()
lesson = Lesson(root, FILES)
lesson.clean_up()
spark = m.spark_session()

# %% [markdown]
# ## Three types of windows
#
# The sample's four files of events, landed at once.

# %%
print(lesson.load(continuous=True, source="event"))
events = (
    spark.readStream.schema("id string, action string, ts timestamp")
    .json(str(root / "landing/event"))
    .withWatermark("ts", "10 minutes")
)


def opens(window: Column, name: str) -> list[tuple[str, str, int]]:
    """Return how often doors were opened, by start and end of the window."""
    counts = events.where("action = 'open'").groupBy(window.alias("window"), "action").count()
    times = [F.date_format(f"window.{end}", "HH:mm:ss").alias(end) for end in ("start", "end")]
    shown = counts.select(*times, "count").orderBy("start")
    m.streams.display(shown, name, trigger="available-now", bar="count")
    return [tuple(row) for row in spark.table(name).orderBy("start").collect()]


# %% [markdown]
# **Tumbling**: windows follow each other. Each event is in one of them.

# %%
tumbling = opens(F.window("ts", "10 minutes"), "tumbling")

# %% [markdown]
# **Sliding**: a window of ten minutes starts every five. Each event is in two of them.

# %%
sliding = opens(F.window("ts", "10 minutes", "5 minutes"), "sliding")

# %% [markdown]
# **Session**: a window ends two minutes after its last event; an event before that extends it.
# Spark needs another group column for session windows.

# %%
session = opens(F.session_window("ts", "2 minutes"), "session")

# %% [markdown]
# ## A watermark, and rows that are too late for it
#
# In `append` mode a window is written once, when it is final: when the watermark, here ten minutes
# behind the latest event so far, has passed its end. Four files of one event each show it.


# %%
folder = TemporaryDirectory()
for number, time in enumerate(("10:02:00", "10:09:00", "10:31:00", "10:03:00"), 1):
    file = Path(folder.name) / "late" / f"{number}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"id": "phone1", "ts": f"2018-03-02T{time}"}) + "\n")
late = Lesson(root, folder.name)
late.load()
windows = (
    spark.readStream.schema("id string, ts timestamp")
    .json(str(root / "landing/late"))
    .withWatermark("ts", "10 minutes")
    .groupBy(F.window("ts", "10 minutes"))
    .count()
)
query = windows.writeStream.format("memory").queryName("final").start()
states = []


def record_state() -> None:
    """Record the final windows, the watermark, and the number of rows dropped so far."""
    query.processAllAvailable()
    rows = spark.sql("SELECT date_format(window.start, 'HH:mm'), count FROM final").collect()
    watermark = query.lastProgress.eventTime.get("watermark", "")
    dropped = sum(
        operator.numRowsDroppedByWatermark
        for progress in query.recentProgress
        for operator in progress.stateOperators
    )
    states.append(([tuple(row) for row in rows], watermark[11:16], dropped))
    print(states[-1])


# %% [markdown]
# 10:02 and 10:09 are in one window. It ends at 10:10, and the watermark is not there yet.

# %%
record_state()
late.load()
record_state()

# %% [markdown]
# 10:31 moves the watermark to 10:21. The window of 10:00 is final: two events.

# %%
late.load()
record_state()

# %% [markdown]
# 10:03 arrives now, for a window that is written already. Spark drops the row, and only counts it.
# (Silver of this project inserts such late rows from bronze: `late_rows` in `medallion audit`.)

# %%
late.load()
record_state()

# %%
print(m.streams.stop_all_streams())
folder.cleanup()
lesson.clean_up()
