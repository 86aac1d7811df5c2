"""Hypothesis strategies for input lines: JSON objects, nearly valid JSON and garbage."""

from __future__ import annotations

import json

from hypothesis import strategies as st

NAMES = st.one_of(
    st.sampled_from(["id", "n", "x", "ts", "yes", "at", "lat", "tags", "ID", "At"]),
    *(st.sampled_from(["amount", "prices"]), st.text()),
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
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(-(10**40), 10**40), TIMES),
    *(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.sampled_from(["1", "NaN"])),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=5)  # names may repeat
# Values that json.dumps never writes.
RAW_VALUES = st.sampled_from(
    [
        "1e400",
        "-1E+999",
        "9" * 320,
        r'"\ud800"',
        r'"\u0000?"',
        "-0",
        "1.50",
        "1e-400",
        "1.105",
        "12345678.90",
        '{"a":1,"a":2}',
    ]
)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Return a line with one valid JSON object."""
    ascii_only, comma = draw(st.booleans()), draw(st.sampled_from([",", " ,\t"]))
    fields = [
        f"{json.dumps(name, ensure_ascii=ascii_only)}: {json.dumps(value, ensure_ascii=ascii_only)}"
        for name, value in draw(PAIRS)
    ]
    if draw(st.integers(0, 4)) == 0:
        fields.append(f"{json.dumps(draw(NAMES))}:{draw(RAW_VALUES)}")
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


def _edited(line: bytes, at: int, replacement: bytes, length: int) -> bytes:
    at %= len(line)
    return line[:at] + replacement + line[at + length :]


_FIELDS = st.sampled_from(["", "a.b", "`", "_metadata", "_source_file", "Action", "\u0131d", "ts"])
_WORDS = ["NaN", "Infinity", "-0", "01", "+1", "1e400", "-1e-400", "1e999999999", "9" * 400, "1E5"]
_WORDS += ["9223372036854775808", "-9223372036854775809", "true", "null", "'a'", '"now"', '"24:00"']
_WORDS += [f'"{year}-01-01T00:00:00Z"' for year in ("0001", "9999", "10000", "1582")]
_WORDS += ['"2015-02-30T00:00:00Z"', '"2016-12-31T23:59:60Z"', '"2015-02-23T10:18:54.9581234567Z"']
# Reserved or special field names, and values at the limits of their types.
EDGE_VALUES = st.builds(
    lambda name, value, end: f'{{"id":"p","{name}":{value}{end}'.encode(),
    *(
        _FIELDS,
        st.sampled_from([*_WORDS, "[1,{}]", '{"a":[]}']),
        st.sampled_from(["}", "}", "}}", "} {}"]),
    ),
)
_BYTES = st.sampled_from([b"", *(bytes([byte]) for byte in b'{}[]",:\\ \t019eE+-.tfnulrase/x')])
# JSON with one byte removed, replaced or added; and arbitrary bytes within a string.
NEARLY_JSON = st.one_of(
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


# Objects without line breaks between them; some are invalid.
CONCATENATED = st.lists(
    st.one_of(objects(), objects(), objects(), NEARLY_JSON), min_size=2, max_size=4
).flatmap(
    lambda objects_: st.sampled_from([b"", b" ", b"  ", b","]).map(
        lambda separator: separator.join(objects_)
    )
)


def objects_in(line: bytes) -> int:
    """Count the rows of a line: one for each object that directly follows another.

    One blank between them is allowed. Everything from the first invalid object on is a single row.
    """
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
    """Return a line of `length` bytes."""
    return b'{"id":"' + b"x" * (length - 9) + b'"}'
