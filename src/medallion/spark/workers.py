"""Workers of a cluster that were lost while a command ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.storage import clock
from medallion.storage.text import Reporter, counted


def report_lost_workers(spark: SparkSession, reported: set[str], report: Reporter) -> None:
    """Report each executor that Spark has lost: which, when, why, and how many tasks it repeated.

    With dynamic allocation Spark ends idle executors, too: there only those whose tasks it repeated
    are reported. Spark keeps the last 100 lost executors and 1,000 stages.

    Args:
        spark: the session; nothing is reported if its Java is gone.
        reported: ids of executors that were reported before; new ones are added.
        report: gets one line for each.
    """
    with suppress(*SPARK_ERRORS, OSError):
        context: Any = spark.sparkContext
        store = context._jsc.sc().statusStore()
        executors = [each for each in _items(store.executorList(False)) if not each.isActive()]
        lost = [each for each in executors if each.id() not in reported]
        if not lost:
            return
        quantiles = context._gateway.new_array(context._gateway.jvm.double, 0)
        stages = _items(store.stageList(None, False, False, quantiles, None))
        # A stage counts the tasks that ran when the executor was lost, which that itself does not.
        counts = [
            store.executorSummary(each.stageId(), each.attemptId())
            for each in stages
            if each.numFailedTasks()
        ]
        ends_idle = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
        for each in lost:
            name, at = each.id(), clock.format_time(each.removeTime().get().getTime() * 1000)
            tasks = sum(count.apply(name).failedTasks() for count in counts if count.contains(name))
            reported.add(name)
            if tasks or not ends_idle:
                which = f"executor {name} on {each.hostPort()} at {at}"
                why = one_line(each.removeReason().get())
                report(f"worker lost: {which} ({why}); {counted(tasks, 'task')} repeated")


def _items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a sequence of Scala."""
    return map(sequence.apply, range(sequence.size()))
