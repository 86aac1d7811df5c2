"""Paths below the root: comparable values with operations on the file or directory there."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from urllib.parse import quote

import pytest

from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath


@pytest.fixture
def root(tmp_path: Path) -> StoragePath:
    return StoragePath(tmp_path)


def test_storage_path_is_a_value(root: StoragePath) -> None:
    path = root / "a" / "b.json"
    assert path == StoragePath(f"{root}/a//b.json")
    assert path != root / "a"
    assert (path.name, path.parent) == ("b.json", root / "a")
    assert str(path) == os.fspath(path) == path.address
    assert pickle.loads(pickle.dumps(path)) == path
    assert root / "/elsewhere/c" == StoragePath("/elsewhere/c")
    assert sorted([path, root]) == [root, path]


@pytest.mark.parametrize("name", ["glob", "rename", "unlink", "open", "iterdir", "exists", "stat"])
def test_storage_path_has_no_other_operation(root: StoragePath, name: str) -> None:
    assert not hasattr(root, name)


def test_uri_has_no_pattern(root: StoragePath) -> None:
    assert (root / "a [1]*?.json").uri == f"file://{quote(str(root))}/a%20%5B1%5D%2A%3F.json"


def test_children_and_list_files(root: StoragePath) -> None:
    for name in ("b", "a", "c/d"):
        (root / name).write_atomic(name)
    (root / "link").local.symlink_to("a")
    assert [path.name for path in root.children()] == ["a", "b", "c", "link"]
    assert [(name, info.size) for name, info in root.list_files()] == [("a", 1), ("b", 1)]
    for missing in (root / "none", root / "a"):
        assert missing.children() == []
        assert list(missing.list_files()) == []


def test_read_write_and_delete(root: StoragePath) -> None:
    file = root / "new" / "file"
    assert not file.is_stored()
    assert file.info() is None
    with pytest.raises(FileNotFoundError):
        file.read()
    file.write_atomic("größer")
    file.sync()
    assert file.read() == "größer".encode()
    assert file.parent.children() == [file]
    info = file.info()
    assert info
    assert info.size == 8
    assert not file.delete(info._replace(size=1))
    assert file.is_stored()
    assert file.delete(info)
    assert file.delete(), "deleting nothing is no error"
    assert (root / "new" / "file" / "below").delete()
    assert not file.is_stored()


def test_delete_prefix_follows_no_link(root: StoragePath) -> None:
    (root / "kept" / "file").write_atomic("")
    (root / "tree" / "deep" / "file").write_atomic("")
    (root / "tree" / "link").local.symlink_to(root / "kept")
    (root / "tree").delete_prefix()
    (root / "tree").delete_prefix()
    assert root.children() == [root / "kept"]
    assert (root / "kept" / "file").is_stored()


def test_file_is_writable_if_it_is_no_program(root: StoragePath) -> None:
    (root / "_report.html").write_atomic("")
    assert (root / "_report.html").is_writable()
    (root / "_report.html").local.chmod(0o400)
    assert not (root / "_report.html").is_writable()
    assert (root / "new" / "file").is_writable()


def test_checkpoint_follows_its_pointer(root: StoragePath) -> None:
    layout = Layout(root)
    first = root / "_checkpoints" / "silver.a"
    assert layout.checkpoint("silver.a") == first
    assert layout.checkpoint("silver.a", ahead=1) == first / "1"
    layout.checkpoint_pointer("silver.a").write_atomic('{"generation": 7}')
    assert layout.checkpoint("silver.a") == first / "7"
    assert layout.checkpoint("silver.a", ahead=1) == first / "8"
    assert layout.checkpoint("silver.ab") == root / "_checkpoints" / "silver.ab"
