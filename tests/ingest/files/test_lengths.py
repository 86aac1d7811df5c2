"""Lines that are too long are found on the bytes, with their number, and no others are."""

from __future__ import annotations

import bz2
import gzip
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medallion.ingest.files import content
from medallion.ingest.files.content import too_long_reason
from tests.support.home import a_source

LIMIT = 1000
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
}


def found(file: Path, data: bytes, **settings: Any) -> str | None:
    file.write_bytes(data)
    return too_long_reason(file, a_source(max_line_bytes=LIMIT, **settings))


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
def test_lines(tmp_path: Path, name: str, codec: str) -> None:
    data, number = LINES[name]
    why = found(tmp_path / f"a.json{codec}", PACK[codec](data))
    if number is None:
        assert why is None
    else:
        assert why == (
            f"line {number} is longer than 1000 bytes, the max_line_bytes of this source: break it "
            "up, or raise the setting"
        )


def test_the_longest_stretch_of_a_random_file(tmp_path: Path) -> None:
    """Against a plain count, for files whose lines are all near the limit."""
    seed = random.randrange(2**32)
    some = random.Random(seed)
    for _ in range(300):
        ends = [b"\n", b"\r\n", b"\r"]
        long = [some.choice([0, 1, 500, 998, 999, 1000, 1001]) for _ in range(9)]
        data = b"".join(line(length) + some.choice(ends) for length in long)
        why = found(tmp_path / "a.json", data)
        assert (why is None) == (max(long) <= LIMIT), (seed, data)
        packed = found(tmp_path / "a.json.bz2", bz2.compress(data))
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
def test_rows_of_csv(tmp_path: Path, name: str, codec: str) -> None:
    """Quotes keep line ends within a row, and so a whole file."""
    data, number = ROWS[name]
    why = found(tmp_path / f"a.csv{codec}", PACK[codec](data), format="csv")
    assert (why or "").partition(" is longer")[0] == (f"line {number}" if number else "")


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("length", [998, 999, 300_000])
def test_documents(tmp_path: Path, codec: str, length: int) -> None:
    data = b"[" + b"\n" * length + b"]"
    why = found(tmp_path / f"a.json{codec}", PACK[codec](data), multi_line=True)
    assert (why or "").partition(" is")[0] == ("" if length == 998 else "the document")


def test_a_limit_is_told_as_it_is_configured(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(line(2**21 + 1))
    why = too_long_reason(tmp_path / "a.json", a_source(max_line_bytes=2**21))
    assert why is not None
    assert why.startswith("line 1 is longer than 2 MiB, the max_line_bytes")


def test_a_file_that_cannot_be_read_is_told_by_others(tmp_path: Path) -> None:
    assert too_long_reason(tmp_path / "gone.json", a_source()) is None
    assert too_long_reason(tmp_path / "gone.json.bz2", a_source()) is None


@pytest.mark.parametrize("codec", [codec for codec in PACK if codec])
def test_what_does_not_unpack_to_its_end_is_told(tmp_path: Path, codec: str) -> None:
    packed = PACK[codec](b"".join(b"%d\n" % n for n in range(9000)))
    why = found(tmp_path / f"a.json{codec}", packed[: len(packed) // 2])
    assert why == f"truncated: its {codec[1:]} data ends too soon"
    why = found(tmp_path / f"b.json{codec}", b"x" * 5000) or ""
    assert why.startswith(f"cannot be read: its bytes are not all {codec[1:]} data")


def test_a_file_that_cannot_have_a_long_line_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes((line(200) + b"\n") * 50_000)  # 10 MiB
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(line(200)))  # at most 16 MiB
    monkeypatch.setattr(content, "open_unpacked", None)
    for name in ("a.json", "b.json.gz"):
        assert too_long_reason(tmp_path / name, a_source(max_line_bytes=2**24)) is None


@pytest.mark.parametrize("codec", PACK)
def test_a_few_bytes_that_unpack_to_a_long_line(tmp_path: Path, codec: str) -> None:
    """Bzip2 makes 45 bytes of megabytes. Found by the fuzzer, seed 84283."""
    file = tmp_path / f"a.json{codec}"
    file.write_bytes(PACK[codec](line(2**20 + 1)))
    why = too_long_reason(file, a_source(max_line_bytes=2**20))
    assert (why or "").startswith("line 1 is longer than 1 MiB")
    file.write_bytes(PACK[codec](line(2**20)))
    assert too_long_reason(file, a_source(max_line_bytes=2**20)) is None
