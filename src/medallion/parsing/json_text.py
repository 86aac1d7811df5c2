"""SQL over a column of JSON text: whether it is JSON at all, and what shows without parsing it."""

from __future__ import annotations

from collections.abc import Iterable

# RFC 8259 only: what Spark would let pass besides is not JSON to the next reader.
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
# Half a character, which UTF-8 has no bytes for, is always written so; and so may a whole one be.
HALVES = r"(contains(value, r'\ud') or contains(value, r'\uD'))"
# Whether the characters of a line are what they say. Jackson goes by the low byte of each digit of
# an escape: \u00š1 is one to it, and so to all that Spark asks of it. (Whether a backslash is one
# by itself is dear to ask: only of lines where it matters.)
IS_SPELLED = (
    r"(is_valid_utf8(value) and not (contains(value, r'\u')"
    r" and value rlike r'\\u(?![0-9a-fA-F]{4})'"
    r" and value rlike r'(?<!\\)(\\\\)*+\\u(?![0-9a-fA-F]{4})'))"
)
# With one brace that closes, at its end, a line holds no second object, and none within the first.
IS_FLAT = (
    "(startswith(value, '{') and endswith(value, '}')"
    " and octet_length(substring_index(value, '}', 2)) = octet_length(value))"
)


def sealed(text: str) -> str:
    """SQL: the JSON values in a column of text, one after the other, and at last its md5.

    Spark's parser stops at the end of the first value and ignores the rest. As the first of two
    items of an array, sealed by a text that the column cannot hold, it has to be read whole.
    """
    array = f"concat('[', {text}, ',\"', md5({text}), '\"]')"
    return f"from_json({array}, 'array<string>', {options()})"


def is_one_value(text: str) -> str:
    """SQL: whether a column of text is one JSON value and nothing more."""
    return f"get({sealed(text)}, 1) <=> md5({text})"


def options(**more: str) -> str:
    """SQL: the options of from_json, with some more of them."""
    words = (word for pair in {**_STRICT, **more}.items() for word in pair)
    return f"map({', '.join(map(literal, words))})"


def member(field: str) -> str:
    """SQL: the path of one field of an object, as get_json_object takes it."""
    return literal(f"$['{field}']")


def texts(some: Iterable[str]) -> str:
    """SQL: an array of texts."""
    return f"array({', '.join(map(literal, some))})"


def literal(text: str) -> str:
    """SQL: a text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
