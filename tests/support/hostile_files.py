"""The catalogue of hostile files: their names, times, compression, and what is no file at all."""

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
from tests.support.hostile_lines import CONTENTS, Kind, text

ONE = b'{"Device":"d"}\n'
TWO = ONE + ONE
_RANDOM = random.Random(1)
# Long, and hard to compress: a file that is cut in two ends within its data.
MANY = b"".join(b'{"Device":"%032x"}\n' % _RANDOM.getrandbits(128) for _ in range(2_000))


def named(file: str, **more: Any) -> Kind:
    """A file of one line under this name."""
    return Kind(f"name {file!r:.40}", ONE, file=file, sees={"Device": ["d"]}, **more)


def rejected(name: str, file: str, content: bytes = ONE, why: str = "", **more: Any) -> Kind:
    return Kind(name, content, 0, state=State.REJECTED, why=why, file=file, **more)


def packed(name: str, file: str, content: bytes, rows: int) -> Kind:
    return Kind(name, content, rows, file=file)


def ignored(file: str) -> Kind:
    """A file that is ignored silently, by its name or its directory's."""
    return Kind(f"ignored {file}", ONE, 0, state=None, file=file, modified_at=time.time() - 3600)


def left(name: str, file: str, why: str, **more: Any) -> Kind:
    """What is told, and left where it is."""
    return Kind(name, ONE, 0, state=State.PENDING, file=file, why=why, **more)


def linked(name: str, file: str, to: str) -> Kind:
    def make(path: Path) -> None:
        path.symlink_to(to)

    return left(name, file, "a symbolic link", make=make)


def _zip() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("a.json", ONE)
    return archive.getvalue()


def _tar() -> bytes:
    """An archive of two files, as `tar` writes it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as members:
        for name in ("x.json", "y.json"):
            member = tarfile.TarInfo(name)
            member.size = len(TWO)
            members.addfile(member, io.BytesIO(TWO))
    return archive.getvalue()


def _parquet(path: Path) -> None:
    duckdb.connect().sql("select 'd' as Device").write_parquet(str(path))


ODD = ["a b.json", " first.json", "last ", "100%.json", "a%20b.json", "a+b.json", "a#b.json"]
ODD += ["a?b.json", "a*b.json", "[ab].json", "{a,b}.json", "a,b.json", "a'b.json", 'a"b.json']
ODD += ["a\\b.json", "a\tb.json", "a\x01b.json", "a=b.json", "a&b;c|d.json", "$HOME.json"]
ODD += ["-rf.json", "~a.json", "😀.json", "\u00e9.json", "e\u0301.json", "no ending", "a.b.c"]
ODD += ["x" * 250 + ".json", "名" * 83, "a..json", "a.json~", "CON"]
ODD += ["2018/03/02/a.json", "a b/c+d%/e.json", "Device=x/a.json", "value=7/a.json"]
ODD += ["folder.json/part-0", "folder.gz/a.json"]
HIDDEN = [".a.json", "_a.json", "_a=b.json", "_SUCCESS", "._a", "a._COPYING_", "a.json.tmp"]
HIDDEN += ["a.part", "_folder/a.json", ".folder/a.json", "folder.json/_temporary/0/a.json"]
NAMES = [
    *(named(file) for file in ODD),
    *(left(f"colon {file}", file, "colon") for file in ("a:b.json", ":", "a:b/c.json")),
    left("line break", "a\nb.json", "line break"),
    left("carriage return", "a\rb.json", "line break"),
    *map(ignored, HIDDEN),
]
# The ledger cannot spell its name.
NOT_UTF8 = left("name not UTF-8", "bytes\udcff.json", "UTF-8")
CODECS = [
    packed("gzip", "a.json.gz", gzip.compress(TWO), 2),
    packed("bzip2", "a.json.bz2", bz2.compress(TWO), 2),
    packed("deflate", "a.json.deflate", zlib.compress(TWO), 2),
    packed("long gzip", "many.gz", gzip.compress(MANY), 2_000),
    packed("long bzip2", "many.bz2", bz2.compress(MANY), 2_000),
    packed("long deflate", "many.deflate", zlib.compress(MANY), 2_000),
    packed("two members", "two.gz", gzip.compress(ONE) * 2, 2),
    packed("two streams of bzip2", "two.bz2", bz2.compress(ONE) * 2, 2),
    packed("gzip with BOM", "bom.gz", gzip.compress(text("\ufeff") + ONE), 1),
    packed("gzip of nothing", "nothing.gz", gzip.compress(b""), 0),
    packed("gzip of blank lines", "blank.gz", gzip.compress(b"\n \n"), 0),
    packed("empty .gz", "empty.gz", b"", 0),
    packed("xz", "a.json.xz", lzma.compress(TWO), 2),
    packed("upper case .GZ", "upper.GZ", gzip.compress(TWO), 2),
    rejected("torn gzip", "torn.gz", gzip.compress(MANY)[:30_000], "truncated"),
    rejected("gzip without its end", "endless.gz", gzip.compress(ONE)[:-8], "truncated"),
    rejected("torn bzip2", "torn.bz2", bz2.compress(MANY)[:30_000], "truncated"),
    rejected("torn deflate", "torn.deflate", zlib.compress(MANY)[:30_000], "truncated"),
    rejected("spoilt gzip", "spoilt.gz", gzip.compress(MANY).replace(b"\x55", b"\xaa"), "cannot"),
    rejected("text as .gz", "text.gz", ONE, "cannot"),
    rejected("text as .bz2", "text.bz2", ONE, "cannot"),
    rejected("text as .deflate", "text.deflate", ONE, "cannot"),
    # Of another source: where Python cannot tell, Spark reads the files of the batch again.
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
    packed("empty", "empty.json", b"", 0),
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
    rejected("Parquet", "parquet.json", why="Parquet", make=_parquet),
    left("named pipe", "pipe.json", "neither", make=os.mkfifo),
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
        Kind(f"of {what}", ONE, modified_at=since, sees={"Device": ["d"]})
        for what, since in (
            ("1990", 631_152_000.0),
            ("2004 and a millisecond", 1_086_048_000.001),  # times 1,000, a float is too small
            ("1970", 0.0),
            ("1960", -315_619_200.0),
            ("ten years ahead", time.time() + 3.2e8),
            ("2100", 4_102_444_800.0),
        )
    ),
]
CATALOGUE = [*CONTENTS, *NAMES, *CODECS, *LENGTHS, *NO_FILES, *MOMENTS]
