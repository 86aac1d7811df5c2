"""Workers that a Standalone cluster loses."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import PROJECT
from tools.cluster import free_port, running

pytestmark = [pytest.mark.slow, pytest.mark.spark]
JOB = """
import sys, time
from pathlib import Path
from dataclasses import replace
from medallion.config.loader import load
from medallion.spark.session import spark_session
config = replace(load({}, Path(sys.argv[2])), master=sys.argv[1])
memory = {"spark.driver.memory": "1g", "spark.executor.memory": "512m"}
spark = spark_session(config, more={**memory, "spark.cores.max": "2"})
store = spark.sparkContext._jsc.sc().statusStore()
while store.executorList(True).size() < 3:  # the driver is one
    time.sleep(0.1)
print("running", flush=True)
def slow(number):
    time.sleep(5)
    return number
print(spark.sparkContext.parallelize(range(6), 6).map(slow).sum())
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Yield the address of a master, and its two workers."""
    with running(tmp_path, free_port()) as master_and_workers:
        yield master_and_workers


def test_lost_worker_is_named(cluster: tuple[str, list[subprocess.Popen[bytes]]]) -> None:
    """Both workers run one of six tasks when the first is killed; its task is repeated."""
    url, workers = cluster
    command = [sys.executable, "-c", JOB, url, str(PROJECT)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "running\n"
        time.sleep(3)
        workers[0].kill()
        out, errors = job.communicate(timeout=300)
    assert out == "15\n"
    assert re.findall(r"ERROR TaskSchedulerImpl: Lost executor [01] on 127\.0\.0\.1: \S", errors)
