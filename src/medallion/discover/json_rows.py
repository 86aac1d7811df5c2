"""The rows in the text of a JSON file: lines, documents, or the elements of an array in one."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from medallion.discover.changes import recognize
from medallion.discover.columns import Row, infer_columns, key_candidates, time_candidates
from medallion.errors import UsageError

MAX_ROWS = 2000
_BLANK = re.compile(r"[ \t\r\n]*")  # `\s` would skip the separators of a JSON text sequence
_LINE_BREAK = re.compile(r"\r\n?|\n")  # not the others of str.splitlines: Spark knows only these
_BULK_ACTIONS = ("index", "create", "update", "delete")
_MOST_ITEMS = 20  # of one row, such as an order; an export has more
_LEAST_RECORDS = 5  # that show that the values of an object are rows


@dataclass(frozen=True)
class Description:
    """The format, settings and first rows of a file.

    Attributes:
        format: the source's format.
        rows: the first rows.
        settings: further keys of the source, such as `options` and `record_path`.
        reasons: the reasons of the decisions, for the user.
        choices: the decisions left to the user.
    """

    format: str
    rows: list[Row]
    settings: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)


def describe_lines(text: str, is_complete: bool, path: Path) -> Description | None:
    """Return a description if nearly all lines are JSON objects, and each is a row.

    Args:
        text: the start of the file.
        is_complete: False if the last line may be incomplete.
        path: the file, for messages.

    Raises:
        UsageError: half of the lines are not rows.
    """
    lines = [line for line in _LINE_BREAK.split(text) if line.strip()]
    lines = lines[: MAX_ROWS if is_complete else -1][:MAX_ROWS]
    rows = [row for row in map(_parse_line, lines) if isinstance(row, dict)]
    if len(lines) < 2 or len(rows) * 10 < len(lines) * 9 or _shared_array(rows):
        return None
    if all(len(row) == 1 and {*row} <= {*_BULK_ACTIONS} for row in rows[::2]):
        reason = "a bulk request of Elasticsearch: remove the lines of actions, such as the first"
        raise UsageError(f"{path}: {reason}.")
    return Description("json", rows, reasons=["each line is a JSON object"])


def describe_documents(text: str, is_complete: bool, path: Path) -> Description | None:
    """Return the description of JSON documents, or of an array; None if there is none.

    Raises:
        UsageError: its rows are in a layout that no setting reads.
    """
    values, rest = _parse_values(text)
    if values and is_complete and rest.startswith(","):
        raise UsageError(f"{path}: commas between its JSON objects: put all of them in [ ].")
    if len(values) == 1 and (layout := _unreadable_layout(values[0])):
        advice = "write each row as an object, with one object on each line"
        raise UsageError(f"{path}: {layout}: {advice}.")
    if len(values) == 1 and isinstance(values[0], dict):
        return _describe_document(values[0], not _LINE_BREAK.search(text.strip()))
    records = [row for each in values for row in (each if isinstance(each, list) else [each])]
    rows = [row for row in records[:MAX_ROWS] if isinstance(row, dict)]
    if not any(isinstance(each, list) for each in values) and (array := _shared_array(rows)):
        elements = list(chain.from_iterable(dict(_object_arrays(row))[array] for row in rows))
        reason = f"JSON documents, whose rows are the elements of {array}"
        return Description("json", elements[:MAX_ROWS], {"record_path": array}, [reason])
    reasons = ["JSON documents of several lines, or a JSON array"]
    return Description("json", rows, {"multi_line": True}, reasons) if rows else None


def _describe_document(document: Row, is_line: bool) -> Description:
    """Return the description of one JSON object; the elements of an array in it may be the rows.

    An object with a key, a time and few elements is a row, such as an order with its items.

    Args:
        document: the object.
        is_line: whether it is in one line.
    """
    arrays = sorted(_object_arrays(document), key=lambda each: -len(each[1]))
    arrays = [] if recognize([document]).reason else arrays
    columns, _ = infer_columns([document], True)
    has_identity = key_candidates(columns, 1) and time_candidates(columns, 1)
    if not arrays or (has_identity and len(arrays[0][1]) <= _MOST_ITEMS):
        choices = [
            f"record_path: {path}, to have a row for each of its elements" for path, _ in arrays
        ]
        settings = {} if is_line else {"multi_line": True}
        return Description("json", [document], settings, ["one JSON object"], choices)
    (path, rows), *others = arrays
    reasons = [f"one JSON document, whose rows are the {len(rows)} elements of {path}"]
    own = [name for name, value in document.items() if not isinstance(value, dict | list)]
    if own:
        fields = ", ".join(own[:5])
        reasons.append(f"record_fields: [{fields}] would repeat fields of the document on each row")
    choices = [f"record_path: {path} or {other}, both arrays of objects" for other, _ in others]
    return Description("json", rows[:MAX_ROWS], {"record_path": path}, reasons, choices)


def same_json_format(descriptions: Sequence[Description]) -> list[Description]:
    """Return descriptions with the same settings, if one way of reading fits all JSON files.

    `multi_line` also reads lines, and a document may have no element at the record path.
    """
    if any(each.format != "json" for each in descriptions):
        return list(descriptions)
    if array := next((p for d in descriptions if (p := d.settings.get("record_path"))), None):
        return [_at_record_path(each, array) for each in descriptions]
    if any("multi_line" in each.settings for each in descriptions):
        return [replace(d, settings={**d.settings, "multi_line": True}) for d in descriptions]
    return list(descriptions)


def _at_record_path(description: Description, array: str) -> Description:
    """Return the description of a document without elements at the path; others unchanged."""
    settings, rows = description.settings, description.rows
    if "record_path" in settings or len(rows) != 1 or _at(rows[0], array):
        return description
    others = {key: value for key, value in settings.items() if key != "multi_line"}
    return replace(description, rows=[], settings={**others, "record_path": array})


def _at(document: Row, path: str) -> Any:
    """Return the value at a dotted path; not empty if there is no such field."""
    value: Any = document
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return path
        value = value[name]
    return value


def _shared_array(rows: Sequence[Row]) -> str | None:
    """Return the name of the array of objects that is the only field of all rows, if any."""
    names = {next(iter(row)) if len(row) == 1 else None for row in rows}
    name = names.pop() if len(names) == 1 else None
    return name if name and all(dict(_object_arrays(row)).get(name) for row in rows) else None


def _object_arrays(value: Row, path: str = "") -> Iterator[tuple[str, list[Row]]]:
    """Yield the arrays of objects in an object, with their dotted paths."""
    for name, item in value.items():
        if "." in name:  # no record path can name it
            continue
        if isinstance(item, dict):
            yield from _object_arrays(item, f"{path}{name}.")
        elif isinstance(item, list) and item and all(isinstance(each, dict) for each in item):
            yield f"{path}{name}", item


def _unreadable_layout(value: Any) -> str | None:
    """Return what is wrong with a JSON value whose rows are not objects in an array, if any."""
    if isinstance(value, list):
        arrays = [each for each in value if isinstance(each, list)]
        are_rows = all(not isinstance(each, dict | list) for array in arrays for each in array[:1])
        return "its rows are arrays" if len(arrays) > 1 and are_rows else None
    if not isinstance(value, dict):
        return None
    objects = [each for each in value.values() if isinstance(each, dict)]
    if len(objects) == len(value) and len({tuple(each) for each in objects}) == 1:
        if len(objects) >= _LEAST_RECORDS:
            return f"its {len(objects)} rows are values of one object, by key"
        if len(objects[0]) > 1 and all(map(str.isdigit, objects[0])):
            return "its rows are spread over objects, one for each column"
    lists = [each for each in value.values() if isinstance(each, list)]
    scalars = [each for each in lists if not any(isinstance(v, dict | list) for v in each)]
    lengths = {len(each) for each in scalars}
    if len(scalars) > 1 and len(lengths) == 1 and lengths.pop() >= _LEAST_RECORDS:
        return "its rows are spread over arrays, one for each column"
    inner = [*objects, *(each for each in lists if len(each) >= _LEAST_RECORDS)]
    return next(filter(None, map(_unreadable_layout, inner)), None)


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _parse_values(text: str) -> tuple[list[Any], str]:
    """Return the JSON values that follow each other in a text, and the start of what is left."""
    decoder, at, values = json.JSONDecoder(), 0, list[Any]()
    while (blank := _BLANK.match(text, at)) and blank.end() < len(text):
        try:
            value, at = decoder.raw_decode(text, blank.end())
        except (ValueError, RecursionError):
            return values, text[blank.end() :][:1]
        values.append(value)
    return values, ""
