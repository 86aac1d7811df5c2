"""Atomic writes: the file is complete and synced when the call returns."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from medallion.storage import files
from medallion.storage.paths import StoragePath


def test_write_atomic_replaces_a_file(tmp_path: Path) -> None:
    files.write_atomic(tmp_path / "a.json", "one")
    files.write_atomic(tmp_path / "a.json", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "two"


@pytest.mark.parametrize(("fails_for", "number"), [("f", errno.EINVAL), ("d", errno.EIO)])
def test_write_atomic_tolerates_disks_without_directory_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_for: str, number: int
) -> None:
    def fail_for(handle: int, file_type: str, number: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(handle).st_mode)
        if is_directory == (file_type == "d"):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", lambda handle: fail_for(handle, "d", errno.EINVAL))
    files.write_atomic(tmp_path / "a.json", "one")
    assert (tmp_path / "a.json").read_text() == "one"
    monkeypatch.setattr(os, "fsync", lambda handle: fail_for(handle, fails_for, number))
    with pytest.raises(OSError, match=os.strerror(number)):
        files.write_atomic(tmp_path / "a.json", "two")


def test_write_atomic_syncs_content_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure must not leave an empty file in place of a good one."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def record_sync(handle: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        fsync(handle)

    def record_replace(path: Path, target: Path) -> Path:
        steps.append(f"{path.name} becomes {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "replace", record_replace)
    directory = tmp_path / "plans"
    directory.mkdir()
    files.write_atomic(directory / "plan.json", "{}")
    assert steps == ["sync .plan.json.tmp", ".plan.json.tmp becomes plan.json", "sync plans"]


def test_complete_deletions_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is killed between the rename and the deletion of one of two files of one time."""
    long_name = "ü" * 127
    for name in ("a", long_name):
        StoragePath(tmp_path / name).write_atomic("")
        os.utime(tmp_path / name, (5, 5))
    file = StoragePath(tmp_path / "a")
    info = file.info()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            file.delete(info)
    assert StoragePath(tmp_path / long_name).delete(info), "another file of the same time"
    assert len(list(tmp_path.iterdir())) == 1
    # One that had replaced its file is put back beside a newer one.
    replaced = files.deletion_path(tmp_path / "b", files.FileInfo(9, 9))
    replaced.write_text("not ingested")
    (tmp_path / "b").write_text("newer")
    assert not StoragePath(tmp_path / "b").delete(files.FileInfo(9, 9))
    assert file.delete(info)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "b": "newer",
        "2~b": "not ingested",
    }


def test_delete_completes_an_interrupted_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process was killed between the rename and the deletion."""
    file = StoragePath(tmp_path / "a")
    file.write_atomic("ingested")
    info = file.info()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            file.delete(info)
    assert [*tmp_path.iterdir()] != []
    assert file.delete(info)
    assert [*tmp_path.iterdir()] == []


def test_path_that_cannot_be_inspected_may_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the answer that there is nothing is one; a disk may not answer."""
    assert not files.path_exists(tmp_path / "a")
    assert not files.path_exists(Path("/dev/null/a"))

    def fail(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "lstat", fail)
    assert files.path_exists(tmp_path / "a")
