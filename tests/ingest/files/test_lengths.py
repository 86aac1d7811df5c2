"""Lines above the length limit are detected in the raw bytes and reported by number."""

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
from medallion.ingest.files.decode import too_long_reason
from tests.support.lakehouse import activity_source

LIMIT = 1000
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
}


TOO_LONG = "longer than 1000 bytes, the max_line_bytes of this source"


def reason(file: Path, data: bytes, **settings: Any) -> str:
    """Return the rejection reason from the check that reads the complete file, or ""."""
    file.write_bytes(data)
    source = activity_source(max_line_bytes=LIMIT, **settings)
    is_decoded = decode.is_decoded(file, source)
    check = decode.unreadable_reason if is_decoded else too_long_reason
    return check(file, source) or ""


def expected_start(number: int | None) -> str:
    return f"line {number}: {TOO_LONG}" if number else ""


def line(length: int) -> bytes:
    return b"x" * length


LINES: dict[str, tuple[bytes, int | None]] = {
    "nothing": (b"", None),
    "exactly the limit": (line(1000), None),
    "one byte above the limit": (line(1001), 1),
    "exactly the limit without its line end": (line(1000) + b"\n", None),
    "many short lines": (line(99) + b"\n" + (line(999) + b"\n") * 50, None),
    "the last line": ((line(300) + b"\n") * 20 + line(1001), 21),
    "a line in the middle": ((line(300) + b"\n") * 20 + line(1001) + b"\n" + line(3), 21),
    "after CRLF": ((line(300) + b"\r\n") * 20 + line(1001) + b"\r\n", 21),
    "after CR": ((line(300) + b"\r") * 20 + line(1001) + b"\r", 21),
    "after blank lines": (b"\n\r\n\r\r" + line(1001), 5),
    "CRLF at the end of a chunk": (line(999) + b"\r\n" + line(1001), 2),
    "blank lines alone": (b"\n" * 5000, None),
    "no line end": (line(300_000), 1),
    "an unclosed quote, in JSON lines": (b'"' + (line(900) + b"\n") * 5, None),
}


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("name", LINES)
def test_too_long_lines(tmp_path: Path, name: str, codec: str) -> None:
    data, number = LINES[name]
    actual = reason(tmp_path / f"a.json{codec}", COMPRESS[codec](data))
    assert actual.partition(": split")[0] == expected_start(number)
    actual = reason(
        tmp_path / f"a.csv{codec}.xz", lzma.compress(COMPRESS[codec](data)), format="text"
    )
    assert codec or actual.partition(": split")[0] == expected_start(number)


def test_too_long_random_file(tmp_path: Path) -> None:
    """Compared with a simple count, for lines near the limit."""
    seed = random.randrange(2**32)
    random_ = random.Random(seed)
    for _ in range(60):
        ends = [b"\n", b"\r\n", b"\r"]
        lengths = [random_.choice([0, 1, 500, 998, 999, 1000, 1001]) for _ in range(9)]
        data = b"".join(line(length) + random_.choice(ends) for length in lengths)
        actual = reason(tmp_path / "a.json", data)
        assert (not actual) == (max(lengths) <= LIMIT), (seed, data)
        compressed = reason(tmp_path / "a.json.bz2", bz2.compress(data))
        assert compressed == actual, (seed, data)


ROWS: dict[str, tuple[bytes, int | None]] = {
    "rows": (b"a,b\n" + b"1,2\n" * 5000, None),
    "quoted rows": (b"a,b\n" + b'"1","2\n3"\n' * 500, None),
    "an unclosed quote": (b"a,b\n" + b"1,2\n" * 500 + b'3,"4\n' + b"1,2\n" * 500, 502),
    "a long field": (b"a,b\n1,2\n3," + line(1001) + b"\n", 3),
    "a long field of many lines": (b'a,b\n1,"' + b"2\n" * 600 + b'"\n', 2),
    "a long header": (b",".join([b"abc"] * 400) + b"\n1,2\n", 1),
    "exactly the limit without its line end": (b'a,b\n"' + line(996) + b'",2\r\n', None),
    "one byte above the limit": (b'a,b\n"' + line(997) + b'",2\r\n', 2),
}


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("name", ROWS)
def test_too_long_csv_rows(tmp_path: Path, name: str, codec: str) -> None:
    """Quoted line ends make one row of many lines, at worst of the complete file."""
    data, number = ROWS[name]
    actual = reason(tmp_path / f"a.csv{codec}", COMPRESS[codec](data), format="csv")
    assert actual.partition(": split")[0] == expected_start(number)


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("length", [998, 999, 300_000])
def test_too_long_documents(tmp_path: Path, codec: str, length: int) -> None:
    data = b"[" + b"\n" * length + b"]"
    actual = reason(tmp_path / f"a.json{codec}", COMPRESS[codec](data), multi_line=True)
    assert actual.partition(": split")[0] == (expected_start(None if length == 998 else 1))


def test_too_long_shows_the_limit_as_configured(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(line(2**21 + 1))
    actual = too_long_reason(tmp_path / "a.json", activity_source(max_line_bytes=2**21))
    assert (actual or "").startswith("line 1: longer than 2 MiB, the max_line_bytes")


def test_too_long_missing_file(tmp_path: Path) -> None:
    assert too_long_reason(tmp_path / "gone.json", activity_source()) is None
    assert too_long_reason(tmp_path / "gone.json.bz2", activity_source()) is None


@pytest.mark.parametrize("codec", [codec for codec in COMPRESS if codec])
def test_too_long_truncated_file(tmp_path: Path, codec: str) -> None:
    compressed = COMPRESS[codec](b"".join(b"%d\n" % n for n in range(9000)))
    actual = reason(tmp_path / f"a.json{codec}", compressed[: len(compressed) // 2])
    assert actual == f"truncated: its {codec[1:]} data ends too soon"
    actual = reason(tmp_path / f"b.json{codec}", b"x" * 5000)
    assert actual.startswith(f"cannot be read: its bytes are not all {codec[1:]} data")


def test_too_long_does_not_open_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes((line(200) + b"\n") * 50_000)  # 10 MiB
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(line(200)))  # at most 16 MiB
    monkeypatch.setattr(content, "open_unpacked", None)
    for name in ("a.json", "b.json.gz"):
        assert too_long_reason(tmp_path / name, activity_source(max_line_bytes=2**24)) is None


@pytest.mark.parametrize("codec", COMPRESS)
def test_too_long_in_few_compressed_bytes(tmp_path: Path, codec: str) -> None:
    """Bzip2 compresses a megabyte to 45 bytes. Found by the fuzzer, seed 84283."""
    file = tmp_path / f"a.json{codec}"
    file.write_bytes(COMPRESS[codec](line(2**20 + 1)))
    actual = too_long_reason(file, activity_source(max_line_bytes=2**20))
    assert (actual or "").startswith("line 1: longer than 1 MiB")
    file.write_bytes(COMPRESS[codec](line(2**20)))
    assert too_long_reason(file, activity_source(max_line_bytes=2**20)) is None
