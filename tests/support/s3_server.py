"""A real S3 server for tests, as one process: versitygw, which keeps objects as files."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.store import S3Store

from tests.support import PROJECT
from tests.support.server import ServerProcess

_PROGRAM = PROJECT / ".venv/s3-server/versitygw"
_ACCESS_KEY = "medallion-tests"
_REGION = "eu-west-3"  # not the default of any client


class S3Server(ServerProcess):
    """A server whose buckets are the directories of `folder`, and its only user's credentials."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "buckets"
        self.folder.mkdir(parents=True)
        self._log = folder / "s3-server.log"
        self.port = _free_port()
        self.secret = f"{secrets.token_hex(12)}/+{secrets.token_hex(6)}"  # must be escaped in URLs

    def start(self) -> None:
        """Start the process, and wait until it answers; buckets are kept."""
        credentials = {"ROOT_ACCESS_KEY_ID": _ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": self.secret}
        command = [str(_PROGRAM), "--port", f"127.0.0.1:{self.port}", "--region", _REGION]
        command += ["--keep-alive", "--quiet", "posix", str(self.folder)]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **credentials}, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 30
        while not self._answers():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def create_bucket(self, name: str) -> Bucket:
        (self.folder / name).mkdir()
        return Bucket(self, name)

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return the variables from which each client reads address and credentials.

        Args:
            port: the port of a proxy before the server.
        """
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_REGION": _REGION,
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret,
        }

    def presigned(self, method: str, path: str, host: str) -> str:
        """Return the path and query with which a request needs no signature in headers.

        Args:
            method: the method of HTTP.
            path: bucket and key: /bucket/directory/name.
            host: the server or proxy that the client addresses.
        """
        _, bucket, key = path.split("/", 2)
        store, hour = self.store(bucket, f"http://{host}"), timedelta(hours=1)
        url = urlsplit(obstore.sign(store, cast(Any, method), key, expires_in=hour))
        return f"{url.path}?{url.query}"

    def store(self, bucket: str, endpoint: str | None = None) -> S3Store:
        """Return a client of a bucket."""
        return S3Store(
            bucket,
            endpoint=endpoint or f"http://127.0.0.1:{self.port}",
            region=_REGION,
            access_key_id=_ACCESS_KEY,
            secret_access_key=self.secret,
            client_options={"allow_http": True},
        )

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server, which shows objects as they are stored, without any client."""

    server: S3Server
    name: str

    def url(self, key: str = "") -> str:
        return f"s3://{self.name}/{key}".rstrip("/")

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects in order."""
        files = (path for path in self._folder.rglob("*") if path.is_file())
        keys = (path.relative_to(self._folder).as_posix() for path in files)
        return sorted(key for key in keys if key.startswith(prefix) and not key.startswith(".sgw"))

    def write(self, key: str, content: bytes) -> None:
        obstore.put(self.server.store(self.name), key, content)

    def read(self, key: str) -> bytes:
        return (self._folder / key).read_bytes()

    @property
    def _folder(self) -> Path:
        return self.server.folder / self.name


def is_installed() -> bool:
    return _PROGRAM.is_file()


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """Start a server that stores its buckets in a directory."""
    if not is_installed():
        end = pytest.fail if shutil.which("go") else pytest.skip
        end("there is no S3 server to test with: make s3-server builds it with Go")
    server = S3Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
