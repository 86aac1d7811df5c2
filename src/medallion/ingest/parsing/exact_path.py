"""The exact path of the JSON parser, for lines that the fast path does not accept.

It accepts any line, and finds what Spark's parser drops or changes without an error.
"""

from collections.abc import Iterable, Mapping

from pyspark.sql import types as T

from medallion.config.values import fold_case
from medallion.ingest.parsing.json_text import (
    IS_FLAT,
    IS_VALID_TEXT,
    is_one_value,
    json_field,
    parsed_field,
    parsed_struct,
    string_array,
    with_variables,
)
from medallion.ingest.parsing.nested import (
    PRECISE,
    exact_text,
    is_changed,
    is_nested_changed,
    is_nested_type,
    is_rounded,
    loses_value,
)
from medallion.ingest.parsing.times import (
    TIME_TYPES,
    as_strings,
    column_type,
    converted_column,
    converted_columns,
    converted_value,
    is_decimal,
    is_not_timestamp,
)
from medallion.storage.table_specs import (
    CORRUPT,
    RESCUED,
    quote_identifier,
    string_literal,
    struct_sql,
)

# Spark's parser refuses these tokens, which Python's json module writes. The pattern skips strings.
_TOKEN = r"""r'\G((?:[^"NI-]|-(?![NI])|"(?:[^"\\]|\\.)*+")*+)(-?(?:NaN|Infinity))'"""
_HAS_TOKEN = "(contains(value, 'NaN') or contains(value, 'Infinity'))"


def path_type(schema: Mapping[str, str]) -> str:
    """Return the type of a path's result: the columns, `_corrupt_record` and `_rescued_data`."""
    both = {**schema, CORRUPT: "string", RESCUED: "string"}
    fields = (f"{quote_identifier(name)}: {column_type(dtype)}" for name, dtype in both.items())
    return f"struct<{', '.join(fields)}>"


_HAS_UNIQUE_KEYS = "size(array_distinct(_keys)) = size(_keys)"


def _has_other_spelling(names: Iterable[str]) -> str:
    """Return SQL that tests whether a key of the line differs from a known name only in case."""
    names = list(names)
    unknown = f"array_except(_keys, {string_array(names)})"
    known = string_array(map(fold_case, names))
    return f"size(array_intersect(transform({unknown}, k -> lower(k)), {known})) > 0"


def _respelling_steps(schema: Mapping[str, str]) -> dict[str, str]:
    """Return the steps of the exact path that spell a line's fields like their columns.

    A field keeps its name if the line has another one that differs only in case.

    Args:
        schema: columns with their Spark types.

    Returns:
        Steps that change `value` and `_parsed`; `_line` is the original text.
    """
    pairs = (f"{string_literal(fold_case(name))}, {string_literal(name)}" for name in schema)
    known = f"map({', '.join(pairs)})[lower(k)]" if schema else "k"
    targets = f"transform(map_keys(_members), k -> coalesce({known}, k))"
    is_unique = "size(filter(_targets, other -> other = target)) = 1"
    names = f"transform(_targets, (target, at) -> if({is_unique}, target, map_keys(_members)[at]))"
    respelled = f"to_variant_object(map_from_arrays({names}, map_values(_members)))"
    is_respelled = _has_other_spelling(schema)
    is_infinite = "(_is_precise and contains(to_json(_variant), 'Infinity'))"
    respelled_struct = parsed_struct(as_strings(schema))
    # A string may hold JSON, whose text VARIANT would change: it comes from the original line.
    again = {
        name: f"coalesce({parsed_field(name)}, {parsed_field(name, '_again')})"
        if dtype == "string"
        else parsed_field(name, "_again")
        for name, dtype in {**schema, "_conflict": ""}.items()
    }
    return {
        "_line": "value",
        "_members": "cast(_variant as map<string, variant>)",
        "_targets": f"case when {is_respelled} and not {is_infinite} then {targets} end",
        "_respelled": f"case when _targets is not null then {respelled} end",
        "value": "coalesce(to_json(_respelled), value)",
        "_again": f"case when _respelled is not null then {respelled_struct} end",
        "_parsed": f"if(_respelled is null, _parsed, {struct_sql(again)})",
    }


def exact_path(schema: Mapping[str, str]) -> str:
    """Return SQL for the bronze row of any line.

    Args:
        schema: columns with their Spark types.

    Returns:
        An expression over `value`, the line, and the results of the fast path, `_parsed` and
        `_converted_<column>`. It is a struct of the columns, `_corrupt_record` and
        `_rescued_data`.
    """
    converted = converted_columns(schema)
    times = {n: dtype for n, dtype in converted.items() if dtype in TIME_TYPES}
    unread = [f"({parsed_field(n)} is not null and {converted_column(n)} is null)" for n in times]
    # If a field is repeated, Spark's parser may read one value here and the other as the string.
    has_unread = f"({' or '.join(unread) or 'false'}) and {_HAS_UNIQUE_KEYS}"
    typed = {name: parsed_field(name) for name in schema}
    for name, dtype in converted.items():
        string, exact = parsed_field(name), exact_text(f"_members[{string_literal(name)}]")
        string = f"if(_is_precise, {exact}, {string})" if is_decimal(dtype) else string
        typed[name] = converted_value(string, dtype)
        if name in times:
            typed[name] = f"coalesce({converted_column(name)}, {parsed_field(name, '_times')})"
    read_again = parsed_struct(as_strings(schema))
    # Few steps: Spark's analyzer resolves each in a pass over the whole expression.
    first = {
        "_raw": "value",
        "value": f"if({_HAS_TOKEN} and json_object_keys(value) is null,"
        f" regexp_replace(value, {_TOKEN}, '$1\"$2\"'), value)",
        "_parsed": f"if(value = _raw, {_parsed_fields(schema)}, {read_again})",
        "_keys": "json_object_keys(value)",
        CORRUPT: f"case when {_NOT_JSON} then {_RAW_LINE} end",
        "_is_precise": f"value rlike {PRECISE}",
        "_variant": f"case when {CORRUPT} is null then try_parse_json(value) end",
    }
    last = {
        "_members": "if(_respelled is null, _members, cast(_respelled as map<string, variant>))",
        "_times": f"case when {has_unread} then {parsed_struct(times)} end",
        "_changed": _changed_columns(typed, schema),
        "_complete": _complete_columns(typed, schema),
        "_fields": _incomplete_fields(schema),
        RESCUED: _rescued_json(schema),
    }
    # Few lines have a changed column: the others skip the test of each column.
    is_sound = f"{CORRUPT} is null and size(_changed) = 0"
    partial = {
        name: f"case when {CORRUPT} is null"
        f" and not array_contains(_changed, {string_literal(name)}) then {value} end"
        for name, value in typed.items()
    }
    kept = {CORRUPT: CORRUPT, RESCUED: RESCUED}
    result = f"if({is_sound}, {struct_sql({**typed, **kept})}, {struct_sql({**partial, **kept})})"
    for steps in (last, _respelling_steps(schema), first):
        result = with_variables(steps, result, path_type(schema))
    return result


_RAW_LINE = "if(is_valid_utf8(_raw), _raw, decode(cast(_raw as binary), 'ISO-8859-1'))"


def _parsed_fields(schema: Mapping[str, str]) -> str:
    """Return SQL for `_parsed` without the layout's unknown fields."""
    return struct_sql({name: parsed_field(name) for name in (*schema, "_conflict")})


_IS_ONE_OBJECT = f"({IS_FLAT} and _parsed._conflict is null) or {is_one_value('value')}"
_NOT_JSON = f"_keys is null or not {IS_VALID_TEXT} or not ({_IS_ONE_OBJECT})"


def _incomplete_fields(schema: Mapping[str, str]) -> str:
    """Return SQL for the fields that the columns do not hold completely, as JSON."""
    is_null = f"is_variant_null(val) and array_contains({string_array(schema)}, key)"
    is_complete = f"array_contains(_complete, key) or ({is_null})"
    return f"to_json(map_filter(_members, (key, val) -> not ({is_complete})))"


def _rescued_json(schema: Mapping[str, str]) -> str:
    """Return SQL for the incomplete fields, or the line if VARIANT would change it."""
    infinite = "contains(_fields, 'Infinity') and _is_precise"
    # 10.0 in a new field: VARIANT would write 10, and the new column would become long for good.
    is_whole = r"schema_of_variant(each.value) rlike r'DECIMAL\([0-9]+,0\)'"
    is_new = f"not array_contains({string_array(schema)}, each.key)"
    becomes_whole = (
        r"_line rlike r'[0-9]\.0' and"
        f" exists(map_entries(_members), each -> {is_whole} and {is_new})"
    )
    # VARIANT refuses lines that repeat a field at any depth, and strings over 16 MiB.
    return (
        f"case when {CORRUPT} is not null or _fields = '{{}}' then null when {infinite} then _line"
        f" when {becomes_whole} then _line else coalesce(_fields, _line) end"
    )


def _complete_columns(typed: Mapping[str, str], schema: Mapping[str, str]) -> str:
    """Return SQL for the names of the columns that hold the complete value of the line."""
    names = []
    for name, dtype in schema.items():
        tests = [f"{typed[name]} is not null"]
        if is_nested_type(dtype):
            tests.append(f"{_column_loses_value(name, dtype)} is not true")
        names.append(f"case when {' and '.join(tests)} then {string_literal(name)} end")
    return f"array_except(array_compact(array({', '.join(names)})), _changed)"


def _changed_columns(typed: Mapping[str, str], schema: Mapping[str, str]) -> str:
    """Return SQL for the names of the columns whose value differs from the line's."""
    names = []
    for name, dtype in schema.items():
        exact = f"_members[{string_literal(name)}]"
        if is_nested_type(dtype):
            test = is_nested_changed(exact, typed[name], T.DataType.fromDDL(dtype))
        elif dtype == "string":
            test = is_rounded(exact, typed[name])
        elif dtype == "timestamp":
            test = is_not_timestamp(parsed_field(name), typed[name])
        else:
            test = is_changed(parsed_field(name), typed[name], dtype)
        if test and dtype in TIME_TYPES:
            test = f"{converted_column(name)} is null and {test}"
        if is_nested_type(dtype) and ("decimal(" in dtype or "map<" in dtype):
            # The parser rounds, and keeps repeated keys, also in lines that VARIANT refuses.
            test = f"(_variant is null or {test or 'false'})"
        if test:
            names.append(f"case when {test} then {string_literal(name)} end")
    return f"array_compact(array({', '.join(names)}))"


def _column_loses_value(name: str, dtype: str) -> str:
    """Return SQL that tests whether a nested column of `_parsed` lacks part of the line's value."""
    return loses_value(json_field("value", name), parsed_field(name), T.DataType.fromDDL(dtype))
