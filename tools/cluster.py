"""`make cluster`: a Spark Standalone cluster on this machine, which ends with Ctrl-C.

A master and two workers, as processes with working directories of their own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from medallion.install.jars import spark_home
from medallion.install.java import use_java

_PORT = 7077
Process = subprocess.Popen[bytes]


@contextmanager
def running(
    folder: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, list[Process]]]:
    """Start a cluster; yield the address of its master, and its two workers.

    Args:
        folder: a directory for each process is created there, with its log and its work.
        port: the port of the master.
        environment: the variables of the workers, such as those of S3.
    """
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(name: str, class_name: str, *arguments: str) -> Process:
            own = folder / name
            own.mkdir(parents=True)
            log = stack.enter_context((own / "log").open("wb"))
            program = f"{spark_home()}/bin/spark-class"
            command = [program, f"org.apache.spark.deploy.{class_name}", "--host", "127.0.0.1"]
            command += ["--webui-port", "0", *arguments]
            # In a group of their own, with the executors that they start.
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=own, env=environment, start_new_session=True
            )
            stack.callback(end, process)
            return process

        start("master", "master.Master", "--port", str(port))
        workers = []
        for name in ("worker-1", "worker-2"):
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", f"{folder}/{name}/work")
            workers.append(start(name, "worker.Worker", *limits, url))
        yield url, workers


def end(process: Process) -> None:
    """Kill a process of the cluster with the executors that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def main() -> int:
    """Run a cluster until Ctrl-C."""
    use_java()
    with (
        tempfile.TemporaryDirectory(prefix="medallion-cluster-") as folder,
        running(Path(folder), _PORT) as (url, workers),
        suppress(KeyboardInterrupt),
    ):
        print(f"{url} with two workers: make nightly MASTER={url}; Ctrl-C ends it", flush=True)
        while all(worker.poll() is None for worker in workers):
            time.sleep(1)
        print((Path(folder) / "worker-1/log").read_text()[-2000:], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
