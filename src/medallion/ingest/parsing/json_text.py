"""SQL over JSON text: strict checks, splitting into values, and named intermediate steps."""

from collections.abc import Iterable, Mapping
from functools import reduce

from medallion.storage.table_specs import quote_identifier, string_literal

# RFC 8259 only: other readers refuse Spark's extensions.
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_HIGH, _LOW = "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
# An escape without four digits (Jackson accepts \u00š1), or one half of a surrogate pair. The
# second pattern skips backslashes that are escaped themselves; it is expensive, and comes last.
_HAS_INVALID_ESCAPE = (
    r"(contains(value, r'\u') and value rlike r'\\u(?![0-9a-fA-F]{4})|\\u[dD][89a-fA-F]'"
    r" and value rlike r'(?<!\\)(\\\\)*+(\\u(?![0-9a-fA-F]{4})"
    rf"|\\u{_HIGH}(?!\\u{_LOW})|(?<!\\u{_HIGH})\\u{_LOW})')"
)
# UTF-8 without invalid escapes.
IS_VALID_TEXT = f"(is_valid_utf8(value) and not {_HAS_INVALID_ESCAPE})"
# A line whose only closing brace is at its end has no second object, and no nested one.
IS_FLAT = (
    "(startswith(value, '{') and endswith(value, '}')"
    " and octet_length(substring_index(value, '}', 2)) = octet_length(value))"
)

# Deeper objects are not split off: each level makes the pattern longer.
MAX_SPLIT_LEVELS = 100
_STRING = r'"(?:[^"\\]|\\.)*+"'
_NO_BRACKET = rf'[^{{}}\[\]"]++|{_STRING}'
# The content between the braces of an object: matching brackets, strings and other text.
_WITHIN = reduce(
    lambda inner, _: rf"(?:{_NO_BRACKET}|[{{\[]{inner}[}}\]])*+",
    range(MAX_SPLIT_LEVELS - 1),
    f"(?:{_NO_BRACKET})*+",
)


def split_objects(text: str) -> str:
    """Return SQL for the objects that follow one another in a column of text, as an array.

    Delivery streams such as Amazon Data Firehose write no line breaks between objects. Each object
    is an item, up to the first one whose brackets or quotes do not match: the text from there on is
    the last item.
    """
    pattern = rf"(?s)\G(?: ?+\{{{_WITHIN}\}}(?= ?+\{{)|.++)"
    return f"regexp_extract_all({text}, r'{pattern}', 0)"


def is_one_value(text: str) -> str:
    """Return SQL that tests whether a column of text is exactly one JSON value.

    Spark's parser ignores everything after the first value. In an array that ends with the text's
    md5, which the text cannot contain, it has to read the text to its end.
    """
    array = f"concat('[', {text}, ',\"', md5({text}), '\"]')"
    values = f"from_json({array}, 'array<string>', {json_options()})"
    return f"get({values}, 1) <=> md5({text})"


def json_options(**more: str) -> str:
    """Return SQL for the options of a strict `from_json`, and more options."""
    strings = (string for pair in {**_STRICT, **more}.items() for string in pair)
    return f"map({', '.join(map(string_literal, strings))})"


def json_field(json: str, name: str) -> str:
    """Return SQL for the text of a field of a JSON object (of a string: without its quotes)."""
    if set(name) & set("'?*\\"):  # JSON paths give these a meaning
        return f"from_json({json}, 'map<string,string>')[{string_literal(name)}]"
    path = string_literal(f"$['{name}']")
    return f"get_json_object({json}, {path})"


def parsed_field(name: str, struct: str = "_parsed") -> str:
    """Return SQL for a field of `_parsed`, or of another struct."""
    return f"{struct}.{quote_identifier(name)}"


def string_array(strings: Iterable[str]) -> str:
    """Return SQL for an array of strings."""
    return f"array({', '.join(map(string_literal, strings))})"


def parsed_struct(columns: Mapping[str, str]) -> str:
    """Return SQL for `value` parsed by Spark; `_conflict` is null if every value fits."""
    fields = [f"{quote_identifier(name)} {dtype}" for name, dtype in columns.items()]
    ddl = string_literal(", ".join([*fields, "_conflict string"]))
    return f"from_json(value, {ddl}, {json_options(columnNameOfCorruptRecord='_conflict')})"


def with_variables(steps: Mapping[str, str], then: str, dtype: str) -> str:
    """Return SQL for an expression that refers to named steps.

    The steps are arguments of lambdas, which Spark interprets: compiled as columns, this much code
    would take seconds in each session. `aggregate` is used because `transform` computes its type,
    and those of all nested lambdas, for each line.

    Args:
        steps: SQL by name; a step may refer to earlier ones.
        then: SQL of the result.
        dtype: the Spark type of the result.
    """
    for name, value in reversed(list(steps.items())):
        then = f"aggregate(array({value}), cast(null as {dtype}), (nothing, {name}) -> {then})"
    return then
