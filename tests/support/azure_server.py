"""A real server of Azure's storage for tests, as one process: Azurite."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.support import PROJECT
from tests.support.server import ServerProcess

_PROGRAM = PROJECT / ".venv/azure-server/node_modules/.bin/azurite-blob"
_ACCOUNT, _VERSION = "medallion", "2023-11-03"


class AzureServer(ServerProcess):
    """A server with one account, whose containers are in memory."""

    def __init__(self, folder: Path) -> None:
        self.key = base64.b64encode(secrets.token_bytes(64)).decode()
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = int(sock.getsockname()[1])
        command = [str(_PROGRAM), "--silent", "--disableTelemetry", "--inMemoryPersistence"]
        command += ["--skipApiVersionCheck", "--blobPort", str(self.port)]
        self._log = folder / "azure-server.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{self.key}"},
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    def environment(self) -> dict[str, str]:
        """Return the variables from which clients read address and credentials."""
        return {
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{self.port}/{_ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
        }

    def create_container(self, name: str) -> str:
        """Create a container, once the server answers, and return its address."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self._put_container(name)
            except OSError:
                assert self.process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                return f"abfss://{name}@{_ACCOUNT}.dfs.core.windows.net"

    def _put_container(self, name: str) -> None:
        # obstore has no request for it; signed as in Azure's "Authorize with Shared Key".
        date = formatdate(usegmt=True)
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
        signed += f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(self.key), signed.encode(), hashlib.sha256).digest()
        url = f"{self.environment()['AZURE_STORAGE_ENDPOINT']}/{name}?restype=container"
        headers = {
            "x-ms-date": date,
            "x-ms-version": _VERSION,
            "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()


@contextmanager
def running(folder: Path) -> Iterator[AzureServer]:
    """Start a server."""
    if not _PROGRAM.is_file():
        end = pytest.fail if shutil.which("npm") else pytest.skip
        end("there is no server of Azure's storage: make s3-server installs it with npm")
    server = AzureServer(folder)
    try:
        yield server
    finally:
        server.stop()
