"""Questions about objects that are asked once."""

from __future__ import annotations

import threading

from medallion.storage import objects
from medallion.storage.paths import StoragePath
from tests.support.fault_proxy import FaultProxy
from tests.support.s3_server import Bucket


def asked(path: StoragePath) -> tuple[list[str], bytes | None]:
    """Return the names beside an object, and its content."""
    try:
        return path.parent.names(), path.read()
    except FileNotFoundError:
        return path.parent.names(), None


def test_questions_are_asked_once_until_a_write(bucket: Bucket, proxy: FaultProxy) -> None:
    path, other = StoragePath(bucket.url("lake/a/1")), StoragePath(bucket.url("lake/b/1"))
    with objects.remembering():
        for number in range(3):
            assert asked(path) == ([], None)
            assert asked(other) == ([], None)
            assert proxy.count("lake/a") == {"LIST": 1, "GET": 1}, number
        path.write_atomic(b"x")
        assert asked(path) == (["1"], b"x")
        assert asked(path) == (["1"], b"x")
        assert asked(path.parent.parent / "c")[0] == ["a"]
        assert proxy.count("lake/a") == {"LIST": 2, "GET": 2, "PUT": 1}
        assert asked(other) == ([], None)
        assert proxy.count("lake/b") == {"LIST": 1, "GET": 1}
        other.parent.delete_prefix()
        path.parent.delete_prefix()
        assert asked(path) == ([], None)


def test_other_threads_and_what_others_write_are_asked_again(bucket: Bucket) -> None:
    path = StoragePath(bucket.url("lake/a/1"))
    found = []
    with objects.remembering():
        assert path.names() == path.parent.names() == []
        bucket.write("lake/a/1", b"x")
        assert path.parent.names() == []
        with objects.remembering(answers=False):
            assert path.parent.names() == ["1"]
        thread = threading.Thread(target=lambda: found.append(path.parent.names()))
        thread.start()
        thread.join()
        assert found == [["1"]]
        assert path.parent.names() == []
        with objects.asking_each_time():
            assert path.parent.names() == ["1"]
        assert path.parent.names() == ["1"], "what Spark wrote is asked again"
    assert path.parent.names() == ["1"]


def test_a_read_only_function_within_another_shares_its_answers(
    bucket: Bucket, proxy: FaultProxy
) -> None:
    path = StoragePath(bucket.url("lake/a/1"))
    with objects.remembering():
        assert path.names() == []
        with objects.remembering():
            assert path.names() == []
        assert path.names() == []
    assert proxy.count("lake/a") == {"LIST": 1}


def test_only_what_spark_writes_is_asked_each_time(bucket: Bucket, proxy: FaultProxy) -> None:
    """The documents of a checkpoint are this package's; then Spark has ended its queries."""
    document = StoragePath(bucket.url("lake/_checkpoints/q/medallion.json"))
    plans = document.parent / "offsets"
    with objects.remembering(), objects.asking_each_time():
        for _ in range(2):
            assert asked(document)[1] is None
            assert plans.names() == []
        assert proxy.count("json$") == {"GET": 1}
        assert proxy.count("offsets") == {"LIST": 2}
        document.write_atomic(b"{}")
        assert asked(document)[1] == b"{}"
        bucket.write("lake/_checkpoints/q/offsets/0", b"")
        for _ in range(2):
            with objects.remembering_again():
                assert plans.names() == ["0"]
        assert proxy.count("offsets/$") == {"LIST": 3}
