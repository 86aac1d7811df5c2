"""SQL over JSON text: strict checks, splitting into values, and named intermediate steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from medallion.storage.table_specs import CORRUPT, RESCUED

# RFC 8259 only: what Spark would let pass besides is not JSON to the next reader.
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
# Half a character, which UTF-8 has no bytes for, is always written so; and so may a whole one be.
HAS_SURROGATE = r"(contains(value, r'\ud') or contains(value, r'\uD'))"
# Whether the characters of a line are what they say. Jackson goes by the low byte of each digit of
# an escape: \u00š1 is one to it, and so to all that Spark asks of it. (Whether a backslash is one
# by itself is dear to ask: only of lines where it matters.)
IS_VALID_TEXT = (
    r"(is_valid_utf8(value) and not (contains(value, r'\u')"
    r" and value rlike r'\\u(?![0-9a-fA-F]{4})'"
    r" and value rlike r'(?<!\\)(\\\\)*+\\u(?![0-9a-fA-F]{4})'))"
)
# With one brace that closes, at its end, a line holds no second object, and none within the first.
IS_FLAT = (
    "(startswith(value, '{') and endswith(value, '}')"
    " and octet_length(substring_index(value, '}', 2)) = octet_length(value))"
)

# Objects of more levels are not split off: each level makes the pattern longer.
MAX_SPLIT_LEVELS = 100
_STRING = r'"(?:[^"\\]|\\.)*+"'
_NO_BRACKET = rf'[^{{}}\[\]"]++|{_STRING}'
# What stands between the braces of an object: strings, and brackets that match.
_WITHIN = reduce(
    lambda inner, _: rf"(?:{_NO_BRACKET}|[{{\[]{inner}[}}\]])*+",
    range(MAX_SPLIT_LEVELS - 1),
    f"(?:{_NO_BRACKET})*+",
)


def split_objects(text: str, blanks: str) -> str:
    """Return SQL for the objects that follow one another in a column of text, as an array.

    Delivery streams such as Amazon Data Firehose write no line breaks between objects. Each object
    is an item up to the first one whose brackets or quotes do not match: that one and all that
    follows is the last item.

    Args:
        text: the column.
        blanks: a regular expression of what may stand between two objects.
    """
    pattern = rf"(?s)\G(?:{blanks}\{{{_WITHIN}\}}(?={blanks}\{{)|.++)"
    return f"regexp_extract_all({text}, r'{pattern}', 0)"


def array_items(text: str) -> str:
    """Return SQL for the items of a JSON array in a column of text, each as it is written.

    The text has to be one array. There are fewer items than the array has if one of them has more
    than `MAX_SPLIT_LEVELS` levels.
    """
    blanks = r"[ \t\r\n]*+"
    item = rf'[{{\[]{_WITHIN}[}}\]]|{_STRING}|[^\[\]{{}}", \t\r\n]++'
    pattern = rf"(?s)\G(?:\A{blanks}\[|,){blanks}({item}){blanks}"
    return f"regexp_extract_all({text}, r'{pattern}', 1)"


def sealed_values(text: str) -> str:
    """SQL: the JSON values in a column of text, one after the other, and at last its md5.

    Spark's parser stops at the end of the first value and ignores the rest. As the first of two
    items of an array, sealed by a text that the column cannot hold, it has to be read whole.
    """
    array = f"concat('[', {text}, ',\"', md5({text}), '\"]')"
    return f"from_json({array}, 'array<string>', {json_options()})"


def is_one_value(text: str) -> str:
    """SQL: whether a column of text is one JSON value and nothing more."""
    return f"get({sealed_values(text)}, 1) <=> md5({text})"


def json_options(**more: str) -> str:
    """SQL: the options of from_json, with some more of them."""
    words = (word for pair in {**_STRICT, **more}.items() for word in pair)
    return f"map({', '.join(map(string_literal, words))})"


def json_path(field: str) -> str:
    """SQL: the path of one field of an object, as get_json_object takes it."""
    return string_literal(f"$['{field}']")


def string_array(some: Iterable[str]) -> str:
    """SQL: an array of texts."""
    return f"array({', '.join(map(string_literal, some))})"


def string_literal(text: str) -> str:
    """SQL: a text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def parsed_struct(columns: Mapping[str, str]) -> str:
    """SQL: the struct that Spark makes of `value`; `_conflict` is null if all of it did fit."""
    ddl = ", ".join([*(f"`{name}` {kind}" for name, kind in columns.items()), "_conflict string"])
    return f"from_json(value, '{ddl}', {json_options(columnNameOfCorruptRecord='_conflict')})"


def path_type(schema: Mapping[str, str]) -> str:
    """The type of what a path makes of a line: its columns, and what they do not say."""
    both = {**schema, CORRUPT: "string", RESCUED: "string"}
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in both.items())}>"


def with_variables(steps: Mapping[str, str], then: str, kind: str) -> str:
    """SQL: an expression of type `kind` that may use each step by its name; so may later steps.

    The steps are arguments of lambdas, and not columns: Spark would compile columns, which for this
    much code takes seconds in each session, though few lines need it or none. Lambdas it
    interprets. (`transform` would read nicer than `aggregate`, but for each line it works out its
    type anew, and so that of all within.)
    """
    for name, value in reversed(list(steps.items())):
        then = f"aggregate(array({value}), cast(null as {kind}), (nothing, {name}) -> {then})"
    return then
