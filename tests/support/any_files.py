"""Files that nobody thought of, from a seed, and what has to become of each.

What is expected is counted here, on the bytes before they were packed, by ten lines that share
nothing with the code under test.
"""

from __future__ import annotations

import bz2
import gzip
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

LIMIT = 1 << 16  # the longest line, in bytes
_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".GZ": lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:]),
}
_JSON = b'{}[]",:\\ \t0123456789eE+-.tfnulrase/'
_NAMES = "abcXYZ0189 -+~!#$%&'()*,;=@[]{}?`^|<>\"\\äß名😀é\t\x01"
_WORDS = ["NaN", "Infinity", "-0", "01", "1e400", "-1e-400", "9" * 400, "1E5", "0.1" * 9, "+1"]
_WORDS += ["9223372036854775808", "-9223372036854775809", "1e999999999", "true", "null", "'a'"]
_TIMES = ["2015-02-23T10:18:54.958Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]
_TIMES += ["10000-01-01T00:00:00Z", "1582-10-10T00:00:00Z", "2015-02-30T00:00:00Z", "-1", "now"]
_TIMES += ["2015-02-23T10:18:54.9581234567Z", "1e18", "2016-12-31T23:59:60Z", "24:00", ""]
_FIELDS = ["", "a.b", "`", "_metadata", "index", "\u0131ndex"]
# What a file may begin with that is told to be no text.
_SIGNS = (b"\x1f", b"\x28", b"PK", b"Obj", b"\x89", b"\xff", b"\xfe", b"%", b"\x7f", b"B", b"O")


@dataclass(frozen=True)
class AnyFile:
    """A file; `rows` is None where it must be put aside, -1 where either is right."""

    name: str
    content: bytes
    rows: int | None


def any_files(seed: int, number: int) -> list[AnyFile]:
    """So many files of different names."""
    random = Random(seed)
    made: dict[str, AnyFile] = {}
    while len(made) < number:
        file = _file(random, len(made))
        made[file.name] = file
    return list(made.values())


def _file(random: Random, index: int) -> AnyFile:
    text = _text(random)
    rows = -1 if text.startswith(_SIGNS) else _rows(text)
    content, codec = text, ""
    if random.random() < 0.4:
        codec = random.choice(list(_PACK))
        content = _PACK[codec](text)
        if random.random() < 0.3:
            content, rows = _spoilt(random, content, codec, text)
    elif random.random() < 0.05:
        codec, rows = random.choice([".lz4", ".snappy"]), None
    letters = "".join(random.choice(_NAMES) for _ in range(random.choice([0, 1, 5, 20])))
    bad = random.choice([":", "\n"]) if random.random() < 0.03 else ""
    return AnyFile(f"{index}{letters}{bad}.json{codec}", content, None if bad else rows)


def _spoilt(random: Random, content: bytes, codec: str, text: bytes) -> tuple[bytes, int | None]:
    """Torn, packed twice, not packed at all, or with something behind it."""
    kind = random.choice(["torn", "twice", "not packed", "garbage"])
    if kind == "torn":
        return content[: random.randrange(2, len(content))], -1  # a member may be whole
    if kind == "twice":
        # What is in it is packed still: that is told where it is certain, else it is lines.
        return _PACK[codec](content), None if codec.lower() == ".gz" else -1
    if kind == "not packed":
        return text, None if text else 0
    return content + b"garbage", -1


def _rows(text: bytes) -> int | None:
    """Lines that are not blank; None where one is too long."""
    lines = re.split(rb"\r\n|\r|\n", text.removeprefix(b"\xef\xbb\xbf"))
    raw = re.split(rb"\r\n|\r|\n", text)
    if any(len(line) > LIMIT for line in raw):
        return None
    return sum(1 for line in lines if line.strip(b" \t\r\n\v\f"))


def _text(random: Random) -> bytes:
    lines = [_line(random) for _ in range(random.choice([0, 1, 1, 3, 10, 40]))]
    end = random.choice([b"\n", b"\n", b"\n", b"\r\n", b"\r"])
    start = b"\xef\xbb\xbf" if random.random() < 0.1 else b""
    return start + end.join(lines) + random.choice([end, end, b""])


def _line(random: Random) -> bytes:
    made = random.choice(_LINES)(random)
    return made if isinstance(made, bytes) else made.encode("utf-8", "surrogatepass")


def _recording(random: Random, **more: Any) -> dict[str, Any]:
    return {
        "Recorded_At": f"2015-02-23T10:18:{random.randrange(60):02}.{random.randrange(1000):03}Z",
        "Device": f"nexus4_{random.randrange(3)}",
        "Index": random.randrange(10**6),
        "User": random.choice("abc"),
        "x": random.random(),
        **more,
    }


def _good(random: Random) -> str:
    return json.dumps(_recording(random), ensure_ascii=random.random() < 0.5)


def _almost(random: Random) -> bytes:
    line = bytearray(_good(random).encode())
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(max(len(line), 1))
        how = random.randrange(4)
        if how == 0:
            del line[at : at + 1]
        elif how == 1:
            line.insert(at, random.choice(_JSON))
        elif how == 2:
            line[at : at + 1] = [random.choice(_JSON)]
        else:
            del line[at:]
            line += b"x"
    return bytes(line)


def _with_value(random: Random) -> str:
    """A field of any name with a value as it stands."""
    field = random.choice(
        ["Index", "x", "Device", "Recorded_At", "", "a.b", "`", "_metadata", "\u0131"]
    )
    value = random.choice([*_WORDS, *(json.dumps(time) for time in _TIMES), "[1,{}]", '{"a":[]}'])
    return _good(random)[:-1] + f', "{field}": {value}' + random.choice(["}", "}", "}}", "} {}"])


def _deep(random: Random) -> str:
    depth = random.choice([3, 30, 90, 300, 1200, 9000])
    start, end = random.choice([("[", "]"), ('{"a":', "}"), ('[{"b":', "}]")])
    closed = end * depth if random.random() < 0.8 else ""
    return '{"Device": "d", "deep": ' + start * depth + "1" + closed + "}"


def _characters(random: Random) -> str:
    text = "".join(chr(random.randrange(1, 0x110000)) for _ in range(random.randrange(1, 40)))
    text = re.sub("[\r\n]", " ", text)
    escaped = json.dumps(text)[1:-1]
    return '{"Device": "' + random.choice([text, escaped, escaped[:-1]]) + '"}'


def _bytes(random: Random) -> bytes:
    return random.randbytes(random.randrange(1, 200)).translate(None, b"\r\n")


def _long(random: Random) -> str:
    length = random.choice(
        [LIMIT - 1, LIMIT, LIMIT, LIMIT + 1] if random.random() < 0.2 else [9000]
    )
    start = '{"Device": "'
    return start + "x" * (length - len(start) - 2) + '"}'


def _odd(random: Random) -> str:
    return random.choice(["", " ", "\t\v\f", "null", "[]", "{}", '"a"', "1", "{", "}", "\x00", "#"])


_LINES: list[Callable[[Random], str | bytes]] = [
    _good,
    _good,
    _almost,
    _almost,
    _with_value,
    _with_value,
    _deep,
    _characters,
    _bytes,
    _long,
    _odd,
]
