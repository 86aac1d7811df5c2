"""The slower paths of the JSON parser, for lines that the fast path does not take.

The plain path takes lines that cheap tests show to be parsed exactly, such as lines with their
fields in another order: without it such lines cost twice as much. The exact path takes any line,
including what Spark's parser drops or changes without an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import types as T

from medallion.config.values import fold_case
from medallion.ingest.parsing.json_text import (
    HAS_SURROGATE,
    IS_FLAT,
    IS_VALID_TEXT,
    is_one_value,
    json_path,
    parsed_struct,
    path_type,
    sealed_values,
    string_array,
    string_literal,
    with_variables,
)
from medallion.ingest.parsing.nested import (
    BEYOND_VARIANT,
    HUGE,
    NUMBERS,
    PRECISE,
    is_changed,
    is_nested_changed,
    is_nested_type,
    is_rounded,
    loses_value,
)
from medallion.ingest.parsing.times import (
    MICROSECONDS,
    PLAIN_TIME,
    TIME_TYPES,
    is_not_timestamp,
    time_columns,
    times_as_strings,
    values_fit,
)
from medallion.storage.table_specs import CORRUPT, RESCUED, struct_sql


def plain_path(schema: Mapping[str, str]) -> str:
    """Return SQL for the bronze row of a line; null if only the exact path can tell.

    Args:
        schema: columns with their Spark types.

    Returns:
        An expression like that of `exact_path`.
    """
    times = time_columns(schema)
    columns = {name: f"_parsed.`{name}`" for name in schema}
    columns |= {name: f"`{PLAIN_TIME}{name}`" for name in times}
    steps = {
        "_keys": "json_object_keys(value)",
        "_texts": f"concat_ws('\n', {', '.join(_string_values(schema)) or 'null'})",
        "_sound": f"{values_fit(times)} and {_is_exactly_parsed(schema)}",
        "_known": _has_known_fields(schema),
        "_more": f"case when _sound and not _known and {_IS_CLEAR}"
        f" and not {has_other_spelling('_keys', schema)} then {_unknown_fields(schema)} end",
    }
    whole = f"_sound and (_known or (_more is not null and {_IS_PLAIN}))"
    kept = {CORRUPT: "cast(null as string)", RESCUED: "_more"}
    return with_variables(
        steps, f"case when {whole} then {struct_sql({**columns, **kept})} end", path_type(schema)
    )


_REAL = ("double", "float")


def _has_known_fields(schema: Mapping[str, str]) -> str:
    """Return SQL: whether the line has only known fields, each once."""
    known = string_array(schema)
    # Many lines have just the schema's keys in their order: the set is for the others.
    one_of_them = f"size(array_intersect(_keys, {known})) = size(_keys)"
    return f"(_keys <=> {known} or (size(_keys) <= {len(schema)} and {one_of_them}))"


# The line is one flat object without repeated fields.
_IS_CLEAR = f"{IS_FLAT} and size(array_distinct(_keys)) = size(_keys)"


def _unknown_fields(schema: Mapping[str, str]) -> str:
    """Return SQL for the unknown fields as JSON, as the exact path writes them."""
    members = "cast(try_parse_json(value) as map<string, variant>)"
    is_known = f"key in ({', '.join(map(string_literal, schema))})" if schema else "false"
    return f"to_json(map_filter({members}, (key, val) -> not {is_known}))"


# A cheap test that `_more` equals the line's text: no number is like 10.0, and none is long
# or has a power of ten, which would show as digits or as a fraction.
_IS_PLAIN = (
    r"not value rlike r'[.]0++[^0-9]'"
    r" and not (_more rlike r'[0-9]{16}|[0-9][.][0-9]|Infinity'"
    r" and (value rlike r'[0-9.]{39}' or value rlike r'[0-9][eE][-+0-9]'))"
)


def _string_values(schema: Mapping[str, str]) -> list[str]:
    return [f"_parsed.`{name}`" for name, kind in schema.items() if kind == "string"]


def _is_exactly_parsed(schema: Mapping[str, str]) -> str:
    """Return SQL: whether the columns hold exactly the values of their fields."""
    nested = {name: kind for name, kind in schema.items() if is_nested_type(kind)}
    some = _string_values(schema)
    inner = [name for name, kind in nested.items() if "string" in kind]
    # A text may be a rounded number (nested.is_rounded tests exactly). One test for
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


def has_other_spelling(keys: str, names: Iterable[str]) -> str:
    """Return SQL: whether some keys of an object differ from a known name only in case.

    Args:
        keys: SQL of the keys, an array of strings.
        names: the known names.
    """
    names = list(names)
    unknown = f"array_except({keys}, {string_array(names)})"
    known = string_array(map(fold_case, names))
    return f"size(array_intersect(transform({unknown}, k -> lower(k)), {known})) > 0"


def respelled(value: str, kind: T.DataType, depth: int = 0) -> str | None:
    """Return SQL for a VARIANT with its field names spelled as in a type, at every depth.

    A field keeps its name if its object has another one that differs only in case.

    Args:
        value: SQL of the VARIANT.
        kind: the type; None is returned if it has no fields.
        depth: the number of enclosing lambdas of this function.
    """
    if isinstance(kind, T.ArrayType):
        item = f"i{depth}"
        if again := respelled(item, kind.elementType, depth + 1):
            items = f"transform(try_cast({value} as array<variant>), {item} -> {again})"
            return f"coalesce(to_variant_object({items}), {value})"
    if not isinstance(kind, T.StructType) or not kind.fields:
        return None
    members, targets, is_clear, names = (f"{step}{depth}" for step in ("m", "t", "c", "n"))
    pairs = ", ".join(
        f"{string_literal(fold_case(name))}, {string_literal(name)}" for name in kind.names
    )
    target = f"{targets}[at]"
    is_single = f"size(filter({targets}, other -> other = {target})) = 1"
    steps = {
        members: f"try_cast({value} as map<string, variant>)",
        targets: f"transform(map_keys({members}), k -> coalesce(map({pairs})[lower(k)], k))",
        is_clear: f"size(array_distinct({targets})) = size({targets})",
        names: f"transform(map_keys({members}),"
        f" (k, at) -> if({is_clear} or {is_single}, {target}, k))",
    }
    member = f"v{depth}"
    nested = {f.name: respelled(member, f.dataType, depth + 1) for f in kind.fields}
    cases = "".join(
        f" when {string_literal(name)} then {sql}" for name, sql in nested.items() if sql
    )
    values = f"map_values({members})"
    if cases:
        again = f"case {names}[at]{cases} else {member} end"
        values = f"transform({values}, ({member}, at) -> {again})"
    found = f"to_variant_object(map_from_arrays({names}, {values}))"
    return with_variables(steps, f"coalesce({found}, {value})", "variant")


def respelling_steps(schema: Mapping[str, str]) -> dict[str, str]:
    """Return steps of the exact path that spell a line's fields like their columns.

    Args:
        schema: columns with their Spark types.

    Returns:
        Steps over `_written`, the line as VARIANT. `_variant` is the same with other names, `value`
        its text if a name has changed, and `_line` the original text. A line that VARIANT would
        change is left as it is.
    """
    kind = T.StructType([T.StructField(n, T.DataType.fromDDL(k)) for n, k in schema.items()])
    sql = respelled("_written", kind)
    if sql is None:
        return {"_variant": "_written", "_respelled": "cast(null as variant)", "_line": "value"}
    is_exact = "not _is_huge and not _is_beyond and not _twice"
    if not any(respelled("v", field.dataType) for field in kind.fields):
        is_exact += f" and {has_other_spelling('_keys', schema)}"
    return {
        "_named": f"case when {is_exact} then {sql} end",
        "_respelled": "case when to_json(_named) <> to_json(_written) then _named end",
        "_variant": "coalesce(_respelled, _written)",
        "_line": "value",
        "value": "coalesce(to_json(_respelled), value)",
    }


def exact_path(schema: Mapping[str, str], digits: int = MICROSECONDS) -> str:
    """Return SQL for the bronze row of any line.

    Args:
        schema: columns with their Spark types.
        digits: the maximum digits of a second's fraction in columns that are not nested.

    Returns:
        An expression over `value`, the line, and the results of the fast path, `_parsed` and
        `_plain_time_<column>`. It is a struct of the columns, `_corrupt_record` and
        `_rescued_data`.
    """
    raw = "if(is_valid_utf8(value), value, decode(cast(value as binary), 'ISO-8859-1'))"
    times = time_columns(schema)
    unread = [f"(_parsed.`{name}` is not null and `{PLAIN_TIME}{name}` is null)" for name in times]
    # Of a field named twice, Spark's parser may take either value, and the text be the other one.
    unclear = f"({' or '.join(unread) or 'false'}) and not {_REPEATS_TOP_FIELD}"
    typed = {name: f"_parsed.`{name}`" for name in schema} | {
        name: f"coalesce(`{PLAIN_TIME}{name}`, _times.`{name}`)" for name in times
    }
    respelled_struct = parsed_struct(times_as_strings(schema))
    steps = {
        "_keys": "json_object_keys(value)",
        "_flat": f"coalesce({IS_FLAT} and _parsed._conflict is null, false)",
        "_sealed": f"case when not _flat then {sealed_values('value')} end",
        CORRUPT: f"case when {_NOT_JSON} then {raw} end",
        "_has_halves": HAS_SURROGATE,
        "_is_huge": HUGE,
        "_is_precise": f"value rlike {PRECISE}",
        "_is_beyond": f"_is_precise and {BEYOND_VARIANT}",
        "_written": f"case when {CORRUPT} is null then try_parse_json(value) end",
        "_twice": _REPEATS_FIELD,
        **respelling_steps(schema),
        "_again": f"case when _respelled is not null then {respelled_struct} end",
        "_parsed": f"if(_respelled is null, {_as_parsed(schema)}, {_respelled_parsed(schema)})",
        "_members": "cast(_variant as map<string, variant>)",
        "_times": f"case when {unclear} then {parsed_struct(times)} end",
        "_astray": _changed_columns(typed, schema, digits),
        "_taken": _complete_columns(typed, schema),
        "_fields": _unheld_fields(schema),
        "_kept": _rescued_json(schema),
        RESCUED: "case when _kept <> '{}' then _kept end",
    }
    # Each step costs time on each line, and those where a column is astray are few.
    sound = f"{CORRUPT} is null and size(_astray) = 0"
    whole = f"{CORRUPT} is null and not array_contains(_astray, '{{0}}')"
    some = {n: f"case when {whole.format(n)} then {value} end" for n, value in typed.items()}
    kept = {CORRUPT: CORRUPT, RESCUED: RESCUED}
    one_of_two = f"if({sound}, {struct_sql({**typed, **kept})}, {struct_sql({**some, **kept})})"
    return with_variables(steps, one_of_two, path_type(schema))


_REPEATS_TOP_FIELD = "size(array_distinct(_keys)) < size(_keys)"
_NOT_JSON = f"_keys is null or not {IS_VALID_TEXT} or not (_flat or get(_sealed, 1) <=> md5(value))"


def _respelled_parsed(schema: Mapping[str, str]) -> str:
    """Return SQL for the columns of a line whose names were respelled.

    A string may hold JSON, whose text VARIANT would change: it comes from the original line.
    """
    columns = {
        name: f"coalesce(_parsed.`{name}`, _again.`{name}`)"
        if kind == "string"
        else f"_again.`{name}`"
        for name, kind in schema.items()
    }
    return struct_sql({**columns, "_conflict": "_again._conflict"})


def _as_parsed(schema: Mapping[str, str]) -> str:
    """Return SQL for `_parsed` without the fields that only a layout has."""
    return struct_sql({name: f"_parsed.`{name}`" for name in (*schema, "_conflict")})


def _unheld_fields(schema: Mapping[str, str]) -> str:
    """Return SQL for the fields that the columns do not hold, as JSON."""
    known = f"(is_variant_null(val) and array_contains({string_array(schema)}, key))"
    return (
        f"to_json(map_filter(_members, (key, val) -> not (array_contains(_taken, key) or {known})))"
    )


# How many fields a JSON text without blanks names at any depth; a quote in a text counts as well.
_NAMES = "regexp_count({}, '\":')"
# A field named twice has two values, and no VARIANT keeps both.
_REPEATS_FIELD = (
    f"if(_flat, {_REPEATS_TOP_FIELD},"
    f" {_NAMES.format('get(_sealed, 0)')} <> {_NAMES.format('to_json(_written)')})"
)


def _rescued_json(schema: Mapping[str, str]) -> str:
    """Return SQL for the fields that the columns do not hold, or the line if VARIANT loses some."""
    # A number that is infinite to VARIANT, or less exact.
    infinite = "contains(_fields, 'Infinity') and _is_huge"
    inexact = "_fields <> '{}' and _is_beyond"
    # 10.0 in a new field: as 10 it would make a column of whole numbers, for ever.
    whole = r"schema_of_variant(each.value) rlike r'DECIMAL\([0-9]+,0\)'"
    becomes_whole = (
        r"_line rlike r'[0-9]\.0' and exists(map_entries(_members), each ->"
        f" {whole} and not array_contains({string_array(schema)}, each.key))"
    )
    says_less = " ".join(
        f"when {case} then _line" for case in ("_twice", infinite, inexact, becomes_whole)
    )
    # Null are the fields of valid JSON that VARIANT refuses (a lone surrogate, over 16 MiB).
    fields = "coalesce(_fields, _line)"
    return f"case when {CORRUPT} is not null then null {says_less} else {fields} end"


def _complete_columns(typed: Mapping[str, str], schema: Mapping[str, str]) -> str:
    """Return SQL for the names of the columns that hold the complete value of the line."""
    found = []
    for name, kind in schema.items():
        tests = [f"{typed[name]} is not null"]
        if is_nested_type(kind):
            tests.append(f"{column_lacks(name, kind)} is not true")
        found.append(f"case when {' and '.join(tests)} then '{name}' end")
    return f"array_except(array_compact(array({', '.join(found)})), _astray)"


def _changed_columns(typed: Mapping[str, str], schema: Mapping[str, str], digits: int) -> str:
    """Return SQL for the names of the columns whose value differs from the line's."""
    found = []
    for name, kind in schema.items():
        how = is_changed(f"_parsed.`{name}`", typed[name], kind)
        exact = f"_members[{string_literal(name)}]"
        if is_nested_type(kind):
            how = is_nested_changed(_json_of(name), exact, typed[name], T.DataType.fromDDL(kind))
        elif kind == "string":
            # A lone half of a character becomes a question mark, and VARIANT refuses it.
            half = f"_variant is null and contains({typed[name]}, '?') and _has_halves"
            how = f"{half} or {is_rounded(exact, typed[name])}"
        elif kind in TIME_TYPES:  # of the plainest form it cannot be
            if kind == "timestamp":
                how = is_not_timestamp(f"_parsed.`{name}`", typed[name], digits)
            how = f"`{PLAIN_TIME}{name}` is null and {how}"
        if how:
            found.append(f"case when {how} then '{name}' end")
    return f"array_compact(array({', '.join(found)}))"


def column_lacks(name: str, kind: str) -> str:
    """Return SQL: whether a nested column of `_parsed` lacks some of the line's value."""
    return loses_value(_json_of(name), f"_parsed.`{name}`", T.DataType.fromDDL(kind))


def _json_of(name: str) -> str:
    return f"get_json_object(value, {json_path(name)})"
