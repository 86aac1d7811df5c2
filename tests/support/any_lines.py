"""Lines that nobody thought of: objects of JSON, what is nearly one, and garbage (hypothesis)."""

from __future__ import annotations

import json

from hypothesis import strategies as st

NAMES = st.one_of(
    st.sampled_from(["id", "n", "x", "ts", "yes", "at", "lat", "tags", "ID", "At"]), st.text()
)
ZONES = st.sampled_from(["", "Z", "+01:00", "-11:30", "+0100"])
FRACTIONS = st.sampled_from(["", ".5", ".123456", ".1234560", ".1234567"])
TIMES = st.one_of(
    *(st.datetimes().map(str), st.times().map(str), st.dates().map(str)),
    st.builds(
        lambda time, fraction, zone: f"{time.replace(microsecond=0).isoformat()}{fraction}{zone}",
        *(st.datetimes(), FRACTIONS, ZONES),
    ),
)
PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(-(10**40), 10**40), TIMES),
    *(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.sampled_from(["1", "NaN"])),
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=5)  # a name may be there twice
# What json.dumps never writes.
WRITTEN = st.sampled_from(
    [
        "1e400",
        "-1E+999",
        "9" * 320,
        r'"\ud800"',
        r'"\u0000?"',
        "-0",
        "1.50",
        "1e-400",
        '{"a":1,"a":2}',
    ]
)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """A line of valid JSON: an object."""
    ascii_only, comma = draw(st.booleans()), draw(st.sampled_from([",", " ,\t"]))
    fields = [
        f"{json.dumps(name, ensure_ascii=ascii_only)}: {json.dumps(value, ensure_ascii=ascii_only)}"
        for name, value in draw(PAIRS)
    ]
    if draw(st.integers(0, 4)) == 0:
        fields.append(f"{json.dumps(draw(NAMES))}:{draw(WRITTEN)}")
    return f"{{{comma.join(fields)}}}".encode()


def _without_ends(line: bytes) -> bytes:
    return line.replace(b"\n", b"").replace(b"\r", b"")


GARBAGE = st.one_of(
    st.binary(max_size=30),
    st.text(max_size=30).map(str.encode),
    objects().flatmap(lambda line: st.integers(0, len(line)).map(lambda end: line[:end])),
    st.tuples(objects(), st.sampled_from([b"}", b",", b"\0", b"{}", b"\xff"])).map(b"".join),
    VALUES.map(lambda value: json.dumps(value).encode()),
).map(_without_ends)
ANY_LINES = st.one_of(objects(), objects(), GARBAGE)


def _edited(line: bytes, at: int, other: bytes, length: int) -> bytes:
    at %= len(line)
    return line[:at] + other + line[at + length :]


_FIELDS = st.sampled_from(["", "a.b", "`", "_metadata", "_source_file", "Action", "\u0131d", "ts"])
_WORDS = ["NaN", "Infinity", "-0", "01", "+1", "1e400", "-1e-400", "1e999999999", "9" * 400, "1E5"]
_WORDS += ["9223372036854775808", "-9223372036854775809", "true", "null", "'a'", '"now"', '"24:00"']
_WORDS += [f'"{year}-01-01T00:00:00Z"' for year in ("0001", "9999", "10000", "1582")]
_WORDS += ['"2015-02-30T00:00:00Z"', '"2016-12-31T23:59:60Z"', '"2015-02-23T10:18:54.9581234567Z"']
# Names that others have a use for, and values that are none or at an end of what there is.
ODD = st.builds(
    lambda name, value, end: f'{{"id":"p","{name}":{value}{end}'.encode(),
    *(
        _FIELDS,
        st.sampled_from([*_WORDS, "[1,{}]", '{"a":[]}']),
        st.sampled_from(["}", "}", "}}", "} {}"]),
    ),
)
_BYTES = st.sampled_from([b"", *(bytes([byte]) for byte in b'{}[]",:\\ \t019eE+-.tfnulrase/x')])
# JSON but for a byte that is not there, or is another, or one too many; and any bytes as a text.
NEARLY = st.one_of(
    st.builds(_edited, objects(), st.integers(0, 2**16), _BYTES, st.integers(0, 2)),
    st.binary(max_size=9).map(lambda text: b'{"id":"' + text + b'"}'),
).map(_without_ends)
DEEP = st.builds(
    lambda depth, pair, is_closed: (
        b'{"id":"d","deep":' + pair[0] * depth + b"1" + pair[1] * depth * is_closed + b"}"
    ),
    st.sampled_from([3, 30, 90, 300, 1200, 9000]),
    st.sampled_from([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"b":', b"}]")]),
    st.sampled_from([True, True, True, False]),
)


# Objects without line breaks between them, some of them broken.
SEVERAL = st.lists(
    st.one_of(objects(), objects(), objects(), NEARLY), min_size=2, max_size=4
).flatmap(
    lambda some: st.sampled_from([b"", b" ", b"  ", b","]).map(lambda between: between.join(some))
)


def objects_in(line: bytes) -> int:
    """The rows of a line, letter by letter: an object ends where its brackets match, and another
    one follows it, behind one blank at most; from the first broken one on, all is one row."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return 1
    rows, at = 1, 0
    while (end := _end(text, at + text.startswith(" ", at))) is not None:
        if text[end : end + 1] != "{" and text[end : end + 2] != " {":
            break
        rows, at = rows + 1, end
    return rows


def _end(text: str, at: int) -> int | None:
    if text[at : at + 1] != "{":
        return None
    level, is_string, is_escaped = 0, False, False
    for index in range(at, len(text)):
        letter = text[index]
        if is_string:
            is_string = is_escaped or letter != '"'
            is_escaped = letter == "\\" and not is_escaped
            continue
        is_string = letter == '"'
        level += (letter in "[{") - (letter in "]}")
        if level > 100:
            return None
        if level == 0:
            return index + 1 if letter == "}" else None
    return None


def padded(length: int) -> bytes:
    """A line of so many bytes."""
    return b'{"id":"' + b"x" * (length - 9) + b'"}'
