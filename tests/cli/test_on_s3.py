"""Commands without Spark on a root in a bucket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medallion.cli.main import main
from medallion.storage import objects
from tests.support import PROJECT
from tests.support.s3_server import Bucket


@pytest.fixture(autouse=True)
def root(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MEDALLION_HOME", bucket.url("lake"))
    monkeypatch.setenv("MEDALLION_CONF", str(PROJECT / "conf"))
    monkeypatch.chdir(PROJECT)
    return bucket.url("lake")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_commands_on_landed_files(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "land", "--sample") == {"activity": {"files": 1}, "event": {"files": 4}}
    assert run(capsys, "land", "--sample") == {}
    assert run(capsys, "land", "--source", "event", "--rows", "30")["event"]["lines"] == 30
    assert len(bucket.keys("lake/landing/event/event-000001-")) == 2
    assert run(capsys, "files") == {"files": []}
    assert run(capsys, "audit")["balanced"] is True
    assert run(capsys, "sql", "select 1 as one") == {"columns": ["one"], "rows": [[1]]}
    statuses = {each["query"]: each for each in run(capsys, "status")["queries"]}
    assert statuses["bronze.event"]["backlog"]["files"] == 6
    checked = run(capsys, "check")
    assert checked["errors"] == []
    assert run(capsys, "report")["page"] == bucket.url("lake/_report.html")
    assert b"<html" in bucket.read("lake/_report.html")
    assert run(capsys, "schema", "event")["versions"] == []


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("MEDALLION_HOME", "s3://no-such-bucket/lake", "there is no such bucket"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", "refuses the credentials"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "no answer from http://127.0.0.1:1"),
    ],
)
def test_unreachable_root_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    reason: str,
) -> None:
    monkeypatch.setattr(objects, "_TRIES", 0)
    monkeypatch.setenv(name, value)
    objects._client.cache_clear()
    for command in (["status"], ["sql", "select 1"], ["land"], ["check"], ["files"]):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert reason in line


def test_missing_root_is_one_sentence(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 2
    assert f"there is no lakehouse at {root}" in capsys.readouterr().err


def test_missing_package_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.exceptions", None)
    assert main(["status"]) == 2
    assert "pip install obstore" in capsys.readouterr().err
