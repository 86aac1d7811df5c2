"""Paths in a bucket: the operations of those on a disk, against a real server."""

from __future__ import annotations

import pickle
from itertools import permutations
from pathlib import Path

import pytest

from medallion.storage import objects
from medallion.storage.files import EntryType, FileInfo
from medallion.storage.layout import Layout
from medallion.storage.paths import ObjectPath, StoragePath
from tests.support.fault_proxy import NO_CONDITIONS, Fault, FaultProxy, held, lost_answer, refused
from tests.support.s3_server import Bucket


@pytest.fixture
def root(bucket: Bucket) -> StoragePath:
    return StoragePath(bucket.url("lake"))


def put(path: StoragePath, text: str = "") -> StoragePath:
    path.write_atomic(text)
    return path


def info_of(path: StoragePath) -> FileInfo:
    info = path.info()
    assert info
    return info


def test_address_is_a_value() -> None:
    root = StoragePath("s3://b-1/lake")
    path = root / "a" / "b.json"
    assert isinstance(path, ObjectPath)
    assert str(path) == "s3://b-1/lake/a/b.json"
    assert path == StoragePath("S3a://b-1/lake//a/b.json/")
    assert (path.name, path.parent, str(path.below(root))) == ("b.json", root / "a", "a/b.json")
    assert root.below(path) is None
    assert path.below(StoragePath("/b-1/lake")) is None
    assert StoragePath("/b-1/lake/a").below(root) is None
    assert pickle.loads(pickle.dumps(path)) == path
    assert root / "/disk/c" == StoragePath("/disk/c")
    assert str(StoragePath("/disk") / "s3://other/k") == "s3://other/k"
    assert (root / "a #1%+ü.json").uri == "s3://b-1/lake/a%20%231%25%2B%C3%BC.json"
    with pytest.raises(TypeError):
        path.local  # noqa: B018


def test_read_write_list_and_delete(root: StoragePath, bucket: Bucket) -> None:
    for name in ("b", "a", "c/d", "cc/e", "c/sub/f"):
        put(root / name, f"größer {name}")
    assert [path.name for path in root.children()] == ["a", "b", "c", "cc"]
    assert [(name, info.size) for name, info in root.list_files()] == [("a", 10), ("b", 10)]
    assert list(root.files_below()) == [root / n for n in ("a", "b", "c/d", "c/sub/f", "cc/e")]
    assert (root / "c/d").read() == "größer c/d".encode()
    with (root / "c/d").as_local() as file:
        assert (file.name, file.read_text()) == ("d", "größer c/d")
    assert ((root / "c").is_stored(), (root / "c").is_directory()) == (True, True)
    assert ((root / "c/d").is_stored(), (root / "c/d").is_directory()) == (True, False)
    for missing in (root / "none", root / "a" / "below", root / "ab"):
        assert (missing.children(), list(missing.list_files())) == ([], [])
        assert (missing.info(), missing.is_stored(), missing.is_taken()) == (None, False, False)
        assert missing.delete()
        with pytest.raises(FileNotFoundError):
            missing.read()
    before = root.state()
    assert root.state() == before
    put(root / "a", "another .")
    assert root.state() != before
    (root / "c").delete_prefix()
    (root / "a").delete()
    assert bucket.keys() == ["lake/b", "lake/cc/e"]


def test_tree_has_each_directory(root: StoragePath) -> None:
    for name in ("x/a b", "x/y/c%41", "x/y/ü#?+", "z"):
        put(root / name, "1")
    list_directory = root.open_tree()

    def listed(directory: StoragePath) -> list[tuple[str, bool]]:
        entries = list_directory(str(directory))
        return [(name, state() is EntryType.DIRECTORY) for name, state in entries]

    assert listed(root) == [("x", True), ("z", False)]
    assert listed(root / "x") == [("a b", False), ("y", True)]
    assert listed(root / "x/y") == [("c%41", False), ("ü#?+", False)]
    assert list(root.walk(lambda path: path.endswith("/y"))) == [
        (str(root), ["z"]),
        (str(root / "x"), ["a b"]),
    ]


def test_sizes_are_one_listing(root: StoragePath, proxy: FaultProxy, tmp_path: Path) -> None:
    for place in (root, StoragePath(tmp_path)):
        put(place / "t/a b=1/c%20d", "123")
        put(place / "t/e", "1")
        proxy.requests.clear()
        sizes = (place / "t").sizes_below(["a b=1/c%20d", "e", "f"])
        assert sizes == {"a b=1/c%20d": 3, "e": 1}
        assert proxy.count() == ({"LIST": 1} if place is root else {})


def test_markers_of_folders_are_no_files(root: StoragePath, bucket: Bucket) -> None:
    """Consoles create empty objects whose keys end with a slash."""
    put(root / "empty")
    put(root / "a", "1")
    (bucket.server.folder / bucket.name / "lake/marker").mkdir()
    assert [name for name, _ in root.open_tree()(str(root))] == ["a", "empty"]


def test_deletion_spares_another_object(root: StoragePath) -> None:
    file = put(root / "a", "1")
    old = info_of(file)
    put(file, "2")
    assert not old.is_same(info_of(file))
    assert not file.delete(old)
    assert not objects.delete_unchanged(str(file), old.tag), "it was replaced after the question"
    assert file.read() == b"2"
    assert file.delete(info_of(file))
    assert file.delete(old)
    assert root.children() == []


def test_store_that_ignores_conditions_deletes_nothing(
    root: StoragePath, proxy: FaultProxy
) -> None:
    file = put(root / "a", "1")
    old = info_of(file)
    with proxy.inject(NO_CONDITIONS, "DELETE"), pytest.raises(OSError, match="clean_source: off"):
        file.delete(old)
    assert file.read() == b"1"


def test_move_to_free_archives_once(root: StoragePath, bucket: Bucket) -> None:
    archive = root / "archive/a"
    first, other = put(root / "a", "1"), put(root / "b", "22")
    assert first.move_to_free(archive, info_of(first)._replace(tag="0")) is None
    expected = info_of(first)
    assert first.move_to_free(archive, expected) == archive
    assert first.move_to_free(archive, expected) == archive, "the ledger was not written"
    # It was interrupted between copy and deletion.
    objects.copy(str(other), str(root / "archive/2~a"))
    assert other.move_to_free(archive, info_of(other)) == root / "archive/2~a"
    assert bucket.keys() == ["lake/archive/2~a", "lake/archive/a"]
    assert (root / "c").move_to_free(root / "archive/c", FileInfo(1, 1, "0")) is None


def test_large_object_is_not_copied_by_the_store(
    root: StoragePath, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MOST_COPIED", 4)
    for name, content in (("small", "1234"), ("large", "12345")):
        file, archive = put(root / name, content), root / "archive" / name
        proxy.requests.clear()
        assert file.move_to_free(archive, info_of(file)) == archive
        assert (archive.read(), file.info()) == (content.encode(), None)
        copied = ["x-amz-copy-source" in each.headers for each in proxy.requests]
        assert any(copied) is (name == "small")


def test_move_to_free_leaves_a_new_object(root: StoragePath, proxy: FaultProxy) -> None:
    """It is overwritten between copy and deletion."""
    file = put(root / "a", "1")
    with proxy.inject(held(lambda: put(file, "2")), "DELETE", "/lake/a$"):
        assert file.move_to_free(root / "archive/a", info_of(file)) is None
    assert file.read() == b"2"


@pytest.mark.parametrize("status", [0, 500])
def test_create_after_a_lost_answer(root: StoragePath, proxy: FaultProxy, status: int) -> None:
    path = root / "a"
    assert isinstance(path, ObjectPath)
    with proxy.inject(lost_answer(status), "PUT"):
        assert path.write_new(b"1"), "it was written, although the first answer was lost"
    assert not path.write_new(b"2")
    assert path.read() == b"1"


def test_directory_moves(root: StoragePath, bucket: Bucket) -> None:
    for name in ("x/a", "x/y/b", "xx/c"):
        put(root / name)
    (root / "x").move_directory(root / "new")
    (root / "x").move_directory(root / "new")
    assert bucket.keys() == ["lake/new/a", "lake/new/y/b", "lake/xx/c"]


def test_move_between_stores(root: StoragePath, bucket: Bucket, tmp_path: Path) -> None:
    """Folders of sources and the root may be on a disk and in several buckets."""
    other = bucket.server.create_bucket(f"{bucket.name}-2")
    places = [root, StoragePath(other.url("x")), StoragePath(tmp_path)]
    for source, place in permutations(places, 2):
        target = place / "archive/a"
        for expected in ("a", "2~a"):
            file = put(source / "in/a", expected * 3)
            info = info_of(file)
            assert file.move_to_free(target, info._replace(size=9, tag="-")) is None
            moved = file.move_to_free(target, info)
            assert moved == target.parent / expected
            assert (moved.read().decode(), file.info()) == (expected * 3, None)
            assert file.move_to_free(target, info) == moved, "the ledger was not written"
        # A process was killed between copy and deletion.
        file = put(source / "in/a", "copied")
        (target.parent / "3~a").copy_from(file)
        assert file.move_to_free(target, info_of(file)) == target.parent / "3~a"
        target.parent.delete_prefix()


def test_copy_from(root: StoragePath, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("1")
    (root / "a.gz").copy_from(StoragePath(tmp_path / "new"))
    assert (root / "a.gz").read() == b"1"


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("bucket", "no-such-bucket", "there is no such bucket"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", "refuses the credentials"),
        ("AWS_ACCESS_KEY_ID", "wrong", "refuses the credentials"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "no answer from http://127.0.0.1:1"),
    ],
)
def test_errors_have_reasons(
    root: StoragePath, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, reason: str
) -> None:
    monkeypatch.setattr(objects, "_TRIES", 0)
    if setting == "bucket":
        root = StoragePath(f"s3://{value}/lake")
    else:
        monkeypatch.setenv(setting, value)
        objects._client.cache_clear()
    for call in (root.children, root.files_below().__next__, Layout(root).require_root):
        with pytest.raises(OSError, match=reason) as caught:
            call()
        assert caught.value.filename == str(root)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (refused(403), "access is denied"),
        (refused(400, "ExpiredToken"), "the credentials have expired"),
        (refused(503), "the store answers 503 SlowDown"),
    ],
)
def test_refused_requests(
    root: StoragePath, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault, reason: str
) -> None:
    monkeypatch.setattr(objects, "_TRIES", 0)
    file = put(root / "a", "1")
    for method, call in (
        ("GET", file.read),
        ("LIST", root.children),
        ("PUT", lambda: file.write_atomic("2")),
        ("DELETE|POST", file.delete),
    ):
        with proxy.inject(fault, method), pytest.raises(OSError, match=reason):
            call()
    assert file.read() == b"1"


def test_key_that_no_client_can_read_is_named(root: StoragePath, bucket: Bucket) -> None:
    put(root / "b", "1")
    (bucket.server.folder / bucket.name / "lake/a\tb").touch()
    with pytest.raises(OSError, match=r"the key .*a\\tb.* cannot be read"):
        root.open_tree()(str(root))
    assert root.is_directory()
