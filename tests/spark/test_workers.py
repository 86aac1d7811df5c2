"""Workers that a Standalone cluster loses."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from medallion.install.jars import spark_home
from tests.support import PROJECT

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


def free_port() -> int:
    with socket.socket() as socket_:
        socket_.bind(("127.0.0.1", 0))
        return int(socket_.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Yield the address of a master, and its two workers."""
    url = f"spark://127.0.0.1:{free_port()}"
    with ExitStack() as stack, (tmp_path / "log").open("wb") as log:

        def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            command = [str(spark_home() / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]
            command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
            process = stack.enter_context(
                subprocess.Popen(
                    command, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True
                )
            )
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            return process

        start("master.Master", "--port", url.rpartition(":")[2])
        limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        yield url, [start("worker.Worker", *limits, url) for _ in range(2)]


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
