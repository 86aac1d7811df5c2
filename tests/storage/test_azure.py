"""Azure's storage, against a real server: paths, leases, and commands without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from medallion.cli import main
from medallion.errors import UsageError
from medallion.storage import locks, objects
from medallion.storage.files import FileInfo
from medallion.storage.layout import Layout
from medallion.storage.paths import ObjectPath, StoragePath
from tests.storage.test_leases import HOLD
from tests.support import PROJECT, azure_server
from tests.support.azure_server import AzureServer


@pytest.fixture(scope="module", name="server")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    with azure_server.running(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.fixture
def root(
    server: AzureServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> StoragePath:
    """Return a prefix of a new container; the environment has address and credentials."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    name = request.node.originalname.replace("_", "-")[:60].strip("-")
    return StoragePath(server.create_container(name)) / "lake"


def info_of(path: StoragePath) -> FileInfo:
    info = path.info()
    assert info
    return info


@pytest.mark.parametrize(
    ("spelling", "normalized"),
    [
        ("abfs://c-1@acc.dfs.core.windows.net//a/", "abfss://c-1@acc.dfs.core.windows.net/a"),
        ("ABFSS://c-1@acc.dfs.core.windows.net", "abfss://c-1@acc.dfs.core.windows.net"),
        ("GS://b_1/a/../k", "gs://b_1/k"),
    ],
)
def test_one_spelling_of_an_address(spelling: str, normalized: str) -> None:
    path = StoragePath(spelling)
    assert (str(path), path.unsupported_reason()) == (normalized, None)
    assert StoragePath("abfss://container/a").unsupported_reason()


def test_read_write_list_and_delete(root: StoragePath) -> None:
    for name in ("b", "a", "c/d e", "cc/e", "c/sub/f"):
        (root / name).write_atomic(f"größer {name}")
    assert [path.name for path in root.children()] == ["a", "b", "c", "cc"]
    assert [(name, info.size) for name, info in root.list_files()] == [("a", 10), ("b", 10)]
    assert [name for name, _ in root.open_tree()(str(root / "c"))] == ["d e", "sub"]
    assert (root / "c/d e").read() == "größer c/d e".encode()
    with pytest.raises(FileNotFoundError):
        (root / "none").read()
    ((_, listed),) = (each for each in root.list_files() if each[0] == "a")
    assert listed.is_same(info_of(root / "a"))
    (root / "c").delete_prefix()
    assert (root / "c").children() == []
    (root / "cc").move_directory(root / "moved")
    assert [str(path.below(root)) for path in root.files_below()] == ["a", "b", "moved/e"]


def test_conditions_of_writes_and_deletions(root: StoragePath) -> None:
    file = root / "a"
    assert isinstance(file, ObjectPath)
    assert file.write_new(b"1")
    assert not file.write_new(b"2")
    old = info_of(file)
    file.write_atomic("3")
    assert not file.delete(old)
    assert not objects.delete_unchanged(str(file), old.tag), "it was replaced after the question"
    archived = file.move_to_free(root / "archive/a", info_of(file))
    assert archived == root / "archive/a"
    assert (archived.read(), file.info()) == (b"3", None)


def test_lease_is_held_by_one_process(root: StoragePath) -> None:
    """Another one is refused while its holder lives, and succeeds it when it was killed."""
    layout, command = Layout(root), [sys.executable, "-c", HOLD, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(UsageError, match=f"pid {process.pid}"),
            locks.lock_layers(layout, ["bronze"], "nightly"),
        ):
            pass
        process.kill()
    with locks.lock_layers(layout, ["bronze"], "nightly"):
        assert locks.is_held_here(layout, "bronze")


def test_errors_have_reasons(root: StoragePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_TRIES", 0)
    missing = StoragePath(str(root).replace("abfss://", "abfss://no-"))
    for call in (missing.children, missing.read):
        with pytest.raises(OSError, match="there is no such container"):
            call()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    objects._client.cache_clear()
    with pytest.raises(OSError, match="check AZURE_STORAGE_ACCOUNT_KEY"):
        root.children()
    objects._client.cache_clear()


def test_commands_without_spark(
    root: StoragePath, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They read tables that were copied there, and land files; Spark is refused."""
    monkeypatch.setenv("MEDALLION_HOME", str(root))
    monkeypatch.setenv("MEDALLION_CONF", str(PROJECT / "conf"))

    def run(*arguments: str) -> tuple[int, str]:
        status = main.main([*arguments])
        output = capsys.readouterr()
        return status, output.out + output.err

    rows = pa.table({"device": ["a", "b"], "n": [1, 2]})
    table = StoragePath(root / "gold/device_totals")
    write_deltalake(str(table), rows, storage_options=table.delta_options)
    status, output = run("sql", "--json", "select sum(n) as n from gold.device_totals")
    assert (status, json.loads(output)["rows"]) == (0, [[3]])
    assert run("land", "--rows", "10")[0] == 0
    assert len((root / "landing/event").children()) == 2
    queries = json.loads(run("status", "--json")[1])["queries"]
    files = {each["query"]: each["backlog"]["files"] for each in queries if each["backlog"]}
    assert files == {"bronze.activity": 2, "bronze.event": 2}
    status, output = run("nightly")
    assert status == 2
    assert "Spark writes tables on a disk or on s3://, not on abfss://" in output
