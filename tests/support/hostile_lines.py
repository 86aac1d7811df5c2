"""Hostile file contents, and the expected result of each.

The expectations follow RFC 8259, RFC 3339 and arithmetic. The source is `activity`; most cases use
its columns `Device` (string), `Index` (long), `x` (double) and `Recorded_At` (timestamp, or
seconds since 1970).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from medallion.state.ledger import State


@dataclass(frozen=True)
class HostileFile:
    """One file, and the expected content of bronze and the ledger.

    `expected_values` has the values of columns, `rescued_data` is JSON, `raw` has corrupt lines.
    """

    name: str
    content: bytes = b'{"Device":"d"}\n'
    rows: int = 1
    corrupt: int = 0
    rescued: int = 0
    state: str | None = State.INGESTED
    reason: str = ""
    file: str = ""
    source: str = "activity"
    expected_values: Mapping[str, list[Any]] = field(default_factory=dict)
    rescued_data: list[str] | None = None
    raw: list[str | None] | None = None
    modified_at: float | None = None
    make: Callable[[Path], object] | None = None

    @property
    def path(self) -> str:
        """The path in the ledger."""
        return f"landing/{self.source}/{self.file or f'{self.name}.json'}"


def text(written: str) -> bytes:
    return written.encode("utf-8", "surrogatepass")


def good(name: str, content: str | bytes, *devices: str, rows: int = 1, **more: Any) -> HostileFile:
    """Return lines that fit the schema."""
    content = text(content) if isinstance(content, str) else content
    expected_values = {"Device": list(devices)} if devices else {}
    return HostileFile(
        name, content, rows=len(devices) or rows, expected_values=expected_values, **more
    )


def value(name: str, column: str, written: str, expected: Any) -> HostileFile:
    """Return a value that fits its column."""
    return HostileFile(
        name,
        text(f'{{"{column}":{written}}}'),
        expected_values={column: [expected]},
        rescued_data=[],
    )


def rescued_line(name: str, line: str, **expected: Any) -> HostileFile:
    """Return a line of JSON whose only field, or all of whose fields, are rescued."""
    expected_values = {column: [column_value] for column, column_value in expected.items()}
    return HostileFile(
        name, text(line), rescued=1, rescued_data=[line], expected_values=expected_values
    )


def bad(name: str, line: str | bytes) -> HostileFile:
    """Return a line that is no JSON object: kept, and decoded as Latin-1 if it is not UTF-8."""
    content = text(line) if isinstance(line, str) else line
    try:
        raw = content.decode()
    except UnicodeDecodeError:
        raw = content.decode("latin-1")
    return HostileFile(name, content + b"\n", corrupt=1, raw=[raw])


def not_text(name: str, content: bytes, reason: str) -> HostileFile:
    return HostileFile(name, content, rows=0, state=State.REJECTED, reason=reason)


def at(seconds: int) -> str:
    """Format a time as Spark does; the calendar repeats every 400 years of 146,097 days."""
    cycles, rest = divmod(seconds, 146_097 * 86_400)
    time = datetime(1970, 1, 1) + timedelta(seconds=rest)
    year = time.year + 400 * cycles
    return f"{'+' if year > 9999 else ''}{year:04}{time:-%m-%d %H:%M:%S}"


def time(name: str, written: str, seconds: int = 1_519_984_953) -> HostileFile:
    return value(f"time {name}", "Recorded_At", written, at(seconds))


def no_time(name: str, written: str) -> HostileFile:
    return rescued_line(f"time {name}", f'{{"Recorded_At":{written}}}', Recorded_At=None)


A, B, C, D = (f'{{"Device":"{name}"}}' for name in "abcd")
NESTED_100 = "[" * 100 + "]" * 100
MEGABYTES = "m" * 5_000_000

ENCODINGS = [
    good("UTF-8 with BOM", f"\ufeff{A}\n{B}\n", "a", "b"),
    good("BOM alone", "\ufeff", rows=0),
    good("BOM and a blank line", f"\ufeff \n{A}\n", "a"),
    bad("BOM within a line", f" \ufeff{A}"),
    not_text("UTF-16 LE with BOM", f"\ufeff{A}\n".encode("utf-16-le"), "UTF-16"),
    not_text("UTF-16 BE with BOM", f"\ufeff{A}\n".encode("utf-16-be"), "UTF-16"),
    # Split at byte 0A: two lines, and the second half of the last line end.
    HostileFile("UTF-16 LE without BOM", f"{A}\n{B}\n".encode("utf-16-le"), rows=3, corrupt=3),
    bad("Latin-1", '{"Device":"café"}'.encode("latin-1")),
    bad("invalid UTF-8", b'{"Device":"\x80\xfe"}'),
    bad("overlong", b'{"Device":"\xc0\xaf"}'),
    bad("surrogate as UTF-8", b'{"Device":"\xed\xa0\x80"}'),
    bad("UTF-8 truncated within a character", b'{"Device":"\xf0\x9f\x98'),
    bad("one byte", b"\xf0"),
    good("beyond the BMP", '{"Device":"😀\\ud83d\\ude00"}', "😀😀"),
    good("replacement character", '{"Device":"\ufffd?"}', "\ufffd?"),
    good(
        "line ends of Unicode only", '{"Device":"a\u2028b\u2029c\u0085d"}', "a\u2028b\u2029c\u0085d"
    ),
    bad("half a character", r'{"Device":"\ud800"}'),
]
LINE_ENDS = [
    good("LF", f"{A}\n{B}\n", "a", "b"),
    good("CR LF", f"{A}\r\n{B}\r\n", "a", "b"),
    good("lone CR", f"{A}\r{B}\r", "a", "b"),
    good("none at the end", f"{A}\n{B}", "a", "b"),
    good("mixed ends", f"{A}\r\n{B}\n{C}\r{D}\n\r", "a", "b", "c", "d"),
    good("blank lines", f"\n \n\t\n\v\n\f\n \t\r\n{A}\n\n\r\r", "a"),
    good("only blank lines", "\n\r\n \n\t", rows=0),
    HostileFile(
        "blanks of Unicode", text("\u00a0\n\u3000\n\u2003\n\u200b\n\u0085"), rows=5, corrupt=5
    ),
    HostileFile("separators of ASCII", b"\x1c\n\x1d\n\x1e\n\x1f\n", rows=4, corrupt=4),
    HostileFile("NUL lines", b"\0\n\0\0\n", rows=2, corrupt=2, raw=["\0", "\0\0"]),
    good("two objects in one line", A + B, "a", "b"),
    good("objects without line breaks", f"{A}{B} {C}\n{D}", "a", "b", "c", "d"),
    HostileFile(
        "objects without line breaks, one truncated",
        text(f'{A}{{"Device":{B}{C}'),
        rows=2,
        corrupt=1,
        raw=[None, f'{{"Device":{B}{C}'],
    ),
    HostileFile("an object over lines", b'{"Device":\n"a"\n}\n', rows=3, corrupt=3),
]
SINGLE_VALUES = [
    *(bad(f"lone {one}", one) for one in ("42", '"text"', "null", "true", "[]", "{")),
    bad("array of an object", f"[{A}]"),
    good("empty object", "{}", rescued_data=[]),
]
NOT_JSON = [
    *(
        bad(f"number {written}", f'{{"x":{written}}}')
        for written in ("007", "+1", ".5", "5.", "0x10", "1e", "--1", "1_000")
    ),
    bad("comment", f"{A}//"),
    bad("comment within", '{"Device":/**/"a"}'),
    bad("single quotes", "{'Device':'a'}"),
    bad("no quotes", "{Device:1}"),
    bad("comma at the end", '{"Device":"a",}'),
    bad("wrong escape", r'{"Device":"\x41"}'),
    bad("NUL in a text", '{"Device":"a\0b"}'),
    bad("tab in a text", '{"Device":"a\tb"}'),
    bad("escape sequence of a terminal", '{"Device":"\x1b[31m"}'),
]
VALUES = [
    value("NUL escaped", "Device", r'"a\u0000b"', "a\0b"),
    value("DEL", "Device", '"\x7f"', "\x7f"),
    value("-0 for a whole", "Index", "-0", 0),
    value("-0 for a fraction", "x", "-0", 0.0),
    value("largest long", "Index", "9223372036854775807", 9_223_372_036_854_775_807),
    value("too small for a double", "x", "1e-400", 0.0),
    value("whole for a fraction", "x", "1E+2", 100.0),
    value("whole beyond a double", "x", "9007199254740993", 9_007_199_254_740_992.0),
    value("a double as JavaScript has it", "x", "1152921504606847000", 2.0**60),
    value("megabytes", "Device", f'"{MEGABYTES}"', MEGABYTES),
    value("100 levels in a text", "Device", NESTED_100, NESTED_100),
    rescued_line("beyond long", '{"Index":9223372036854775808}', Index=None),
    rescued_line("fraction for a whole", '{"Index":1.5}', Index=None),
    rescued_line("1e400", '{"x":1e400}', x=None),
    rescued_line("-1e400", '{"x":-1e400}', x=None),
    rescued_line("400 digits", f'{{"x":{"9" * 400}}}', x=None),
    rescued_line("1e400 for a text", '{"Device":1e400}', Device=None),
    rescued_line("1e400 unknown", '{"huge":[1e400]}'),
    rescued_line("38 digits unknown", f'{{"long":{"1234567890" * 4:.38}}}'),
    rescued_line("NaN as text", '{"x":"NaN"}', x=None),
    rescued_line("number as text", '{"x":"1.5"}', x=None),
    rescued_line("empty text for a number", '{"x":""}', x=None),
    rescued_line("100 levels", f'{{"deep":{NESTED_100}}}'),
    # These once crashed the parser thread if types were inferred.
    *(rescued_line(f"{n} objects", '{"in":' * n + "1" + "}" * n) for n in (6, 300)),
    rescued_line("megabytes unknown", f'{{"long":"{MEGABYTES}"}}'),
    # RFC 8259, section 9: a parser may have limits. Lines beyond them are kept completely.
    bad("1,001 levels", f'{{"deep":{"[" * 1001}{"]" * 1001}}}'),
    bad("100,000 levels", '{"deep":' * 100_000),
    bad("number of 2,000 digits", f'{{"x":{"9" * 2000}}}'),
]
TIMES = [
    time("with Z", '"2018-03-02T10:02:33Z"'),
    time("without zone", '"2018-03-02T10:02:33"'),
    time("with a blank", '"2018-03-02 10:02:33"'),
    time("offset", '"2018-03-02T11:02:33+01:00"'),
    time("offset without colon", '"2018-03-02T11:02:33+0100"'),
    time("epoch seconds", "1519984953"),
    time("before 1970", "-1", -1),
    time("zero", "0", 0),
    time("date only", '"2018-03-02"', 1_519_984_953 - 36_153),  # 10:02:33 is second 36,153
    time("leap day", '"2016-02-29T00:00:00Z"', 1_456_704_000),
    time("zeros beyond microseconds", '"2018-03-02T10:02:33.000000000Z"'),
    time("last second", "253402300799", 253_402_300_799),
    no_time("year 10000", '"10000-01-01T00:00:00Z"'),
    no_time("second of year 10000", "253402300800"),
    no_time("second of year 0", "-62135596801"),
    no_time("long before", "-9223372036854"),
    no_time("epoch milliseconds", "1519984953000"),  # as seconds: the year 50136
    no_time("a tenth of a nanosecond", '"2018-03-02T10:02:33.0000000001Z"'),
    no_time("epoch microseconds", "1519984953000000"),  # as seconds: beyond the range of timestamps
    no_time("first second too far", "9223372036855"),
    no_time("epoch with a fraction", "1519984953.5"),
    no_time("epoch as text", '"1519984953"'),
    no_time("leap second", '"2016-12-31T23:59:60Z"'),
    no_time("29 February", '"2018-02-29T10:02:33Z"'),
    no_time("month 13", '"2018-13-01T10:02:33Z"'),
    no_time("offset beyond a day", '"2018-03-02T10:02:33+25:00"'),
    no_time("nonsense", '"yesterday"'),
    no_time("now", '"now"'),
    no_time("blank", '" "'),
    no_time("of day only", '"10:02:33"'),  # must not become a time on the day of the run
    no_time("true", "true"),
]
UNUSUAL_FIELDS = [
    "",
    " ",
    "a b",
    "a,b",
    "a;b",
    "a=b",
    "a\tb",
    "a\nb",
    "{a}",
    "(a)",
    "a.b",
    "a`b",
    'a"b',
]
UNUSUAL_FIELDS += ["a'b", "a\\b", "<a>", "a:b", "a?b", "*", "$.a", "\0", "😀", "k" * 1000]
RESERVED = ["_rescued_data", "_corrupt_record", "_source_file", "_ingested_at", "_failed_rules"]
RESERVED += ["_change_type", "_commit_version", "_conflict", "_row", "_keys", "_metadata", "value"]
FIELDS = [
    rescued_line("key twice", '{"Device":"a","Device":"b"}'),
    rescued_line("key twice within", '{"new":{"a":1,"a":2}}'),
    rescued_line("keys by case", '{"device":"a","DEVICE":"b"}', Device=None),
    rescued_line("new keys by case", '{"level":1,"LEVEL":"two"}'),
    rescued_line("new keys by case within", '{"inner":{"a":1,"A":2}}'),
    *(rescued_line(f"field {n}", json.dumps({f: n})) for n, f in enumerate(UNUSUAL_FIELDS)),
    *(
        rescued_line(f"field {n} within", json.dumps({f"in{n}": {f: n}}))
        for n, f in enumerate(UNUSUAL_FIELDS)
    ),
    *(rescued_line(f"reserved {name}", json.dumps({name: 1})) for name in RESERVED),
    rescued_line("5,000 fields", json.dumps({f"field_{n}": n for n in range(5000)})),
    rescued_line(
        "5,000 fields within", json.dumps({"wide": {f"field_{n}": n for n in range(5000)}})
    ),
]
CONTENTS = [*ENCODINGS, *LINE_ENDS, *SINGLE_VALUES, *NOT_JSON, *VALUES, *TIMES, *FIELDS]
