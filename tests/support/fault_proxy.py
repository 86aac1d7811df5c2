"""A proxy before the S3 server of the tests, which counts requests and injects faults."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tests.support.s3_server import S3Server

# Classes of paths, as patterns of keys.
COMMIT = r"/_delta_log/\d{20}\.json$"
OFFSETS = r"/offsets/\d+$"
COMMITS = r"/commits/\d+$"
STATE = r"/state/\d+/\d+/"
LANDING = r"/landing/"
DATA = r"\.parquet$"

_HOP = {"connection", "transfer-encoding", "expect"}  # headers of one connection
_UNSIGNED = {"host", "content-length", "content-type"}
_ERRORS = {403: "AccessDenied", 500: "InternalError", 503: "SlowDown"}


@dataclass(frozen=True)
class Request:
    """A request as it came in."""

    method: str  # that of HTTP, or LIST
    key: str  # with the bucket, decoded: /bucket/directory/name
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Fault:
    """A change to a request: `before` runs first; without `forwards` the server never gets it.

    The client gets `status` instead of the server's answer, or none at all if that is 0.
    """

    status: int | None = None
    forwards: bool = True
    strips_conditions: bool = False
    code: str = ""
    before: Callable[[], object] = lambda: None


def refused(status: int, code: str = "") -> Fault:
    """Return the fault of a request that the server refuses with this status, and S3's code."""
    return Fault(status, forwards=False, code=code)


def lost_answer(status: int = 0) -> Fault:
    """Return the fault of a request that is carried out, but not answered, or with an error."""
    return Fault(status)


def delayed(seconds: float) -> Fault:
    return Fault(before=lambda: time.sleep(seconds))


def held(before: Callable[[], object]) -> Fault:
    """Return the fault of a request that arrives after something else has happened."""
    return Fault(before=before)


NO_CONDITIONS = Fault(strips_conditions=True)
"""A server that ignores If-Match and If-None-Match of a PUT or DELETE."""


@dataclass(eq=False)
class _Rule:
    fault: Fault
    method: str
    key: re.Pattern[str]
    skip: int
    times: float
    hits: list[Request] = field(default_factory=list)


class FaultProxy:
    """A running proxy.

    Attributes:
        requests: each request since the start, or since the caller cleared the list.
    """

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1  # head and body in one packet

            def setup(self) -> None:
                super().setup()
                self.upstream = HTTPConnection("127.0.0.1", proxy._server.port, timeout=60)

            def finish(self) -> None:
                self.upstream.close()
                with suppress(OSError):  # a client that has left
                    super().finish()

            def handle_expect_100(self) -> bool:
                self.send_response_only(100)
                self.end_headers()
                self.wfile.flush()  # the client waits for it, three seconds
                return True

            def handle_any(self) -> None:
                proxy._handle(self, self.upstream)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which clients use the proxy."""
        return self._server.environment(self.port)

    def count(self, key: str = "") -> Counter[str]:
        """Count the requests by method, of keys that have this pattern."""
        requests = list(self.requests)
        return Counter(request.method for request in requests if re.search(key, request.key))

    @contextmanager
    def inject(
        self, fault: Fault, method: str, key: str = "", *, skip: int = 0, times: float = 1
    ) -> Iterator[list[Request]]:
        """Inject a fault into requests, which are those of the list once they came.

        Args:
            fault: the fault.
            method: the method of HTTP, LIST, or several as a pattern.
            key: a pattern of `Request.key`.
            skip: the number of requests that pass first.
            times: the number of requests that meet it; `math.inf`: all.
        """
        rule = _Rule(fault, method, re.compile(key), skip, times)
        self._rules.append(rule)
        try:
            yield rule.hits
        finally:
            self._rules.remove(rule)

    def _fault(self, request: Request) -> Fault:
        """Record a request, and return its fault."""
        with self._lock:
            self.requests.append(request)
            for rule in self._rules:
                if not re.fullmatch(rule.method, request.method) or not rule.key.search(
                    request.key
                ):
                    continue
                if rule.skip:
                    rule.skip -= 1
                elif len(rule.hits) < rule.times:
                    rule.hits.append(request)
                    return rule.fault
        return Fault()

    def _handle(self, handler: BaseHTTPRequestHandler, upstream: HTTPConnection) -> None:
        url, body = urlsplit(handler.path), _body(handler)
        is_list = handler.command == "GET" and "list-type=" in url.query
        method = "LIST" if is_list else handler.command
        prefix = re.search(r"(?:^|&)prefix=([^&]*)", url.query) if is_list else None
        key = unquote(url.path + (f"/{prefix[1]}" if prefix else ""), errors="backslashreplace")
        headers = {name.lower(): value for name, value in handler.headers.items()}
        fault = self._fault(Request(method, key, headers))
        fault.before()
        path, sent = handler.path, {k: v for k, v in headers.items() if k not in _HOP}
        if fault.strips_conditions:  # which are part of the signature
            path = self._server.presigned(handler.command, unquote(url.path), headers["host"])
            sent = {name: value for name, value in sent.items() if name in _UNSIGNED}
        answer = _forward(upstream, handler.command, path, sent, body) if fault.forwards else None
        if fault.status is not None:
            code = fault.code or _ERRORS.get(fault.status)
            error = f"<Error><Code>{code}</Code></Error>".encode()
            answer = _Answer(fault.status, {"content-type": "application/xml"}, error)
        if answer is not None and answer.status:
            _answer(handler, answer)
        else:
            handler.close_connection = True


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


@contextmanager
def proxying(server: S3Server) -> Iterator[FaultProxy]:
    """Start a proxy before a server."""
    proxy = FaultProxy(server)
    try:
        yield proxy
    finally:
        proxy.close()


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in handler.headers.get("Transfer-Encoding", ""):
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    chunks = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        chunks.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(chunks)


def _answer(handler: BaseHTTPRequestHandler, answer: _Answer) -> None:
    has_body = handler.command != "HEAD" and answer.status not in (204, 304)
    handler.send_response_only(answer.status)
    for name, value in answer.headers.items():
        if name not in _HOP and not (has_body and name == "content-length"):
            handler.send_header(name, value)
    if has_body:
        handler.send_header("content-length", str(len(answer.body)))
    with suppress(OSError):  # a client that does not wait
        handler.end_headers()
        if has_body:
            handler.wfile.write(answer.body)


def _forward(
    upstream: HTTPConnection, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> _Answer | None:
    """Return the server's answer, or None if it closes the connection."""
    for _ in range(2):  # a connection that has been idle is closed, too
        try:
            upstream.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                upstream.putheader(name, value)
            if body and "content-length" not in headers:
                upstream.putheader("content-length", str(len(body)))
            upstream.endheaders(body or None)
            with upstream.getresponse() as answer:
                named = {name.lower(): value for name, value in answer.getheaders()}
                return _Answer(answer.status, named, answer.read())
        except (HTTPException, OSError):
            upstream.close()
    return None
