"""Numbers outside the range of a double keep their digits, also in multi-line documents."""

from __future__ import annotations

from tests.support.byte_files import audit_findings, land, rows_by_file
from tests.support.lakehouse import Lakehouse, only_rows

NUMBERS = {
    # An item of the file: the columns Device and x, and the rescued data.
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


def test_numbers_in_json_documents_keep_their_digits(lakehouse: Lakehouse) -> None:
    schema = {"Device": "string", "x": "double"}
    home = only_rows(lakehouse, multi_line=True, schema=schema, schema_evolution="rescue")
    items = ["12345678901234567890123", '"1e400"', "01e400", "1.e400", "[0.1234567890123456789]"]
    land(
        home,
        {
            "all.json": f"[{', '.join(NUMBERS)}]".encode(),
            "each.json": f"[{items[0]}, {items[1]}, {items[4]}, 5]".encode(),
            "bad.json": f"[1e400, {items[2]}]".encode(),
            "worse.json": f"[1e400, {items[3]}]".encode(),
            "one.json": b'{"Device":1e400}',
        },
    )
    home.fill("bronze")
    rows = rows_by_file(home, "Device", "x", "_rescued_data", "_corrupt_record")
    assert rows["all.json"] == sorted([(*row, None) for row in NUMBERS.values()], key=repr)
    assert {text for *_, text in rows["each.json"]} == {*items[:2], items[4], "5"}
    assert [text for *_, text in rows["bad.json"]] == ["[1e400, 01e400]"]
    assert [text for *_, text in rows["worse.json"]] == ["[1e400, 1.e400]"]
    assert [text for *_, text, _ in rows["one.json"]] == ['{"Device":1e400}']
    assert audit_findings(home) == []
