"""Objects in buckets: listing, reading, conditional writes and deletions, by obstore.

An address is `s3://bucket/key`, `gs://bucket/key` or, of Azure's storage,
`abfss://container@account.dfs.core.windows.net/key`. Endpoint, region and credentials come from the
environment, as for every client: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY and so on. Errors are OSErrors whose
reasons are derived from the store's codes.

Requests cost time and money. While a thread is within `remembering`, its questions about objects
are asked once; each write of this process makes it ask again.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from medallion.errors import UsageError
from medallion.storage.files import Entries, EntryType, FileInfo

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Store = AzureStore | GCSStore | S3Store

_Answer = TypeVar("_Answer")
_ADDRESS = re.compile(r"(s3a?|gs|abfss?):/+(.*)", re.IGNORECASE | re.DOTALL)
_BUCKET = re.compile(
    r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]|gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
    r"|abfss://[a-z0-9-]{3,63}@[a-z0-9]{3,24}\.dfs\.[a-z.]+"
)
_CODE, _STATUS = re.compile(r"<Code>(\w+)</Code>"), re.compile(r"status code: (\d{3})")
_INVALID_KEY = re.compile(r'(?:parse path|parsing Path|Path) "(.*?)"', re.DOTALL)
_METADATA_SERVICE = re.compile(r"http://(169\.254\.|\[fd00:)")  # asked for a machine's role
_CREDENTIALS = "the store refuses the credentials: check AWS_ACCESS_KEY_ID and its secret"
_AZURE_KEY = "the store refuses the credentials: check AZURE_STORAGE_ACCOUNT_KEY"
_REGION = "the bucket is in another region: set AWS_REGION"
_REASONS = {
    "NoSuchBucket": "there is no such bucket",
    "ContainerNotFound": "there is no such container",
    "AuthenticationFailed": _AZURE_KEY,
    "AuthorizationFailure": _AZURE_KEY,
    "AccessDenied": "access is denied: the credentials lack a permission",
    "InvalidAccessKeyId": _CREDENTIALS,
    "XAdminUserNotFound": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": "the credentials have expired",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
}
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
MOST_COPIED = 5 * 2**30
"""The size in bytes up to which S3 copies an object itself."""
_CHUNK = 10 * 1024 * 1024
# Seconds. A request may transfer megabytes.
_REQUEST, _RETRY, _TRIES = 120, 60, 5
# HTTP without TLS is for endpoints that say so in their address.
_CLIENT: Any = {"timeout": f"{_REQUEST}s", "connect_timeout": "5s", "allow_http": "true"}
# Only this package writes these, under the locks of the command that asks.
_NOT_BY_SPARK = re.compile(r"/(_format\.json|_schemas/.*|_checkpoints/(.+/medallion|[^/]+)\.json)$")
_Answers = dict[tuple[str, str], Any]


class _Memory(threading.local):
    """The answers of the store by question, with errors for what is not there.

    Attributes:
        answers: those of the innermost function that asks once.
        of_command: while Spark runs, those of the command.
    """

    answers: _Answers | None = None
    of_command: _Answers | None = None


_memory = _Memory()
_all_answers: dict[int, _Answers] = {}  # of all threads, by identity


@contextmanager
def remembering(answers: bool = True) -> Iterator[None]:
    """Ask each question about objects once, by this thread, until this process writes there.

    It is for commands that decide about prefixes which no other process writes.

    Args:
        answers: False to ask again each time, as for what other processes write.
    """
    before, own = _memory.answers, _Answers()
    _memory.answers = (own if before is None else before) if answers else None
    _all_answers[id(own)] = own
    try:
        yield
    finally:
        del _all_answers[id(own)]
        _memory.answers = before


@contextmanager
def asking_each_time() -> Iterator[None]:
    """Ask each question each time about what Spark writes meanwhile; forget the earlier answers."""
    before, _memory.answers = _memory.answers, None
    for question in [each for each in before or () if not _NOT_BY_SPARK.search(each[1])]:
        (before or {}).pop(question, None)
    _memory.of_command = before
    try:
        yield
    finally:
        _memory.answers, _memory.of_command = before, None


@contextmanager
def remembering_again() -> Iterator[None]:
    """Ask each question once within `asking_each_time`, as Spark has written all."""
    before, own = _memory.answers, _memory.of_command
    _memory.answers = before if own is None else own
    try:
        yield
    finally:
        _memory.answers = before


def forget(address: str) -> None:
    """Ask again about an object or a prefix that was written, and what is above and below it."""
    written = f"{address}/"
    for answers in list(_all_answers.values()):
        for question in list(answers):
            asked = f"{question[1]}/"
            if written.startswith(asked) or asked.startswith(written):
                answers.pop(question, None)


def _asked_once(ask: Callable[[str], _Answer]) -> Callable[[str], _Answer]:
    """Return a function that remembers its answers, and that there is nothing at an address."""

    @wraps(ask)
    def answer(address: str) -> _Answer:
        answers, question = _memory.answers, (ask.__name__, address)
        if _memory.of_command is not None and _NOT_BY_SPARK.search(address):
            answers = _memory.of_command
        if answers is None:
            return ask(address)
        try:
            found = answers[question]
        except KeyError:
            try:
                found = ask(address)
            except FileNotFoundError as error:
                found = error
            answers[question] = found
        if isinstance(found, FileNotFoundError):
            raise found
        known: _Answer = found
        return known

    return answer


class Found(NamedTuple):
    """An object of a listing: its key and its state."""

    key: str
    info: FileInfo


class _Kind(NamedTuple):
    """A kind of store: its name, and the variables with credentials and with its address."""

    title: str
    credentials: str
    endpoints: tuple[str, ...] = ()


_KINDS = {
    "s3": _Kind(
        "AWS S3",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    ),
    "gs": _Kind("Google Cloud Storage", "GOOGLE_APPLICATION_CREDENTIALS"),
    "abfss": _Kind("Azure", "AZURE_STORAGE_ACCOUNT_KEY", ("AZURE_STORAGE_ENDPOINT",)),
}


def is_address(path: str) -> bool:
    """Return True if a path is the address of an object, in any spelling."""
    return bool(_ADDRESS.match(path))


def names_bucket(path: str) -> bool:
    """Return True if a path is an address with the valid name of a bucket."""
    return is_address(path) and bool(_BUCKET.fullmatch(split(normalize(path))[0]))


def normalize(address: str) -> str:
    """Return an address in the one spelling for all clients: `s3://bucket/key`, `abfss://...`."""
    match = _ADDRESS.match(address)
    assert match, f"{address} is an address"
    scheme = {"s3a": "s3", "abfs": "abfss"}.get(match[1].lower(), match[1].lower())
    return f"{scheme}://{posixpath.normpath(f'/{match[2]}').strip('/')}"


def scheme_of(address: str) -> str:
    """Return the part of a normalized address that names the kind of its store: `s3`."""
    return address.partition(":")[0]


def split(address: str) -> tuple[str, str]:
    """Return the address of the bucket, and the key."""
    scheme, _, path = address.partition("://")
    bucket, _, key = path.partition("/")
    return f"{scheme}://{bucket}", key


def endpoint(scheme: str = "s3") -> str:
    """Return the address of the store, for all clients; empty for the provider's own."""
    values = map(os.environ.get, _KINDS[scheme].endpoints)
    return next(filter(None, values), "")


def delta_options() -> dict[str, str]:
    """Return the options of delta-rs's client, which never have credentials."""
    return {**_CLIENT, "max_retries": str(_TRIES), "retry_timeout": f"{_RETRY}s"}


@_asked_once
def list_objects(address: str) -> list[Found]:
    """Return all objects below a prefix in the order of keys, without markers of empty folders."""
    import obstore

    found = []
    with _opened(address) as (store, prefix):
        for chunk in obstore.list(store, prefix or None, chunk_size=1000):
            for each in chunk:
                key, info = each["path"], _info(each)
                # The key of a marker ends with a slash, which obstore removes.
                if info.size or (key != prefix and object_info(in_bucket_of(address, key))):
                    found.append(Found(key, info))
    return found


@_asked_once
def list_level(address: str) -> tuple[list[str], list[Found]]:
    """Return the names of the prefixes directly below an address, and its objects."""
    import obstore

    with _opened(address) as (store, prefix):
        result = obstore.list_with_delimiter(store, prefix or None)
        prefixes = [posixpath.basename(each) for each in result["common_prefixes"]]
        objects = [Found(each["path"], _info(each)) for each in result["objects"]]
        return prefixes, [each for each in objects if each.key != prefix]


@_asked_once
def has_objects(address: str) -> bool:
    """Return True if a prefix has objects, also if the key of one cannot be read."""
    import obstore

    try:
        with _opened(address) as (store, prefix):
            return any(obstore.list(store, prefix or None))
    except OSError as error:
        if error.errno != errno.EILSEQ:
            raise
        return True


def tree(address: str) -> dict[str, Entries]:
    """Return the entries of a prefix and of all prefixes below it, by their addresses."""
    entries = defaultdict[str, dict[str, Callable[[], FileInfo | EntryType]]](dict)
    bucket = in_bucket_of(address, "").rstrip("/")
    for key, info in list_objects(address):
        path, _, name = f"{bucket}/{key}".rpartition("/")
        entries[path][name] = partial(FileInfo, *info)
        while path != address:
            above, _, name = path.rpartition("/")
            if name in entries[above]:  # and so are the prefixes above
                break
            entries[above][name], path = partial(EntryType, EntryType.DIRECTORY), above
    return {path: sorted(each.items()) for path, each in entries.items()}


@_asked_once
def object_info(address: str) -> FileInfo | None:
    """Return the state of an object, or None if there is none."""
    import obstore

    try:
        with _opened(address) as (store, key):
            return _info(obstore.head(store, key)) if key else None
    except FileNotFoundError:
        return None


@_asked_once
def read(address: str) -> bytes:
    """Return the content of an object."""
    import obstore

    with _opened(address) as (store, key):
        return bytes(obstore.get(store, key).bytes())


def download(address: str, file: Path, size: int | None = None) -> None:
    """Copy an object, or at least its first `size` bytes, to a file on this machine."""
    import obstore

    with _opened(address) as (store, key), file.open("wb") as target:
        for chunk in obstore.get(store, key).stream(min_chunk_size=size or _CHUNK):
            target.write(chunk)
            if size and target.tell() >= size:
                return


def write(address: str, data: bytes | Path) -> None:
    """Write an object: readers see the complete new content or the old one."""
    import obstore

    forget(address)
    with _opened(address) as (store, key):
        obstore.put(store, key, data)


def create(address: str, data: bytes) -> bool:
    """Write an object if there is none; return False if there is one with other content.

    The client repeats a request whose answer was lost, and then finds what it has written itself.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError

    forget(address)
    with _opened(address) as (store, key):
        try:
            obstore.put(store, key, data, mode="create")
        except AlreadyExistsError:
            return bytes(obstore.get(store, key).bytes()) == data
    return True


def copy(address: str, target: str) -> None:
    """Copy an object to another key of its bucket, without reading it."""
    import obstore

    forget(target)
    with _opened(address) as (store, key):
        obstore.copy(store, key, split(target)[1])


def delete(address: str) -> None:
    """Delete an object, if there is one."""
    import obstore

    forget(address)
    with suppress(FileNotFoundError), _opened(address) as (store, key):  # as Azure answers
        obstore.delete(store, key)


def delete_below(address: str) -> None:
    """Delete an object of this key and all objects below it."""
    import obstore

    forget(address)
    keys = [each.key for each in list_objects(address)]
    if object_info(address):  # in a versioned bucket a deletion of nothing leaves a marker
        delete(address)
    with _opened(address) as (store, _):
        obstore.delete(store, keys)
    forget(address)


def delete_unchanged(address: str, tag: str | None) -> bool:
    """Delete an object if it still has a tag; return False if another one has replaced it.

    Raises:
        OSError: the store cannot do that, or does not answer.
    """
    if not _checks_tags(posixpath.dirname(address), endpoint(scheme_of(address))):
        reason = "this store deletes replaced objects as well: set clean_source: off"
        raise OSError(errno.ENOTSUP, reason, address)
    return _delete_if_match(address, (tag or "").strip('"'))


@lru_cache
def _checks_tags(directory: str, endpoint: str) -> bool:
    """Return True if the store refuses to delete an object that has another tag."""
    probe = f"{directory}/._probe-{uuid.uuid4().hex}"
    write(probe, b"")
    is_refused = not _delete_if_match(probe, "0")
    delete(probe)
    return is_refused


def _delete_if_match(address: str, tag: str) -> bool:
    """Send a deletion with a condition, which obstore can sign but not send."""
    import urllib.request
    from urllib.error import HTTPError, URLError

    import obstore

    forget(address)
    with _opened(address) as (store, key):
        url = obstore.sign(store, "DELETE", key, timedelta(seconds=2 * _REQUEST))
    request = urllib.request.Request(url, method="DELETE", headers={"If-Match": f'"{tag}"'})
    try:
        with urllib.request.urlopen(request, timeout=_REQUEST):
            return True
    except HTTPError as error:
        if error.code in (404, 412):
            return object_info(address) is None  # of a deletion marker stores answer 412, too
        reason = _reason(address, error.read().decode(errors="replace"), error.code)
    except (URLError, TimeoutError):
        reason = _no_answer(address)
    raise OSError(errno.EIO, reason, address)


def reason_of(error: Exception, address: str) -> str | None:
    """Return the reason of a client's error (obstore, delta-rs); None if it is not the store's."""
    text = str(error)
    if _METADATA_SERVICE.search(text):
        return f"there are no credentials: set {_KINDS[scheme_of(address)].credentials}"
    if status := _STATUS.search(text):
        return _reason(address, text, int(status[1]))
    if key := _INVALID_KEY.search(text):
        return f"the key {key[1]!r} cannot be read: rename or delete that object"
    return _no_answer(address) if "error sending request" in text or "HTTP error" in text else None


def _reason(address: str, body: str, status: int) -> str:
    code = _CODE.search(body)
    name = code[1] if code else ""
    if status == 301:
        name = "PermanentRedirect"
    elif status == 403 and not name:
        name = "AccessDenied"
    reason = _REASONS.get(name) or f"the store answers {status} {name}".strip()
    return f"{reason} ({_store(address)})"


def _no_answer(address: str) -> str:
    advice = "AWS_ENDPOINT_URL, and the network" if scheme_of(address) == "s3" else "the network"
    return f"no answer from {_store(address)}: check {advice}"


def _store(address: str) -> str:
    scheme = scheme_of(address)
    return endpoint(scheme) or _KINDS[scheme].title


@contextmanager
def _opened(address: str) -> Iterator[tuple[Store, str]]:
    """Yield the client and the key of an address; raise its errors as OSErrors that name both."""
    try:
        from obstore.exceptions import BaseError
    except ImportError:
        advice = "pip install obstore, and medallion setup --s3 for Spark"
        raise UsageError(f"{address}: buckets need a package: {advice}.") from None
    bucket, key = split(address)
    try:
        yield _client(bucket, endpoint(scheme_of(address))), key
    except (BaseError, FileNotFoundError, ValueError) as error:
        reason, number = reason_of(error, address), errno.EIO
        code = _CODE.search(str(error))
        if isinstance(error, FileNotFoundError) and not (code and code[1] in _NO_BUCKET):
            reason, number = os.strerror(errno.ENOENT), errno.ENOENT
        number = errno.EILSEQ if _INVALID_KEY.search(str(error)) else number
        raise OSError(number, reason or str(error).partition("\n")[0], address) from None


@lru_cache
def _client(bucket: str, endpoint: str) -> Store:
    from obstore.store import from_url

    retry_config: Any = {"max_retries": _TRIES, "retry_timeout": timedelta(seconds=_RETRY)}
    store: Any = from_url(bucket, client_options=_CLIENT, retry_config=retry_config)
    return cast("Store", store)


def in_bucket_of(address: str, key: str) -> str:
    """Return the address of a key in the bucket of another address."""
    return f"{split(address)[0]}/{key}"


def _info(meta: Any) -> FileInfo:
    # To the second: some stores give the milliseconds in listings only.
    modified_at = int(meta["last_modified"].timestamp()) * 1_000_000
    return FileInfo(meta["size"], modified_at, meta["e_tag"] or None)
