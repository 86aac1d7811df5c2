"""The S3 server of the tests, and the faults that the proxy injects."""

from __future__ import annotations

import math
import time

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError
from obstore.store import S3Store

from tests.support.fault_proxy import (
    NO_CONDITIONS,
    FaultProxy,
    delayed,
    held,
    lost_answer,
    refused,
)
from tests.support.s3_server import Bucket


@pytest.fixture
def store(bucket: Bucket) -> S3Store:
    return S3Store(bucket.name, client_options={"allow_http": True})


@pytest.fixture
def store_by_proxy(proxy: FaultProxy, store: S3Store, bucket: Bucket) -> S3Store:
    """Return a store that asks once, so that a test shows the first answer."""
    return S3Store(
        bucket.name, client_options={"allow_http": True}, retry_config={"max_retries": 0}
    )


def test_server_stores_objects_and_refuses_a_second_create(store: S3Store, bucket: Bucket) -> None:
    obstore.put(store, "a/b c", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a/b c", b"2", mode="create")
    assert bucket.keys() == ["a/b c"]
    assert bucket.read("a/b c") == b"1"


def test_restarted_server_keeps_objects(store: S3Store, bucket: Bucket) -> None:
    obstore.put(store, "a", b"1")
    bucket.server.stop()
    bucket.server.start()
    assert obstore.get(store, "a").bytes().to_bytes() == b"1"


def test_proxy_counts_requests_by_method(
    store_by_proxy: S3Store, proxy: FaultProxy, bucket: Bucket
) -> None:
    obstore.put(store_by_proxy, "a/x y", b"1")
    obstore.get(store_by_proxy, "a/x y").bytes()
    obstore.head(store_by_proxy, "a/x y")
    assert [entry["path"] for entry in obstore.list(store_by_proxy, "a").collect()] == ["a/x y"]
    obstore.delete(store_by_proxy, "a/x y")
    # obstore deletes with the request for many keys, POST.
    assert proxy.count() == {"PUT": 1, "GET": 1, "HEAD": 1, "LIST": 1, "POST": 1}
    assert proxy.count("/a/x y$") == {"PUT": 1, "GET": 1, "HEAD": 1}
    assert bucket.keys() == []


@pytest.mark.parametrize("status", [403, 500, 503])
def test_refused_request_is_not_carried_out(
    store_by_proxy: S3Store, proxy: FaultProxy, bucket: Bucket, status: int
) -> None:
    with proxy.inject(refused(status), "PUT", "/log/", times=math.inf) as hits:
        with pytest.raises(PermissionDeniedError if status == 403 else BaseError):
            obstore.put(store_by_proxy, "log/1", b"1")
        obstore.put(store_by_proxy, "data/1", b"1")
    assert [hit.key for hit in hits] == [f"/{bucket.name}/log/1"]
    assert bucket.keys() == ["data/1"]


def test_fault_meets_the_chosen_requests(store_by_proxy: S3Store, proxy: FaultProxy) -> None:
    outcomes = []
    with proxy.inject(refused(403), "PUT|DELETE", skip=1, times=2):
        for key in "abcd":
            try:
                obstore.put(store_by_proxy, key, b"1")
                outcomes.append("written")
            except PermissionDeniedError:
                outcomes.append("refused")
    assert outcomes == ["written", "refused", "refused", "written"]


@pytest.mark.parametrize("status", [0, 500])
def test_request_with_a_lost_answer_is_carried_out(
    store_by_proxy: S3Store, proxy: FaultProxy, bucket: Bucket, status: int
) -> None:
    with (
        proxy.inject(lost_answer(status), "PUT"),
        pytest.raises(BaseError),
    ):
        obstore.put(store_by_proxy, "a", b"1", mode="create")
    assert bucket.read("a") == b"1"


def test_stripped_condition_lets_a_second_create_win(
    store_by_proxy: S3Store, proxy: FaultProxy, bucket: Bucket
) -> None:
    obstore.put(store_by_proxy, "a", b"1", mode="create")
    with proxy.inject(NO_CONDITIONS, "PUT"):
        obstore.put(store_by_proxy, "a", b"2", mode="create")
    assert bucket.read("a") == b"2"


def test_held_request_arrives_after_another(
    store: S3Store, store_by_proxy: S3Store, proxy: FaultProxy, bucket: Bucket
) -> None:
    first = held(lambda: obstore.put(store, "a", b"other", mode="create"))
    with proxy.inject(first, "PUT"), pytest.raises(AlreadyExistsError):
        obstore.put(store_by_proxy, "a", b"mine", mode="create")
    assert bucket.read("a") == b"other"


def test_delayed_request_is_answered_later(store_by_proxy: S3Store, proxy: FaultProxy) -> None:
    started = time.monotonic()
    with proxy.inject(delayed(0.2), "PUT"):
        obstore.put(store_by_proxy, "a", b"1")
    assert time.monotonic() - started >= 0.2
