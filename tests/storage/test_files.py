"""What is written down is on the disk, whole, before anybody goes on."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from medallion.storage import files


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    files.write_atomic(tmp_path / "a.json", "one")
    files.write_atomic(tmp_path / "a.json", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "two"


def test_write_if_absent_keeps_a_file(tmp_path: Path) -> None:
    assert files.write_if_absent(tmp_path / "a.json", "one")
    assert not files.write_if_absent(tmp_path / "a.json", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "one"


@pytest.mark.parametrize(("fails_for", "number"), [("f", errno.EINVAL), ("d", errno.EIO)])
def test_a_disk_need_not_know_how_to_sync_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_for: str, number: int
) -> None:
    def fails(handle: int, kind: str, number: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        if is_folder == (kind == "d"):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", lambda handle: fails(handle, "d", errno.EINVAL))
    files.write_atomic(tmp_path / "a.json", "one")
    assert (tmp_path / "a.json").read_text() == "one"
    monkeypatch.setattr(os, "fsync", lambda handle: fails(handle, fails_for, number))
    with pytest.raises(OSError, match=os.strerror(number)):
        files.write_atomic(tmp_path / "a.json", "two")


def test_the_bytes_are_on_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power fails: a name without its bytes would be an empty file in the place of a good one."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        fsync(handle)

    def replaced(path: Path, target: Path) -> Path:
        steps.append(f"{path.name} becomes {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    folder = tmp_path / "plans"
    folder.mkdir()
    files.write_atomic(folder / "plan.json", "{}")
    assert steps == ["sync .plan.json.tmp", ".plan.json.tmp becomes plan.json", "sync plans"]
