"""Whatever bytes land: a file is put aside where it is none to read, else each line is a row."""

from __future__ import annotations

import gzip
import itertools
import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from medallion.ops import ledger
from medallion.ops.ledger import ARCHIVED, INGESTED, REJECTED
from tests.support.any_lines import ANY_LINES
from tests.support.lakehouse import Lakehouse

FILES = 20
BLANK = b" \t\r\n\v\f"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# How files of other kinds begin, by the specifications of their formats.
NO_TEXT = (
    *(
        b"\x89PNG\r\n\x1a\n",
        b"%PDF-1.7\n",
        b"PK\x03\x04",
        b"\xff\xd8\xff\xe0",
        b"\x7fELF\x02\x01\x01",
    ),
    *(b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"Obj\x01", b"\xff\xfe", b"\xfe\xff"),
)

ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\n \t\n"])
TEXTS = st.builds(
    lambda start, lines, last: start + b"".join(itertools.chain(*lines)) + last,
    st.sampled_from([b"", b"", b"", BYTE_ORDER_MARK, b"\n", *NO_TEXT]),
    st.lists(st.tuples(ANY_LINES, ENDS), max_size=8),
    st.one_of(st.just(b""), ANY_LINES),
)
ENDINGS = st.sampled_from([".json", "", ".gz", ".torn.gz"])


def is_whole(content: bytes, ending: str) -> bool:
    """What is packed is looked at as it is unpacked."""
    return ".torn" not in ending and not content.startswith(NO_TEXT)


def rows_in(content: bytes) -> int:
    """Lines that are not blank; a mark of the order of bytes is no part of the first."""
    lines = re.split(rb"\r\n|\n|\r", content.removeprefix(BYTE_ORDER_MARK))
    return sum(bool(line.strip(BLANK)) for line in lines)


def drawn() -> list[tuple[bytes, str]]:
    """All examples at once."""
    found: list[tuple[bytes, str]] = []

    @given(files=st.lists(st.tuples(TEXTS, ENDINGS), min_size=FILES // 2, max_size=FILES))
    def draw(files: list[tuple[bytes, str]]) -> None:
        found.extend(files)

    draw()
    return found


def test_every_file_is_rows_or_is_rejected(lakehouse: Lakehouse) -> None:
    """In two runs, so that the fields of one are columns of the next."""
    lakehouse.about("event")
    landing = lakehouse.config.layout.landing("event")
    landing.mkdir(parents=True, exist_ok=True)
    landed: dict[str, int | None] = {}
    files = list(enumerate(drawn()))
    for some in (files[::2], files[1::2]):
        for number, (content, ending) in some:
            path = landing / f"{number}{ending}"
            packed = gzip.compress(content) if ending.endswith(".gz") else content
            path.write_bytes(packed[:-4] if ".torn" in ending else packed)
            rows = rows_in(content) if is_whole(content, ending) else None
            landed[f"landing/event/{path.name}"] = rows
        lakehouse.fill("bronze")
    entries = {entry.path: entry for entry in ledger.read(lakehouse.config.layout)}
    in_bronze = Counter(file for (file,) in lakehouse.rows("bronze.event", "_source_file"))
    for name, expected in landed.items():
        entry = entries[name]
        assert entry.rows == expected
        assert in_bronze[name] == (expected or 0)
        assert entry.state in ((REJECTED,) if expected is None else (INGESTED, ARCHIVED))
        assert bool(entry.why) == (expected is None)
