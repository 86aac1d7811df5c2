"""Arbitrary bytes as landed files: a file that cannot be read is rejected, one with an invalid name
stays pending, and of the rest each line or object is a row."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from medallion.ingest.files.content import REFUSED_ARCHIVES, REFUSED_CODECS
from medallion.inspect.audit import run_audit
from medallion.state import ledger
from medallion.state.ledger import State
from tests.support.any_lines import (
    ANY_LINES,
    CONCATENATED,
    DEEP,
    EDGE_VALUES,
    NEARLY_JSON,
    objects_in,
    padded,
)
from tests.support.lakehouse import Lakehouse

FILES = 40 * settings().max_examples if settings().max_examples > 4 else 80  # all variants
LIMIT = 1 << 16  # the longest line, in bytes
MANY = 1000  # by `make test-slow`
BLANK = b" \t\r\n\v\f"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Magic bytes of other file formats, by their specifications.
NOT_TEXT = (
    *(b"\x89PNG", b"%PDF-", b"PK\x03\x04", b"\xff\xd8\xff", b"\x7fELF"),
    *(b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"Obj\x01", b"\xff\xfe", b"\xfe\xff"),
    *(b"\xfd7zXZ\0", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x1f\x9d", b"\x04\x22\x4d\x18"),
)
POSSIBLY_TEXT = (b"BZh", b"PAR1", b"ORC")  # depends on the bytes after it
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".xz": lzma.compress,
    ".GZ": lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:]),
}
# File name suffix and damage to a compressed file, used in turn.
VARIANTS = [
    *[(".json", ""), ("", "")] * 10,
    *[(codec, "") for codec in COMPRESS] * 4,
    *itertools.product(COMPRESS, ("truncated", "twice", "uncompressed", "trailing bytes")),
    *((suffix, "") for suffix in (*REFUSED_CODECS, *REFUSED_ARCHIVES, ".tar.gz", ".TAR.BZ2")),
]

LINES = st.one_of(
    *(ANY_LINES, NEARLY_JSON, EDGE_VALUES, DEEP, CONCATENATED),
    st.sampled_from([9000, 9000, LIMIT - 1, LIMIT, LIMIT, LIMIT + 1]).map(padded),
)
LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\n \t\n"])
CONTENTS = st.builds(
    lambda start, lines, last: start + b"".join(itertools.chain(*lines)) + last,
    st.sampled_from([*[b""] * 60, *[BYTE_ORDER_MARK] * 9, b"\n", *NOT_TEXT]),
    st.lists(st.tuples(LINES, LINE_ENDS), min_size=1, max_size=20),
    st.one_of(st.just(b""), LINES),
)
NAME_CHARACTERS = "abcXYZ0189 -+~!#$%&'()*,;=@[]{}?`^|<>\"\\äß名😀é\t\x01"
INVALID_CHARACTERS = ":\n\r"  # not allowed in file names


@dataclass(frozen=True)
class AnyFile:
    """A landed file.

    `damage` says how a compressed file differs from a valid one: truncated, compressed twice, not
    compressed, or with bytes after its end.
    """

    name: str
    suffix: str
    data: bytes
    damage: str
    cut: float

    @property
    def content(self) -> bytes:
        if self.suffix not in COMPRESS or self.damage == "uncompressed":
            return self.data
        compress = COMPRESS[self.suffix]
        compressed = compress(self.data)
        if self.damage == "truncated":
            return compressed[: 1 + int(self.cut * (len(compressed) - 1))]
        if self.damage == "twice":
            return compress(compressed)
        return compressed + b"garbage" if self.damage == "trailing bytes" else compressed

    @property
    def rows(self) -> int | None:
        """Expected number of rows: None if the file is not ingested, -1 if both are correct.

        Each object is a row, and each other line that is not blank. A byte order mark counts only
        for the length of the first line.
        """
        if self.suffix in {*REFUSED_CODECS, *REFUSED_ARCHIVES, ".tar.gz", ".TAR.BZ2"} or set(
            self.name
        ) & set(INVALID_CHARACTERS):
            return None
        if self.suffix in COMPRESS and self.damage:
            return self._rows_of_damaged
        if self.data.startswith(NOT_TEXT):  # checked after decompression
            return None
        if self.data.startswith(POSSIBLY_TEXT):
            return -1
        if any(len(line) > LIMIT for line in lines_of(self.data)):
            return None
        lines = (re.sub(rb"^(\xef\xbb\xbf)+", b"", line) for line in lines_of(self.data))
        return sum(objects_in(line) for line in lines if line.strip(BLANK))

    @property
    def _rows_of_damaged(self) -> int | None:
        if self.damage == "uncompressed":
            return None if self.data else 0
        if self.damage == "truncated":  # complete if cut between two gzip members
            return -1 if self.suffix == ".GZ" else None
        if self.damage == "twice":  # detected only for gzip, otherwise its bytes are lines
            return None if self.suffix.lower() == ".gz" else -1
        return None


def lines_of(data: bytes) -> list[bytes]:
    return re.split(rb"\r\n|\n|\r", data)


def generate_files() -> list[AnyFile]:
    """Return all examples at once: one file in ten is empty, one name in thirty is invalid."""
    files: list[AnyFile] = []

    @settings(max_examples=FILES)
    @given(
        data=CONTENTS,
        characters=st.text(NAME_CHARACTERS, max_size=20),
        cut=st.floats(0, 1, exclude_max=True),
    )
    def draw(data: bytes, characters: str, cut: float) -> None:
        number = len(files)
        suffix, damage = VARIANTS[number % len(VARIANTS)]
        name = f"{number}{characters}" + (
            "" if number % 31 else INVALID_CHARACTERS[number % len(INVALID_CHARACTERS)]
        )
        files.append(AnyFile(name, suffix, data if number % 11 else b"", damage, cut))

    draw()
    return files


def test_any_file_is_ingested_or_reported(lakehouse: Lakehouse) -> None:
    """Two runs: fields of the first are columns in the second."""
    event = replace(lakehouse.config.sources["event"], max_line_bytes=LIMIT)
    lakehouse.config = replace(lakehouse.config, sources={"event": event}, gold={})
    landing = lakehouse.config.layout.landing("event")
    landing.local.mkdir(parents=True, exist_ok=True)
    landed: dict[str, AnyFile] = {}
    files = generate_files()
    for half in (files[: FILES // 2], files[FILES // 2 :]):
        for file in half:
            path = landing / f"{file.name}{file.suffix}"
            path.local.write_bytes(file.content)
            landed[f"landing/event/{path.name}"] = file
        lakehouse.fill("bronze")
    entries = {entry.path: entry for entry in ledger.read_entries(lakehouse.config.layout)}
    in_bronze = Counter(file for (file,) in lakehouse.rows("bronze.event", "_source_file"))
    assert entries.keys() == landed.keys()
    for name, file in landed.items():
        entry = entries[name]
        expected = entry.rows if file.rows == -1 else file.rows
        assert entry.rows == expected, file
        assert in_bronze[name] == (expected or 0)
        not_ingested = (
            State.PENDING if set(file.name) & set(INVALID_CHARACTERS) else State.REJECTED,
        )
        assert entry.state in (
            not_ingested if expected is None else (State.INGESTED, State.ARCHIVED)
        )
        assert bool(entry.why) == (expected is None)
    if len(files) >= MANY:
        lakehouse.fill("silver")
    # Deep audits of such files: tests of `verify`.
    audit = run_audit(lakehouse.config, everything=len(files) >= MANY)
    assert (audit.findings, audit.is_balanced) == ((), True)
    assert audit.balances["event"].bronze_rows == sum(in_bronze.values())
