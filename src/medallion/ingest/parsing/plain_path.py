"""The plain path: lines that are written otherwise than most, and simple tests show to be whole."""

from __future__ import annotations

from collections.abc import Mapping

from medallion.ingest.parsing.exact_path import column_lacks, has_other_spelling
from medallion.ingest.parsing.json_text import (
    HAS_SURROGATE,
    IS_FLAT,
    IS_VALID_TEXT,
    is_one_value,
    path_type,
    string_array,
    string_literal,
    with_variables,
)
from medallion.ingest.parsing.nested import NUMBERS, PRECISE, is_nested_type
from medallion.ingest.parsing.times import PLAIN_TIME, time_columns, values_fit
from medallion.storage.table_specs import CORRUPT, RESCUED, struct_sql


def plain_path(schema: Mapping[str, str]) -> str:
    """SQL: what bronze keeps of a line; null where only the exact path can say.

    Args, and what it makes: those of `exact_path`.
    """
    times = time_columns(schema)
    columns = {name: f"_parsed.`{name}`" for name in schema}
    columns |= {name: f"`{PLAIN_TIME}{name}`" for name in times}
    steps = {
        "_keys": "json_object_keys(value)",
        "_texts": f"concat_ws('\n', {', '.join(_texts_of(schema)) or 'null'})",
        "_sound": f"{values_fit(times)} and {_is_sound(schema)}",
        "_known": _is_known(schema),
        "_more": f"case when _sound and not _known and {_IS_CLEAR}"
        f" and not {has_other_spelling('_keys', schema)} then {_more(schema)} end",
    }
    whole = f"_sound and (_known or (_more is not null and {_IS_PLAIN}))"
    kept = {CORRUPT: "cast(null as string)", RESCUED: "_more"}
    return with_variables(
        steps, f"case when {whole} then {struct_sql({**columns, **kept})} end", path_type(schema)
    )


_REAL = ("double", "float")


def _is_known(schema: Mapping[str, str]) -> str:
    """SQL: whether the schema knows all fields of the line, and each is there once."""
    known = string_array(schema)
    # Many lines have just the schema's keys in their order: the set is for the others.
    one_of_them = f"size(array_intersect(_keys, {known})) = size(_keys)"
    return f"(_keys <=> {known} or (size(_keys) <= {len(schema)} and {one_of_them}))"


# Whether the line is one flat object, and each field there once.
_IS_CLEAR = f"{IS_FLAT} and size(array_distinct(_keys)) = size(_keys)"


def _more(schema: Mapping[str, str]) -> str:
    """SQL: the fields that the schema does not know, as the exact path has them."""
    members = "cast(try_parse_json(value) as map<string, variant>)"
    is_known = f"key in ({', '.join(map(string_literal, schema))})" if schema else "false"
    return f"to_json(map_filter({members}, (key, val) -> not {is_known}))"


# Whether `_more` says them as the line does, at a glance: no number is like 10.0, and none is long
# or has a power of ten, which would show as digits or as a fraction.
_IS_PLAIN = (
    r"not value rlike r'[.]0++[^0-9]'"
    r" and not (_more rlike r'[0-9]{16}|[0-9][.][0-9]|Infinity'"
    r" and (value rlike r'[0-9.]{39}' or value rlike r'[0-9][eE][-+0-9]'))"
)


def _texts_of(schema: Mapping[str, str]) -> list[str]:
    return [f"_parsed.`{name}`" for name, kind in schema.items() if kind == "string"]


def _is_sound(schema: Mapping[str, str]) -> str:
    """SQL: whether the columns say all that the line says in their fields."""
    nested = {name: kind for name, kind in schema.items() if is_nested_type(kind)}
    some = _texts_of(schema)
    inner = [name for name, kind in nested.items() if "string" in kind]
    # Whether a text may be a number that is rounded (nested.is_rounded looks closer). One test for
    # all columns: what is compiled for each of them adds up, and Java leaves long methods slow.
    numbers = "true" if inner else rf"_texts rlike r'(?m){NUMBERS}'"
    # 1e400: JSON has no infinite numbers, but a double and a text may come out as one.
    infinite = [f"abs(_parsed.`{n}`) = double('infinity')" for n, k in schema.items() if k in _REAL]
    said = ["_texts", *(f"to_json(_parsed.`{name}`)" for name in nested)]
    infinite += [f"contains({text}, 'Infinity')" for text in said]
    tests = [
        IS_VALID_TEXT,
        # Spark's parser ignores what follows the object, and takes one out of an array.
        f"(startswith(value, '{{') and endswith(value, '}}') and {is_one_value('value')})"
        if nested
        else IS_FLAT,
        rf"not (contains(value, r'\u') and {HAS_SURROGATE})",
        *(f"({is_infinite}) is not true" for is_infinite in infinite),
        *([f"not ({numbers} and value rlike {PRECISE})"] if some or inner else []),
        *(f"{column_lacks(name, kind)} is not true" for name, kind in nested.items()),
    ]
    if nested:  # then a text may be an object or a list, written out again
        tests += [f"(left({text}, 1) in ('{{', '[')) is not true" for text in some]
    return " and ".join(tests)
