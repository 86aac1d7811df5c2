"""A lakehouse in a bucket: each command as a process, killed ones, and a second writer."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from medallion.quality.suites import suite_path
from tests.support import PROJECT
from tests.support.command import Cli, run_beeline
from tests.support.fault_proxy import COMMIT, COMMITS, OFFSETS, STATE, FaultProxy, held, refused
from tests.support.s3_server import Bucket, S3Server
from tools import cluster

pytestmark = pytest.mark.slow
TABLES = ("silver.event", "quarantine.event", "gold.action_counts", "gold.user_activity")


class S3Cli(Cli):
    """Runs the command on a root in a bucket, through the proxy, and keeps what it prints."""

    def __init__(self, cli: Cli, root: str, proxy: FaultProxy) -> None:
        super().__init__(cli.lakehouse)
        self.root, self._proxy, self.printed, self.master = root, proxy, "", ""

    @property
    def environment(self) -> dict[str, str]:
        own = {"MEDALLION_HOME": self.root, "MEDALLION_MASTER": self.master}
        return {**super().environment, **self._proxy.environment, **own}

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


def kill_at(
    cli: S3Cli, proxy: FaultProxy, key: str, skip: int, *command: str, method: str = "PUT"
) -> None:
    """Start a command, and kill it while a request that writes such a key is on its way."""
    fault = held(lambda: os.killpg(process.pid, signal.SIGKILL))
    with proxy.inject(fault, method, key, skip=skip):
        process = cli.start(*(command or ("nightly",)), start_new_session=True)
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
    # A run with nothing new only compares what it sees with the note of the one before.
    proxy.requests.clear()
    assert s3("nightly").returncode == 0
    assert len(proxy.requests) <= 15, [(each.method, each.key) for each in proxy.requests]
    # Nothing that was printed, logged or stored has the secret.
    secret = s3_server.secret
    assert secret not in s3.printed
    stored = [bucket.read(key) for key in bucket.keys("")]
    logged = [file.read_bytes() for file in (tmp_path / "events").rglob("*") if file.is_file()]
    assert stored
    assert logged
    assert not any(secret.encode() in each for each in (*stored, *logged))


ORDERS: dict[str, Any] = {
    "sources": {
        "orders": {
            "schema": {"id": "long", "at": "timestamp", "status": "string", "amount": "long"},
            "silver": {"id": "id", "at": "at", "status": "status", "amount": "amount"},
            "event_time": "at",
            "keys": ["id", "at"],
        }
    },
    "gold": {
        "daily": {
            "source": "silver.orders",
            "window": "1 day",
            "measure": {"n": "count(*)", "total": "sum(amount)"},
            "output_mode": "update",
            "publish": {"files": {"format": "json"}},
        },
        "statuses": {
            "source": "silver.orders",
            "group_by": ["status"],
            "measure": {"n": "count(*)"},
            "output_mode": "complete",
        },
    },
}


REBUILT = ("silver.orders", "quarantine.orders", "gold.daily", "gold.statuses")


class Twins:
    """The same project in a bucket and on a disk; each command on the first is killed once."""

    def __init__(self, s3: S3Cli, cli: Cli, bucket: Bucket, proxy: FaultProxy) -> None:
        self.s3, self.cli, self.bucket, self.proxy = s3, cli, bucket, proxy
        self.elsewhere = bucket.server.create_bucket(f"{bucket.name}-old")

    def land(self, name: str, *rows: tuple[int, int, int]) -> None:
        """Land rows with an id, a day of May and an amount."""
        lines = "".join(
            json.dumps(
                {"id": id_, "at": f"2026-05-{day:02}T10:00:00Z", "status": "new", "amount": amount}
            )
            + "\n"
            for id_, day, amount in rows
        )
        if name.startswith("old/"):
            self.elsewhere.write(name, lines.encode())
            file = self.cli.lakehouse.root.parent / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(lines)
        else:
            self.bucket.write(f"lake/landing/orders/{name}", lines.encode())
            self.cli.lakehouse.land_text("orders", name, lines)

    def run(
        self, *command: str, at: str, skip: int = 0, method: str = "PUT", then: str = ""
    ) -> None:
        """Run a command on both, killed at a request; `then` continues it, by default itself."""
        done = self.cli(*command)
        assert done.returncode == 0, done.stderr
        kill_at(self.s3, self.proxy, at, skip, *command, method=method)
        done = self.s3(*(then.split() or command))
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    def assert_balanced(self) -> None:
        for each in (self.cli, self.s3):
            assert each.json("audit", "--deep")["balanced"] is True

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            assert content(self.s3, table) == content(self.cli, table), table


@pytest.fixture
def twins(s3: S3Cli, cli: Cli, bucket: Bucket, proxy: FaultProxy, tmp_path: Path) -> Twins:
    amounts = {"column": "amount", "max_value": 100}
    type_ = "expect_column_values_to_be_between"
    cli.lakehouse.expect("silver.orders", "small", type_, "quarantine", **amounts)
    cli.lakehouse.configure(tmp_path, ORDERS)
    twins = Twins(s3, cli, bucket, proxy)
    twins.land("1.json", (1, 1, 10), (2, 1, 20), (2, 1, 20), (3, 2, 500), (4, 3, 40))
    twins.run("nightly", at=r"/publish/daily/.*_files\.json$")
    return twins


def test_rewrites_continue_after_a_kill(twins: Twins, tmp_path: Path) -> None:
    lakehouse, s3, bucket = twins.cli.lakehouse, twins.s3, twins.bucket
    document = deepcopy(ORDERS)
    document["sources"]["orders"]["silver"]["status"] = "upper(status)"
    lakehouse.configure(tmp_path, document)
    twins.run("apply", "--yes", at=r"/_checkpoints/silver\.orders\.json$")
    twins.assert_equal(*REBUILT)
    # A rule that more rows pass.
    suite = suite_path(lakehouse.config.conf_dir, "silver.orders")
    suite.write_text(suite.read_text().replace("100", "1000"))
    twins.run("replay", "quarantine.orders", at=r"/quarantine/orders" + COMMIT, then="nightly")
    assert s3.json("sql", "select count(*) from quarantine.orders")["rows"] == [[0]]
    at = r"/_journal/refresh-gold\.daily\.json$"
    twins.run("refresh", "bronze.orders", at=at, skip=1, then="nightly")
    twins.assert_equal(*REBUILT)
    assert twins.cli("nightly").returncode == 0
    twins.run(
        *("erase", "silver.orders", "--where", "id = 4", "--cascade", "--purge"),
        at=r"/bronze/orders" + COMMIT,
        then="erase",
    )
    assert not any(b'"id": 4' in bucket.read(key) for key in bucket.keys("lake/"))
    twins.assert_equal(*REBUILT)
    twins.assert_balanced()


def test_inputs_and_renames_continue_after_a_kill(twins: Twins, tmp_path: Path) -> None:
    lakehouse, s3, cli, proxy = twins.cli.lakehouse, twins.s3, twins.cli, twins.proxy
    # Files of another bucket.
    twins.land("old/a.json", (5, 4, 50), (6, 5, 60))
    for each, path in ((cli, tmp_path / "old"), (s3, twins.elsewhere.url("old"))):
        command = ("backfill", "orders", str(path))
        if each is s3:
            kill_at(s3, proxy, r"/silver/orders" + COMMIT, 0, *command)
        assert each(*command).returncode == 0
    twins.assert_equal(*REBUILT)
    # A renamed table, and then one that is not configured any more.
    document = deepcopy(ORDERS)
    document["gold"]["totals"] = {**document["gold"].pop("statuses"), "renamed_from": "statuses"}
    lakehouse.configure(tmp_path, document)
    twins.run("nightly", at=r"/gold/totals/_delta_log/")
    twins.assert_equal("gold.totals")
    twins.run("maintain", at="/gold/.lock/")
    del document["gold"]["totals"]
    lakehouse.configure(tmp_path, document)
    twins.run("drop", "gold.totals", "--yes", at="", method="POST")
    assert twins.bucket.keys("lake/gold/totals") == twins.bucket.keys("lake/gold/statuses") == []
    # A stream.
    twins.land("2.json", (7, 6, 70), (8, 6, 80))
    kill_at(s3, proxy, OFFSETS, 1, "stream", "--trigger", "1 second")
    assert cli("nightly").returncode == 0
    with s3.start("stream", "--trigger", "1 second") as stream:
        deadline = time.monotonic() + 300
        expected = content(cli, "gold.daily")
        while content(s3, "gold.daily") != expected:
            assert time.monotonic() < deadline
            time.sleep(1)
        stream.terminate()
        assert stream.wait(120) == 0
    twins.assert_equal(*REBUILT[:3])
    twins.assert_balanced()


def test_cluster_that_shares_nothing_but_the_bucket(
    s3: S3Cli, cli: Cli, proxy: FaultProxy, tmp_path: Path
) -> None:
    """One of two workers is killed while state is written; the other one does the rest."""
    file = tmp_path / "conf/spark/spark-defaults.conf"
    settings = {"sql.shuffle.partitions": 2, "executor.memory": "512m", "cores.max": 2}
    settings |= {"driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1"}
    lines = (f"spark.{name} {value}" for name, value in settings.items())
    file.write_text("\n".join([file.read_text(), *lines]))
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MEDALLION_")}
    workspace = tmp_path / "cluster"
    with cluster.running(workspace, cluster.free_port(), variables | proxy.environment) as started:
        s3.master, workers = started
        for number, commands in enumerate((["nightly"], ["run bronze", "run silver", "run gold"])):
            for each in (s3, cli):
                options = ("--source", "event", "--rows", "400", "--dirty", "--seed", str(number))
                assert each("land", *options).returncode == 0
            lost = held(lambda: cluster.end(workers[0]))
            with proxy.inject(lost, "PUT", STATE) as hits:
                results = [s3(*command.split()) for command in commands]
            assert hits
            assert [result.returncode for result in results] == [0] * len(commands), results
            errors = "".join(result.stderr for result in results)
            assert errors.count("Lost executor") == (number == 0), errors
            assert cli("nightly").returncode == 0
            for table in TABLES:
                assert content(s3, table) == content(cli, table), table
    assert s3.json("audit")["balanced"] is True


def test_spark_submit_thrift_and_check_of_sql(s3: S3Cli, cli: Cli) -> None:
    """Commands with sessions of their own read and write the same tables."""
    for each in (s3, cli):
        assert each("land", "--source", "event", "--rows", "400", "--dirty").returncode == 0
    assert cli("nightly").returncode == 0
    jars = subprocess.check_output([sys.executable, "-m", "medallion.install.jars"], text=True)
    spark_submit = [str(Path(sys.executable).parent / "spark-submit"), "--jars", jars.strip()]
    for job in ("bronze", "silver", "gold"):
        submitted = subprocess.run(
            [*spark_submit, f"jobs/{job}.py"],
            env=s3.environment,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert submitted.returncode == 0, submitted.stderr
    for table in TABLES:
        assert content(s3, table) == content(cli, table), table
    checked = s3("check", "--sql")
    assert checked.returncode == 0, checked.stdout
    with s3.start("thrift", "--port", "0") as server:
        assert server.stdout
        url = server.stdout.readline().partition(" ")[0]
        status, out, err = run_beeline(url, "SELECT count(*) AS n FROM silver.event")
        rows = len(content(cli, "silver.event"))
        assert (status, out) == (0, f"n\n{rows}\n"), err
        server.send_signal(signal.SIGINT)
        assert server.communicate(timeout=60)[0] == "stopped\n"


def run_until_credentials_expire(s3: S3Cli, proxy: FaultProxy, key: str, skip: int) -> Any:
    """Return the result of a run for which all requests are refused after one of this key."""
    expired = proxy.inject(refused(400, "ExpiredToken"), ".*", times=math.inf)
    with ExitStack() as stack:
        expire = held(lambda: stack.enter_context(expired))
        with proxy.inject(expire, "PUT", key, skip=skip) as hits:
            result = s3("nightly")
        assert hits
    return result


def test_credentials_that_expire_in_a_run(s3: S3Cli, cli: Cli, proxy: FaultProxy) -> None:
    """It fails with that reason, and the next one with new credentials loses no row."""
    for each in (s3, cli):
        assert each("land", "--source", "event", "--rows", "400", "--dirty").returncode == 0
    for key, skip in ((r"/bronze/event" + COMMIT, 1), (STATE, 0)):
        result = run_until_credentials_expire(s3, proxy, key, skip)
        assert result.returncode in (1, 2), result.stderr
        assert "expired" in result.stderr.lower()
    assert s3("nightly").returncode == cli("nightly").returncode == 0
    assert [content(s3, table) for table in TABLES] == [content(cli, table) for table in TABLES]
    assert s3.json("audit", "--deep")["balanced"] is True


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
