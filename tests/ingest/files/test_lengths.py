"""Lines that are too long are found on the bytes, with their number, and no others are."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medallion.ingest.files import content, decode
from medallion.ingest.files.content import too_long_reason
from tests.support.home import activity_source

LIMIT = 1000
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
}


TOO_LONG = "longer than 1000 bytes, the max_line_bytes of this source"


def reason(file: Path, data: bytes, **settings: Any) -> str:
    """Why a file is rejected, by the check that reads it to its end; "" if it is not."""
    file.write_bytes(data)
    source = activity_source(max_line_bytes=LIMIT, **settings)
    is_decoded = decode.is_decoded(file, source)
    check = decode.unreadable_reason if is_decoded else too_long_reason
    return check(file, source) or ""


def start(number: int | None) -> str:
    return f"line {number}: {TOO_LONG}" if number else ""


def line(length: int) -> bytes:
    return b"x" * length


LINES: dict[str, tuple[bytes, int | None]] = {
    "nothing": (b"", None),
    "just short enough": (line(1000), None),
    "one byte too many": (line(1001), 1),
    "short enough with its end": (line(1000) + b"\n", None),
    "many short ones": (line(99) + b"\n" + (line(999) + b"\n") * 50, None),
    "the last one": ((line(300) + b"\n") * 20 + line(1001), 21),
    "one in the middle": ((line(300) + b"\n") * 20 + line(1001) + b"\n" + line(3), 21),
    "after CRLF": ((line(300) + b"\r\n") * 20 + line(1001) + b"\r\n", 21),
    "after CR": ((line(300) + b"\r") * 20 + line(1001) + b"\r", 21),
    "after blank lines": (b"\n\r\n\r\r" + line(1001), 5),
    "CRLF where a chunk ends": (line(999) + b"\r\n" + line(1001), 2),
    "blank lines alone": (b"\n" * 5000, None),
    "no end at all": (line(300_000), 1),
    "a quote that is never closed is no line": (b'"' + (line(900) + b"\n") * 5, None),
}


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("name", LINES)
def test_too_long_lines(tmp_path: Path, name: str, codec: str) -> None:
    data, number = LINES[name]
    why = reason(tmp_path / f"a.json{codec}", PACK[codec](data))
    assert why.partition(": split")[0] == start(number)
    why = reason(tmp_path / f"a.csv{codec}.xz", lzma.compress(PACK[codec](data)), format="text")
    assert codec or why.partition(": split")[0] == start(number)


def test_too_long_random_file(tmp_path: Path) -> None:
    """Against a plain count, for files whose lines are all near the limit."""
    seed = random.randrange(2**32)
    some = random.Random(seed)
    for _ in range(300):
        ends = [b"\n", b"\r\n", b"\r"]
        long = [some.choice([0, 1, 500, 998, 999, 1000, 1001]) for _ in range(9)]
        data = b"".join(line(length) + some.choice(ends) for length in long)
        why = reason(tmp_path / "a.json", data)
        assert (not why) == (max(long) <= LIMIT), (seed, data)
        packed = reason(tmp_path / "a.json.bz2", bz2.compress(data))
        assert packed == why, (seed, data)


ROWS: dict[str, tuple[bytes, int | None]] = {
    "rows": (b"a,b\n" + b"1,2\n" * 5000, None),
    "quoted rows": (b"a,b\n" + b'"1","2\n3"\n' * 500, None),
    "a quote that is never closed": (b"a,b\n" + b"1,2\n" * 500 + b'3,"4\n' + b"1,2\n" * 500, 502),
    "a long field": (b"a,b\n1,2\n3," + line(1001) + b"\n", 3),
    "a long field of many lines": (b'a,b\n1,"' + b"2\n" * 600 + b'"\n', 2),
    "a long header": (b",".join([b"abc"] * 400) + b"\n1,2\n", 1),
    "short enough with its end": (b'a,b\n"' + line(996) + b'",2\r\n', None),
    "one byte too many": (b'a,b\n"' + line(997) + b'",2\r\n', 2),
}


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("name", ROWS)
def test_too_long_csv_rows(tmp_path: Path, name: str, codec: str) -> None:
    """Quotes keep line ends within a row, and so a whole file."""
    data, number = ROWS[name]
    why = reason(tmp_path / f"a.csv{codec}", PACK[codec](data), format="csv")
    assert why.partition(": split")[0] == start(number)


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("length", [998, 999, 300_000])
def test_too_long_documents(tmp_path: Path, codec: str, length: int) -> None:
    data = b"[" + b"\n" * length + b"]"
    why = reason(tmp_path / f"a.json{codec}", PACK[codec](data), multi_line=True)
    assert why.partition(": split")[0] == ("" if length == 998 else f"its document: {TOO_LONG}")


def test_too_long_limit_as_configured(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(line(2**21 + 1))
    why = too_long_reason(tmp_path / "a.json", activity_source(max_line_bytes=2**21))
    assert (why or "").startswith("line 1: longer than 2 MiB, the max_line_bytes")


def test_too_long_missing_file(tmp_path: Path) -> None:
    assert too_long_reason(tmp_path / "gone.json", activity_source()) is None
    assert too_long_reason(tmp_path / "gone.json.bz2", activity_source()) is None


@pytest.mark.parametrize("codec", [codec for codec in PACK if codec])
def test_too_long_truncated_file(tmp_path: Path, codec: str) -> None:
    packed = PACK[codec](b"".join(b"%d\n" % n for n in range(9000)))
    why = reason(tmp_path / f"a.json{codec}", packed[: len(packed) // 2])
    assert why == f"truncated: its {codec[1:]} data ends too soon"
    why = reason(tmp_path / f"b.json{codec}", b"x" * 5000)
    assert why.startswith(f"cannot be read: its bytes are not all {codec[1:]} data")


def test_too_long_does_not_open_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes((line(200) + b"\n") * 50_000)  # 10 MiB
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(line(200)))  # at most 16 MiB
    monkeypatch.setattr(content, "open_unpacked", None)
    for name in ("a.json", "b.json.gz"):
        assert too_long_reason(tmp_path / name, activity_source(max_line_bytes=2**24)) is None


@pytest.mark.parametrize("codec", PACK)
def test_too_long_of_few_packed_bytes(tmp_path: Path, codec: str) -> None:
    """Bzip2 makes 45 bytes of megabytes. Found by the fuzzer, seed 84283."""
    file = tmp_path / f"a.json{codec}"
    file.write_bytes(PACK[codec](line(2**20 + 1)))
    why = too_long_reason(file, activity_source(max_line_bytes=2**20))
    assert (why or "").startswith("line 1: longer than 1 MiB")
    file.write_bytes(PACK[codec](line(2**20)))
    assert too_long_reason(file, activity_source(max_line_bytes=2**20)) is None
