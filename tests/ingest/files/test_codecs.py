"""Compressed files as bytes: complete, or an error."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pytest
from pyspark.sql import SparkSession

from medallion.ingest.files.content import (
    CODECS,
    READ_ERRORS,
    not_text_reason,
    open_unpacked,
)

# Longer than any codec's block, and not compressible to a few bytes.
LINE = random.Random(7).randbytes(50_000).hex()
LONG = f"{LINE}\n".encode() * 10


def zstandard(data: bytes) -> bytes:
    """Compress each line as a frame, with another library."""
    options = "format csv, header false, quote '', escape '', compression zstd"
    frames = []
    with TemporaryDirectory() as folder:
        for line in data.decode().splitlines():
            duckdb.execute(f"copy (select '{line}') to '{folder}/a' ({options})")
            frames.append(Path(f"{folder}/a").read_bytes())
    return b"".join(frames)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".zst": zstandard,
    ".xz": lzma.compress,
}


def test_codecs_all_have_a_test() -> None:
    assert set(COMPRESS) == set(CODECS)


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("data", [b"", b"{}\n", LONG], ids=["none", "short", "long"])
def test_open_unpacked(tmp_path: Path, codec: str, data: bytes) -> None:
    path = tmp_path / f"a{codec}"
    path.write_bytes(COMPRESS[codec](data))
    with open_unpacked(path) as file:
        assert file.read() == data
    with open_unpacked(path) as file:
        assert b"".join(iter(lambda: file.read(77_777), b"")) == data


@pytest.mark.parametrize("codec", COMPRESS)
def test_open_unpacked_two_streams(tmp_path: Path, codec: str) -> None:
    (tmp_path / f"a{codec}").write_bytes(COMPRESS[codec](LONG) + COMPRESS[codec](b"{}\n"))
    with open_unpacked(tmp_path / f"a{codec}") as file:
        assert file.read() == LONG + b"{}\n"


@pytest.mark.parametrize("codec", COMPRESS)
def test_open_unpacked_empty_file(tmp_path: Path, codec: str) -> None:
    (tmp_path / f"a{codec}").touch()
    with open_unpacked(tmp_path / f"a{codec}") as file:
        assert file.read() == b""


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("length", [1, 3, 7, 9, 50_000, -1])
def test_open_unpacked_truncated(tmp_path: Path, codec: str, length: int) -> None:
    (tmp_path / f"a{codec}").write_bytes(COMPRESS[codec](LONG)[:length])
    with open_unpacked(tmp_path / f"a{codec}") as file, pytest.raises(READ_ERRORS):
        file.read()


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("after", [b"garbage", bytes(9), b"x", LONG])
def test_open_unpacked_bytes_after_end(tmp_path: Path, codec: str, after: bytes) -> None:
    (tmp_path / f"a{codec}").write_bytes(COMPRESS[codec](b"{}\n") + after)
    with open_unpacked(tmp_path / f"a{codec}") as file, pytest.raises(READ_ERRORS):
        file.read()


@pytest.mark.parametrize("codec", COMPRESS)
def test_open_unpacked_many_streams(tmp_path: Path, codec: str) -> None:
    """More streams than one read buffer holds."""
    (tmp_path / f"a{codec}").write_bytes(COMPRESS[codec](b'{"Index": 1}\n') * 9_000)
    with open_unpacked(tmp_path / f"a{codec}") as file:
        assert file.read() == b'{"Index": 1}\n' * 9_000


@pytest.mark.parametrize(
    ("name", "start"), [("a.json.lz4", "LZ4"), ("a.SNAPPY", "Snappy"), ("a.csv.br", "Brotli")]
)
@pytest.mark.parametrize("data", [b"", b"{}\n", b"\x00\x00\x00\x03\x03\x08{}\n"])
def test_unsupported_codecs(tmp_path: Path, name: str, start: str, data: bytes) -> None:
    """Spark finds no rows in most of these, without an error."""
    (tmp_path / name).write_bytes(data)
    assert (not_text_reason(tmp_path / name) or "").startswith(f"{start} is not supported: pack it")


@pytest.mark.parametrize("codec", [".gz", ".bz2", ".deflate", ".xz"])  # .zst has no checksum
def test_open_unpacked_corrupt(tmp_path: Path, codec: str) -> None:
    compressed = COMPRESS[codec](LONG)
    (tmp_path / f"a{codec}").write_bytes(compressed[:9_000] + bytes(3_000) + compressed[12_000:])
    with open_unpacked(tmp_path / f"a{codec}") as file, pytest.raises(READ_ERRORS):
        file.read()


@pytest.mark.parametrize("codec", COMPRESS)
def test_open_unpacked_text(tmp_path: Path, codec: str) -> None:
    (tmp_path / f"a{codec}").write_bytes(b'{"Index": 1}\n' * 9)
    with open_unpacked(tmp_path / f"a{codec}") as file, pytest.raises(READ_ERRORS):
        file.read()


@pytest.mark.parametrize(
    ("codec", "compression"),
    [
        (".gz", "gzip"),
        (".bz2", "bzip2"),
        (".deflate", "deflate"),
    ],
)
def test_open_unpacked_written_by_spark(
    spark: SparkSession, tmp_path: Path, codec: str, compression: str
) -> None:
    lines = [*LONG.decode().splitlines(), "{}"]
    rows = spark.createDataFrame([(line,) for line in lines], "value string").coalesce(1)
    rows.write.text(str(tmp_path / "written"), compression=compression)
    (path,) = (tmp_path / "written").glob(f"part-*{codec}")
    with open_unpacked(path) as file:
        assert file.read() == LONG + b"{}\n"
