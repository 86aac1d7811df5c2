"""Rows within JSON documents: objects, or the elements of an array, each as it is written."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring
from typing import NamedTuple

from medallion.ingest.parsing.json_text import MAX_SPLIT_LEVELS
from medallion.storage.text import reject_nan

# Numbers stay strings: Python reads none of more than 4,300 digits.
DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=reject_nan)
_BLANKS = re.compile(r"[ \t\r\n]*")
# The start of an object that is a row of its own, after another one.
OBJECT_IN_LINE, _OBJECT_IN_DOCUMENT = re.compile(r" ?\{"), re.compile(r"[ \t\r\n]*\{")
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}"]', re.DOTALL)


def bracket_levels(text: str, at: int = 0) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the brackets and strings of JSON from a position on, each with the level after it.

    A quote that is not closed comes alone.
    """
    level = 0
    for sign in _BRACKETS.finditer(text, at):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign[0], 0)
        yield level, sign


def last_level(line: str) -> int:
    """Return the number of brackets that a line of JSON opens, less those it closes."""
    levels = [level for level, _ in bracket_levels(line)]
    return levels[-1] if levels else 0


def document_rows(text: str) -> list[str]:
    """Return the items of an array, or the objects that follow one another in a text.

    Any other text is one row.
    """
    start = _skip_blanks(text, 0)
    if text[start] != "[":
        return split_objects(text, _OBJECT_IN_DOCUMENT)
    try:
        end = DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return [text]
    is_alone = _skip_blanks(text, end) == len(text)
    return [text[a:b] for a, b in _items(text, start)] if is_alone else [text]


def split_objects(text: str, next_object: re.Pattern[str]) -> list[str]:
    """Return the objects that follow one another in a text.

    The text from the first object on whose brackets or quotes do not match is the last one.

    Args:
        text: a line or document.
        next_object: matches the start of an object that is a row of its own.
    """
    rows, at = list[str](), 0
    while (start := next_object.match(text, at)) and (end := _object_end(text, start.end() - 1)):
        if not next_object.match(text, end):
            break
        rows.append(text[at:end])
        at = end
    return [*rows, text[at:]]


def _object_end(text: str, at: int) -> int | None:
    """Return where the object that starts here ends; None if brackets or quotes do not match."""
    for level, sign in bracket_levels(text, at):
        if sign[0] == '"' or level > MAX_SPLIT_LEVELS:
            return None
        if level == 0:
            return sign.end() if sign[0] == "}" else None
    return None


class RecordPaths(NamedTuple):
    """Where the rows of a JSON document are.

    Attributes:
        record: The path of the array whose elements are the rows.
        fields: The paths of the fields that repeat on each row, by name.
    """

    record: Sequence[str]
    fields: Mapping[str, Sequence[str]]

    def elements(self, text: str) -> list[str] | None:
        """Return the rows of the JSON documents in a text, each as it is written.

        Returns:
            The rows; None if a document is not valid, or has no array at the path.
        """
        rows: list[str] = []
        at = _skip_blanks(text, 0)
        try:
            while at < len(text):
                end = DECODER.raw_decode(text, at)[1]
                array = _find(text, at, self.record)
                if array is None or text[array[0]] != "[":
                    return None
                fields = self._repeated_fields(text, at)
                rows += [_with_fields(text[a:b], fields) for a, b in _items(text, array[0])]
                at = _skip_blanks(text, end)
        except (ValueError, RecursionError):
            return None
        return rows

    def _repeated_fields(self, text: str, at: int) -> str:
        """Return the repeated fields of the document that starts here, as members of an object."""
        spans = ((name, _find(text, at, path)) for name, path in self.fields.items())
        return ",".join(f"{encode_basestring(n)}:{text[s[0] : s[1]]}" for n, s in spans if s)


def _with_fields(element: str, fields: str) -> str:
    if not fields or element[0] != "{":
        return element
    is_empty = element[_skip_blanks(element, 1)] == "}"
    return f"{{{fields}{'' if is_empty else ','}{element[1:]}"


def _skip_blanks(text: str, at: int) -> int:
    """Return the position after blanks."""
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _find(text: str, at: int, path: Sequence[str]) -> tuple[int, int] | None:
    """Return where the value at a path starts and ends; None if the document lacks it.

    Args:
        text: A text with a valid document.
        at: Where the document starts.
        path: The names of nested fields.
    """
    span = (at, at)
    for name in path:
        spans = [(start, end) for key, start, end in _members(text, span[0]) if key == name]
        if not spans:
            return None
        span = spans[-1]
    return span


def _members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each member of the object that starts here, and where its value is."""
    if text[at] == "{":
        for start, end in _items(text, at):
            name, colon = DECODER.raw_decode(text, start)
            yield name, _skip_blanks(text, _skip_blanks(text, colon) + 1), end


def _items(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Yield where each item of the array, or member of the object, that starts here is."""
    is_object = text[at] == "{"
    at = _skip_blanks(text, at + 1)
    while text[at] not in "]}":
        start = at
        end = DECODER.raw_decode(text, start)[1]
        if is_object:
            end = DECODER.raw_decode(text, _skip_blanks(text, _skip_blanks(text, end) + 1))[1]
        yield start, end
        at = _skip_blanks(text, end)
        at = _skip_blanks(text, at + 1) if text[at] == "," else at
