"""Numbers beyond a double keep their digits, also within documents of many lines."""

from __future__ import annotations

from tests.support.byte_files import audit_findings, land, rows_by_file
from tests.support.lakehouse import Lakehouse, only_activity

NUMBERS = {
    # Items as the file has them, and the columns Device and x of each, and what is rescued.
    '{"Device":1e400}': (None, None, '{"Device":1e400}'),
    '{"Device":1e400,"x":2}': (None, 2.0, '{"Device":1e400,"x":2}'),
    '{"x":-1E+400}': (None, None, '{"x":-1E+400}'),
    '{"Device":"say \\"5\\" \\\\","x":0.1234567890123456789}': (
        'say "5" \\',
        0.12345678901234568,
        None,
    ),
    '{"new":12345678901234567890.1234567}': (None, None, '{"new":12345678901234567890.1234567}'),
    '{"Device":"12345678901234567890","x":7}': ("12345678901234567890", 7.0, None),
}


def test_numbers_of_json_documents_keep_their_digits(lakehouse: Lakehouse) -> None:
    kinds = {"Device": "string", "x": "double"}
    home = only_activity(lakehouse, multi_line=True, schema=kinds, schema_evolution="rescue")
    several = ["12345678901234567890123", '"1e400"', "01e400", "1.e400", "[0.1234567890123456789]"]
    land(
        home,
        {
            "all.json": f"[{', '.join(NUMBERS)}]".encode(),
            "each.json": f"[{several[0]}, {several[1]}, {several[4]}, 5]".encode(),
            "bad.json": f"[1e400, {several[2]}]".encode(),
            "worse.json": f"[1e400, {several[3]}]".encode(),
            "one.json": b'{"Device":1e400}',
        },
    )
    home.fill("bronze")
    rows = rows_by_file(home, "Device", "x", "_rescued_data", "_corrupt_record")
    assert rows["all.json"] == sorted([(*row, None) for row in NUMBERS.values()], key=repr)
    assert {text for *_, text in rows["each.json"]} == {*several[:2], several[4], "5"}
    assert [text for *_, text in rows["bad.json"]] == ["[1e400, 01e400]"]
    assert [text for *_, text in rows["worse.json"]] == ["[1e400, 1.e400]"]
    assert [text for *_, text, _ in rows["one.json"]] == ['{"Device":1e400}']
    assert audit_findings(home) == []
