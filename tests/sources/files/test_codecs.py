"""Packed files as bytes: what Spark and others wrote comes back whole, or it is an error."""

from __future__ import annotations

import bz2
import gzip
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest
from pyspark.sql import SparkSession

from medallion.sources.files.codecs import CODECS, opened
from medallion.sources.files.reject import why_not_text

# Longer than any codec's block, and not so regular that it would come out of a few bytes.
LONG = random.Random(7).randbytes(100_000).hex().encode() * 5
FAULTS = (OSError, EOFError, zlib.error)


def blocks(pack: Callable[[bytes], bytes], data: bytes) -> bytes:
    """Hadoop's frames, each block of two parts."""
    made = b""
    for at in range(0, len(data), 200_000):
        block = data[at : at + 200_000]
        made += len(block).to_bytes(4, "big")
        for part in filter(None, (block[:150_000], block[150_000:])):
            packed = pack(part)
            made += len(packed).to_bytes(4, "big") + packed
    return made


def lz4(data: bytes) -> bytes:
    return blocks(lambda part: bytes(cramjam.lz4.compress_block(part, store_size=False)), data)


def snappy(data: bytes) -> bytes:
    return blocks(lambda part: bytes(cramjam.snappy.compress_raw(part)), data)


def zstandard(data: bytes) -> bytes:
    """Frames of some 100,000 bytes each, as a second library writes them."""
    frames = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
    return b"".join(bytes(cramjam.zstd.compress(frame)) for frame in frames)


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".zst": zstandard,
    ".lz4": lz4,
    ".snappy": snappy,
}


def test_every_codec_has_its_test() -> None:
    assert tuple(PACK) == CODECS


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("data", [b"", b"{}\n", LONG], ids=["none", "short", "long"])
def test_what_was_packed_comes_back(tmp_path: Path, codec: str, data: bytes) -> None:
    file = tmp_path / f"a{codec}"
    file.write_bytes(PACK[codec](data))
    with opened(file) as found:
        assert found.read() == data
    with opened(file) as found:
        assert b"".join(iter(lambda: found.read(77_777), b"")) == data


@pytest.mark.parametrize("codec", PACK)
def test_one_after_the_other(tmp_path: Path, codec: str) -> None:
    (tmp_path / f"a{codec}").write_bytes(PACK[codec](LONG) + PACK[codec](b"{}\n"))
    with opened(tmp_path / f"a{codec}") as found:
        assert found.read() == LONG + b"{}\n"


@pytest.mark.parametrize("codec", PACK)
def test_an_empty_file_has_no_bytes(tmp_path: Path, codec: str) -> None:
    (tmp_path / f"a{codec}").touch()
    with opened(tmp_path / f"a{codec}") as found:
        assert found.read() == b""


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("left", [1, 3, 7, 9, 50_000, -1])
def test_torn(tmp_path: Path, codec: str, left: int) -> None:
    (tmp_path / f"a{codec}").write_bytes(PACK[codec](LONG)[:left])
    with opened(tmp_path / f"a{codec}") as found, pytest.raises(FAULTS):
        found.read()


ROWS = b"".join(b'{"Index": %d}\n' % index for index in range(50_000))


@pytest.mark.parametrize("codec", [".lz4", ".snappy"])
@pytest.mark.parametrize(
    "spoil", [lambda p: p[:-1], lambda p: p[: len(p) // 2], lambda p: p + b"a"]
)
def test_torn_blocks_are_rejected(
    tmp_path: Path, codec: str, spoil: Callable[[bytes], bytes]
) -> None:
    """Spark takes the rows before, and says nothing."""
    file = tmp_path / f"a{codec}"
    file.write_bytes(PACK[codec](ROWS))
    assert why_not_text(file) is None
    file.write_bytes(spoil(PACK[codec](ROWS)))
    assert why_not_text(file) == f"torn: its {codec[1:]} data ends too soon"


@pytest.mark.parametrize("codec", [".lz4", ".snappy"])
def test_what_hadoop_would_not_look_at_is_rejected(tmp_path: Path, codec: str) -> None:
    """An empty block ends a file, so that Spark finds no row behind it."""
    file = tmp_path / f"a{codec}"
    file.write_bytes(PACK[codec](ROWS) + bytes(4))
    assert why_not_text(file) is None
    file.write_bytes(PACK[codec](ROWS) + bytes(4) + PACK[codec](ROWS))
    assert "empty block" in str(why_not_text(file))


@pytest.mark.parametrize("codec", [".gz", ".bz2", ".deflate"])  # the others carry no checksum
def test_spoilt(tmp_path: Path, codec: str) -> None:
    packed = PACK[codec](LONG)
    (tmp_path / f"a{codec}").write_bytes(packed[:9_000] + bytes(3_000) + packed[12_000:])
    with opened(tmp_path / f"a{codec}") as found, pytest.raises(FAULTS):
        found.read()


@pytest.mark.parametrize("codec", PACK)
def test_text(tmp_path: Path, codec: str) -> None:
    (tmp_path / f"a{codec}").write_bytes(b'{"Index": 1}\n' * 9)
    with opened(tmp_path / f"a{codec}") as found, pytest.raises(FAULTS):
        found.read()


@pytest.mark.parametrize(
    ("codec", "compression"),
    [
        (".gz", "gzip"),
        (".bz2", "bzip2"),
        (".deflate", "deflate"),
        (".lz4", "lz4"),
        (".snappy", "snappy"),
    ],
)
def test_what_spark_writes(
    spark: SparkSession, tmp_path: Path, codec: str, compression: str
) -> None:
    text = LONG.decode()
    rows = spark.createDataFrame([(text,), ("{}",)], "value string").coalesce(1)
    rows.write.text(str(tmp_path / "made"), compression=compression)
    (file,) = (tmp_path / "made").glob(f"part-*{codec}")
    with opened(file) as found:
        assert found.read() == LONG + b"\n{}\n"
