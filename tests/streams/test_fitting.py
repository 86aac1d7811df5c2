"""Sinks, output modes and triggers: what is refused in words is what Spark refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.errors import UsageError
from medallion.streams.fitting import MODES, SINKS, refuse
from medallion.streams.plan import StreamPlan, plan_of

ROWS = StreamPlan(frozenset({"Project"}), frozenset({"rate"}))
GROUPS = StreamPlan(frozenset({"Aggregate", "EventTimeWatermark"}), frozenset({"rate"}))


@pytest.mark.parametrize(
    ("plan", "sink", "mode", "is_continuous", "told"),
    [
        (ROWS, "table", "append", False, "no sink 'table'; there are delta, files, parquet"),
        (ROWS, "delta", "replace", False, "no output mode 'replace'; there are append, update"),
        (GROUPS, "delta", "update", False, "foreachBatch, with a MERGE"),
        (GROUPS, "files", "complete", False, "takes append alone, not complete"),
        (GROUPS, "json", "update", False, "takes append alone, not update"),
        (ROWS, "memory", "complete", False, "this stream has none: take append"),
        (ROWS, "delta", "append", True, "goes with the sinks console, memory, kafka"),
        (ROWS, "foreach", "append", True, "goes with the sinks console, memory, kafka"),
        (GROUPS, "memory", "complete", True, "cannot do Aggregate, EventTimeWatermark"),
    ],
)
def test_refused_in_words(
    plan: StreamPlan, sink: str, mode: str, is_continuous: bool, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        refuse(plan, sink, mode, is_continuous)


@pytest.mark.parametrize("sink", SINKS)
def test_every_sink_takes_rows_as_they_come(sink: str) -> None:
    refuse(ROWS, sink, "append", is_continuous=False)


def frames(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """Streams of all the kinds that the lessons have."""
    files = spark.readStream.schema("at timestamp, door string, n int").json(str(folder))
    rate = spark.readStream.format("rate").load()
    timed = files.withWatermark("at", "1 hour")
    window = F.window("at", "10 minutes")
    return {
        "rows": files.where("n > 1").select("door"),
        "groups": files.groupBy("door").count(),
        "windows": timed.groupBy(window, "door").count(),
        "sorted rows": files.orderBy("n"),
        "sorted groups": files.groupBy("door").count().orderBy("count"),
        "distinct": timed.dropDuplicates(["at", "door"]),
        "joined": timed.alias("a").join(timed.alias("b"), F.expr("a.at = b.at and a.n = b.n")),
        "rate": rate.select(F.col("value") + 1),
        "rate, counted": rate.groupBy("value").count(),
        "rate, distinct": rate.distinct(),
    }


def spark_refuses(spark: SparkSession, df: DataFrame, mode: str, is_continuous: bool) -> bool:
    """What Spark's own check says, which it makes when a stream starts."""
    jvm: Any = spark._jvm
    java_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    check = checker.checkForContinuous if is_continuous else checker.checkForStreaming
    try:
        check(df._jdf.queryExecution().analyzed(), java_mode)
    except (AnalysisException, Py4JJavaError):
        return True
    return False


def test_refused_is_what_spark_refuses(spark: SparkSession, tmp_path: Path) -> None:
    for name, df in frames(spark, tmp_path).items():
        for mode in MODES:
            for is_continuous in (False, True):
                try:
                    refuse(plan_of(df), "memory", mode, is_continuous)
                    refused = False
                except UsageError:
                    refused = True
                expected = spark_refuses(spark, df, mode, is_continuous)
                assert refused == expected, (name, mode, is_continuous)
