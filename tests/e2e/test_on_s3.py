"""A lakehouse in a bucket: nightly runs as processes, killed ones, and a second writer."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Cli
from tests.support.fault_proxy import COMMIT, COMMITS, OFFSETS, FaultProxy, held
from tests.support.s3_server import Bucket, S3Server

pytestmark = pytest.mark.slow
TABLES = ("silver.event", "quarantine.event", "gold.action_counts", "gold.user_activity")


class S3Cli(Cli):
    """Runs the command on a root in a bucket, through the proxy, and keeps what it prints."""

    def __init__(self, cli: Cli, root: str, proxy: FaultProxy) -> None:
        super().__init__(cli.lakehouse)
        self.root, self._proxy, self.printed = root, proxy, ""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self._proxy.environment, "MEDALLION_HOME": self.root}

    def __call__(self, *arguments: str) -> Any:
        result = super().__call__(*arguments)
        self.printed += result.stdout + result.stderr
        return result


@pytest.fixture
def s3(cli: Cli, bucket: Bucket, proxy: FaultProxy, tmp_path: Path) -> S3Cli:
    cli.lakehouse.keep_only("event", "action_counts", "user_activity", to=tmp_path)
    cli.write_spark_settings(small=True)
    log = tmp_path / "events"
    log.mkdir()
    file = tmp_path / "conf/spark/spark-defaults.conf"
    lines = [line for line in file.read_text().splitlines() if "FileManagerClass" not in line]
    lines += ["spark.eventLog.enabled true", f"spark.eventLog.dir {log.as_uri()}"]
    file.write_text("\n".join(lines))
    return S3Cli(cli, bucket.url("lake"), proxy)


def content(cli: Cli, table: str) -> list[str]:
    result = cli.json("sql", f"select * from {table}")
    names = {name: n for n, name in enumerate(result["columns"]) if not name.startswith("_")}
    return sorted(json.dumps([row[n] for n in names.values()]) for row in result["rows"])


def kill_at(cli: S3Cli, proxy: FaultProxy, key: str, skip: int) -> None:
    """Start a nightly run, and kill it while a request that writes such a key is on its way."""
    with proxy.inject(held(lambda: os.killpg(process.pid, signal.SIGKILL)), "PUT", key, skip=skip):
        process = cli.start("nightly", start_new_session=True)
        out, err = process.communicate(timeout=600)
    cli.printed += out + err
    assert process.returncode == -signal.SIGKILL, (key, out, err)


def test_rows_of_killed_runs(
    s3: S3Cli, cli: Cli, bucket: Bucket, proxy: FaultProxy, s3_server: S3Server, tmp_path: Path
) -> None:
    """1,200 rows over four kills give the tables of one run on a disk; the secret is nowhere."""
    for each in (s3, cli):
        land = each("land", "--source", "event", "--batches", "3", "--rows", "400", "--dirty")
        assert land.returncode == 0, land.stderr
    for key, skip in (
        (r"/bronze/event" + COMMIT, 1),
        (OFFSETS, 2),
        (r"/gold/.*" + COMMIT, 0),
        (COMMITS, 0),
    ):
        kill_at(s3, proxy, key, skip)
    assert s3("nightly").returncode == cli("nightly").returncode == 0
    assert [content(s3, table) for table in TABLES] == [content(cli, table) for table in TABLES]
    audit = s3.json("audit", "--deep")
    assert audit["balanced"] is True
    assert audit["sources"]["event"]["landed_lines"] >= 1200
    # Nothing that was printed, logged or stored has the secret.
    secret = s3_server.secret
    assert secret not in s3.printed
    stored = [bucket.read(key) for key in bucket.keys("")]
    logged = [file.read_bytes() for file in (tmp_path / "events").rglob("*") if file.is_file()]
    assert stored
    assert logged
    assert not any(secret.encode() in each for each in (*stored, *logged))


def test_second_writer_is_refused(s3: S3Cli, proxy: FaultProxy) -> None:
    """Until the first one is killed: then another process on this machine takes over at once."""
    assert s3("land", "--source", "event", "--rows", "30").returncode == 0
    refused: list[Any] = []

    def run_another() -> None:
        refused.append(s3("nightly"))
        os.killpg(process.pid, signal.SIGKILL)

    with proxy.inject(held(run_another), "PUT", r"/bronze/event" + COMMIT, skip=1):
        process = s3.start("nightly", start_new_session=True)
        process.communicate(timeout=600)
    (other,) = refused
    assert other.returncode == 2
    assert f"is being written by pid {process.pid} on " in other.stderr
    start = time.monotonic()
    assert s3("nightly").returncode == 0
    assert time.monotonic() - start < 600
    assert s3.json("audit")["balanced"] is True
