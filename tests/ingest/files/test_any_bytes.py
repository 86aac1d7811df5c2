"""Whatever bytes land: a file is put aside where it is none to read, or left for its name; else
each line is a row, or each object on it."""

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

FILES = 40 * settings().max_examples
LIMIT = 1 << 16  # the longest line, in bytes
MANY = 1000  # by `make test-slow`
BLANK = b" \t\r\n\v\f"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# How files of other kinds begin, by the specifications of their formats.
NO_TEXT = (
    *(b"\x89PNG", b"%PDF-", b"PK\x03\x04", b"\xff\xd8\xff", b"\x7fELF"),
    *(b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"Obj\x01", b"\xff\xfe", b"\xfe\xff"),
    *(b"\xfd7zXZ\0", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x1f\x9d", b"\x04\x22\x4d\x18"),
)
MAYBE_TEXT = (b"BZh", b"PAR1", b"ORC")  # by what follows
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".xz": lzma.compress,
    ".GZ": lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:]),
}
# What is landed of each text in turn: a name's ending, and what is done to what is packed.
KINDS = [
    *[(".json", ""), ("", "")] * 10,
    *[(codec, "") for codec in PACK] * 4,
    *itertools.product(PACK, ("torn", "twice", "not packed", "written on")),
    *((ending, "") for ending in (*REFUSED_CODECS, *REFUSED_ARCHIVES, ".tar.gz", ".TAR.BZ2")),
]

LINES = st.one_of(
    *(ANY_LINES, NEARLY_JSON, EDGE_VALUES, DEEP, CONCATENATED),
    st.sampled_from([9000, 9000, LIMIT - 1, LIMIT, LIMIT, LIMIT + 1]).map(padded),
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\n \t\n"])
TEXTS = st.builds(
    lambda start, lines, last: start + b"".join(itertools.chain(*lines)) + last,
    st.sampled_from([*[b""] * 60, *[BYTE_ORDER_MARK] * 9, b"\n", *NO_TEXT]),
    st.lists(st.tuples(LINES, ENDS), min_size=1, max_size=20),
    st.one_of(st.just(b""), LINES),
)
LETTERS = "abcXYZ0189 -+~!#$%&'()*,;=@[]{}?`^|<>\"\\äß名😀é\t\x01"
BAD = ":\n\r"  # letters that no name may have


@dataclass(frozen=True)
class AnyFile:
    """A file as it lands.

    `harm` is what was done to one that is packed: it was cut at some place, packed twice, not
    packed at all, or written on.
    """

    name: str
    ending: str
    text: bytes
    harm: str
    cut: float

    @property
    def content(self) -> bytes:
        """Its bytes."""
        if self.ending not in PACK or self.harm == "not packed":
            return self.text
        pack = PACK[self.ending]
        packed = pack(self.text)
        if self.harm == "torn":
            return packed[: 1 + int(self.cut * (len(packed) - 1))]
        if self.harm == "twice":
            return pack(packed)
        return packed + b"garbage" if self.harm == "written on" else packed

    @property
    def rows(self) -> int | None:
        """Objects, and lines that are none and not blank; None where it is not taken in, -1 where
        either is right.

        A mark of the order of bytes is no part of the first line, unless for its length.
        """
        if self.ending in {*REFUSED_CODECS, *REFUSED_ARCHIVES, ".tar.gz", ".TAR.BZ2"} or set(
            self.name
        ) & set(BAD):
            return None
        if self.ending in PACK and self.harm:
            return self._rows_of_harmed
        if self.text.startswith(NO_TEXT):  # what is packed is looked at as it is unpacked
            return None
        if self.text.startswith(MAYBE_TEXT):
            return -1
        if any(len(line) > LIMIT for line in lines_of(self.text)):
            return None
        lines = (re.sub(rb"^(\xef\xbb\xbf)+", b"", line) for line in lines_of(self.text))
        return sum(objects_in(line) for line in lines if line.strip(BLANK))

    @property
    def _rows_of_harmed(self) -> int | None:
        if self.harm == "not packed":
            return None if self.text else 0
        if self.harm == "torn":  # between two members it is whole
            return -1 if self.ending == ".GZ" else None
        if self.harm == "twice":  # that is told where it is certain, else it is lines
            return None if self.ending.lower() == ".gz" else -1
        return None


def lines_of(text: bytes) -> list[bytes]:
    return re.split(rb"\r\n|\n|\r", text)


def drawn() -> list[AnyFile]:
    """All examples at once; one text in ten is empty, and one name in thirty is bad."""
    found: list[AnyFile] = []

    @settings(max_examples=FILES)
    @given(text=TEXTS, letters=st.text(LETTERS, max_size=20), cut=st.floats(0, 1, exclude_max=True))
    def draw(text: bytes, letters: str, cut: float) -> None:
        number = len(found)
        ending, harm = KINDS[number % len(KINDS)]
        name = f"{number}{letters}" + ("" if number % 31 else BAD[number % len(BAD)])
        found.append(AnyFile(name, ending, text if number % 11 else b"", harm, cut))

    draw()
    return found


def test_every_file_is_rows_or_is_told(lakehouse: Lakehouse) -> None:
    """In two runs, so that the fields of one are columns of the next."""
    event = replace(lakehouse.config.sources["event"], max_line_bytes=LIMIT)
    lakehouse.config = replace(lakehouse.config, sources={"event": event}, gold={})
    landing = lakehouse.config.layout.landing("event")
    landing.local.mkdir(parents=True, exist_ok=True)
    landed: dict[str, AnyFile] = {}
    files = drawn()
    for some in (files[: FILES // 2], files[FILES // 2 :]):
        for file in some:
            path = landing / f"{file.name}{file.ending}"
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
        refused = (State.PENDING if set(file.name) & set(BAD) else State.REJECTED,)
        assert entry.state in (refused if expected is None else (State.INGESTED, State.ARCHIVED))
        assert bool(entry.why) == (expected is None)
    if len(files) >= MANY:
        lakehouse.fill("silver")
    found = run_audit(lakehouse.config, everything=True)
    assert (found.findings, found.is_balanced) == ((), True)
    assert found.balances["event"].bronze_rows == sum(in_bronze.values())
