"""Hostile files: unusual names, times and compression, and entries that are not regular files."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import duckdb

from medallion.state.ledger import State
from tests.support.hostile_lines import CONTENTS, HostileFile, text

ONE = b'{"Device":"d"}\n'
TWO = ONE + ONE
_RANDOM = random.Random(1)
# Long, and hard to compress: truncation always cuts within the data.
MANY = b"".join(b'{"Device":"%032x"}\n' % _RANDOM.getrandbits(128) for _ in range(2_000))


def named(file: str, **more: Any) -> HostileFile:
    """Return a one-line file with this name."""
    return HostileFile(
        f"name {file!r:.40}", ONE, file=file, expected_values={"Device": ["d"]}, **more
    )


def rejected(
    name: str, file: str, content: bytes = ONE, reason: str = "", **more: Any
) -> HostileFile:
    return HostileFile(name, content, 0, state=State.REJECTED, reason=reason, file=file, **more)


def compressed(name: str, file: str, content: bytes, rows: int) -> HostileFile:
    return HostileFile(name, content, rows, file=file)


def ignored(file: str) -> HostileFile:
    """Return a file that is ignored silently because of its name or its directory."""
    return HostileFile(
        f"ignored {file}", ONE, 0, state=None, file=file, modified_at=time.time() - 3600
    )


def left_in_place(name: str, file: str, reason: str, **more: Any) -> HostileFile:
    """Return a file that is reported and left in place."""
    return HostileFile(name, ONE, 0, state=State.PENDING, file=file, reason=reason, **more)


def linked(name: str, file: str, to: str) -> HostileFile:
    def make(path: Path) -> None:
        path.symlink_to(to)

    return left_in_place(name, file, "a symbolic link", make=make)


def _zip() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("a.json", ONE)
    return archive.getvalue()


def _tar() -> bytes:
    """Return a tar archive of two files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as members:
        for name in ("x.json", "y.json"):
            member = tarfile.TarInfo(name)
            member.size = len(TWO)
            members.addfile(member, io.BytesIO(TWO))
    return archive.getvalue()


def _parquet(path: Path) -> None:
    duckdb.connect().sql("select 'd' as Device").write_parquet(str(path))


UNUSUAL = ["a b.json", " first.json", "last ", "100%.json", "a%20b.json", "a+b.json", "a#b.json"]
UNUSUAL += ["a?b.json", "a*b.json", "[ab].json", "{a,b}.json", "a,b.json", "a'b.json", 'a"b.json']
UNUSUAL += ["a\\b.json", "a\tb.json", "a\x01b.json", "a=b.json", "a&b;c|d.json", "$HOME.json"]
UNUSUAL += ["-rf.json", "~a.json", "😀.json", "\u00e9.json", "e\u0301.json", "no ending", "a.b.c"]
UNUSUAL += ["x" * 250 + ".json", "名" * 83, "a..json", "a.json~", "CON"]
UNUSUAL += ["2018/03/02/a.json", "a b/c+d%/e.json", "Device=x/a.json", "value=7/a.json"]
UNUSUAL += ["folder.json/part-0", "folder.gz/a.json"]
HIDDEN = [".a.json", "_a.json", "_a=b.json", "_SUCCESS", "._a", "a._COPYING_", "a.json.tmp"]
HIDDEN += ["a.part", "_folder/a.json", ".folder/a.json", "folder.json/_temporary/0/a.json"]
NAMES = [
    *(named(file) for file in UNUSUAL),
    *(left_in_place(f"colon {file}", file, "colon") for file in ("a:b.json", ":", "a:b/c.json")),
    left_in_place("line break", "a\nb.json", "line break"),
    left_in_place("carriage return", "a\rb.json", "line break"),
    *map(ignored, HIDDEN),
]
# The ledger cannot represent this name.
NOT_UTF8 = left_in_place("name not UTF-8", "bytes\udcff.json", "UTF-8")
CODECS = [
    compressed("gzip", "a.json.gz", gzip.compress(TWO), 2),
    compressed("bzip2", "a.json.bz2", bz2.compress(TWO), 2),
    compressed("deflate", "a.json.deflate", zlib.compress(TWO), 2),
    compressed("long gzip", "many.gz", gzip.compress(MANY), 2_000),
    compressed("long bzip2", "many.bz2", bz2.compress(MANY), 2_000),
    compressed("long deflate", "many.deflate", zlib.compress(MANY), 2_000),
    compressed("two members", "two.gz", gzip.compress(ONE) * 2, 2),
    compressed("two streams of bzip2", "two.bz2", bz2.compress(ONE) * 2, 2),
    compressed("gzip with BOM", "bom.gz", gzip.compress(text("\ufeff") + ONE), 1),
    compressed("gzip of nothing", "nothing.gz", gzip.compress(b""), 0),
    compressed("gzip of blank lines", "blank.gz", gzip.compress(b"\n \n"), 0),
    compressed("empty .gz", "empty.gz", b"", 0),
    compressed("xz", "a.json.xz", lzma.compress(TWO), 2),
    compressed("upper case .GZ", "upper.GZ", gzip.compress(TWO), 2),
    rejected("truncated gzip", "torn.gz", gzip.compress(MANY)[:30_000], "truncated"),
    rejected("gzip without its end", "endless.gz", gzip.compress(ONE)[:-8], "truncated"),
    rejected("truncated bzip2", "torn.bz2", bz2.compress(MANY)[:30_000], "truncated"),
    rejected("truncated deflate", "torn.deflate", zlib.compress(MANY)[:30_000], "truncated"),
    rejected("corrupt gzip", "spoilt.gz", gzip.compress(MANY).replace(b"\x55", b"\xaa"), "cannot"),
    rejected("text as .gz", "text.gz", ONE, "cannot"),
    rejected("text as .bz2", "text.bz2", ONE, "cannot"),
    rejected("text as .deflate", "text.deflate", ONE, "cannot"),
    # Another source: Python cannot detect this, so Spark reads the files of the batch again.
    rejected("text as .zst", "text.zst", ONE, "cannot", source="event"),
    rejected("gzip and garbage", "garbage.gz", gzip.compress(ONE) + b"garbage" * 9, "cannot"),
    rejected("gzip as .json", "gzip.json", gzip.compress(ONE), "gzip"),
    rejected("bzip2 as .json", "bzip2.json", bz2.compress(ONE), "bzip2"),
]
LONG = b'{"Device": "d"}\n{"Device": "' + b"x" * (16 << 20) + b'"}\n{}\n'
LENGTHS = [
    rejected("a line of 16 MiB", "long.json", LONG, "line 2: longer than 16 MiB"),
    rejected("a packed line of 16 MiB", "long.gz", gzip.compress(LONG, 1), "line 2: longer"),
]
NO_FILES = [
    compressed("empty", "empty.json", b"", 0),
    rejected("PNG", "png.json", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG"),
    rejected("PNG of a long name", "p" * 250 + ".json", b"\x89PNG\r\n\x1a\n", "PNG"),
    rejected("zip", "zip.json", _zip(), "a zip archive without .zip"),
    rejected("no zip", "b.json.zip", ONE, "cannot be read: its bytes are not all zip data"),
    rejected("tar", "a.tar", _tar(), "unpack it, and land its files"),
    rejected("tar.gz", "a.tar.gz", gzip.compress(_tar()), "unpack it, and land its files"),
    rejected("tar.bz2", "a.TAR.bz2", bz2.compress(_tar()), "unpack it, and land its files"),
    rejected("tar.xz", "a.tar.xz", lzma.compress(_tar()), "unpack it, and land its files"),
    rejected("tgz", "a.tgz", gzip.compress(_tar()), "unpack it, and land its files"),
    rejected("tar without its name", "tar.json", _tar(), "not text: a tar archive: unpack it"),
    rejected(
        "tar in .gz",
        "tar.json.gz",
        gzip.compress(_tar()),
        "once it is unpacked: a tar archive: unpack",
    ),
    rejected("xz without its name", "xz.json", lzma.compress(TWO), "xz data without .xz"),
    rejected("truncated xz", "b.json.xz", lzma.compress(TWO)[:-9], "truncated: its xz data"),
    rejected("brotli", "a.json.br", b"\x0b\x07\x80{}\n\x03", "pack it as .gz or .zst"),
    rejected("compress", "a.json.Z", b"\x1f\x9d\x90" + ONE, "pack it as .gz or .zst"),
    rejected("compress without its name", "z.json", b"\x1f\x9d\x90" + ONE, "data of compress"),
    rejected("7z", "a.7z", b"7z\xbc\xaf\x27\x1c\0\4", "unpack it, and land its files"),
    rejected("7z without its name", "7z.json", b"7z\xbc\xaf\x27\x1c\0\4", "a 7z archive: unpack"),
    rejected("rar", "rar.json", b"Rar!\x1a\x07\1\0", "a rar archive: unpack it"),
    rejected("Parquet", "parquet.json", reason="Parquet", make=_parquet),
    left_in_place("named pipe", "pipe.json", "neither", make=os.mkfifo),
    rejected("lz4", "a.json.lz4", ONE, "pack it as .gz or .zst"),
    rejected("snappy", "a.JSON.SNAPPY", ONE, "pack it as .gz or .zst"),
    linked("link to a file", "link.json", "a b.json"),
    linked("link to a folder", "latest", "2018"),
    linked("link to a file of the machine", "machine.json", "/etc/passwd"),
    linked("link to nothing", "dangling.json", "nothing.json"),
    linked("link to itself", "self.json", "self.json"),
]
MOMENTS = [
    *(
        HostileFile(f"of {label}", ONE, modified_at=modified_at, expected_values={"Device": ["d"]})
        for label, modified_at in (
            ("1990", 631_152_000.0),
            ("2004 and a millisecond", 1_086_048_000.001),  # times 1,000, not exact as a float
            ("1970", 0.0),
            ("1960", -315_619_200.0),
            ("ten years ahead", time.time() + 3.2e8),
            ("2100", 4_102_444_800.0),
        )
    ),
]
CATALOGUE = [*CONTENTS, *NAMES, *CODECS, *LENGTHS, *NO_FILES, *MOMENTS]
