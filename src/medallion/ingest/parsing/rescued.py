"""Fields of bronze rows whose values do not fit their columns: SQL over `_rescued_data`."""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.ingest.parsing.json_text import parsed_field, string_array, with_variables
from medallion.ingest.parsing.names import field_path, rename_fields, with_field_names
from medallion.spark.plans import type_ddl
from medallion.storage.table_specs import RESCUED, quote_identifier, string_literal

_FIELDS = "array<struct<path: array<string>, example: string>>"
_NO_FIELDS = f"cast(array() as {_FIELDS})"
_EXAMPLE_LENGTH = 40


def rescued_fields(
    columns: Mapping[str, T.DataType], names: Mapping[str, str] | None = None
) -> str:
    """Return SQL for the fields that are in `_rescued_data` because they do not fit their columns.

    A value does not fit if its column is null and `_rescued_data` has a value for it, or if the
    line repeats the field. Values in structs, arrays and maps are compared field by field. Names
    that differ only in case are the same field.

    Args:
        columns: the source's own columns in bronze's table, with their types.
        names: the original names of fields by path (`parsing.names`).

    Returns:
        An expression over a bronze row of type `array<struct<path, example>>`: each field once,
        with its original names from the top down and the start of its value; null if nothing is
        rescued.
        Unknown fields within structs are included, unknown top-level fields are not. Items of
        arrays and maps count for the path of the array or map.
    """
    names = names or {}
    fields, typed = dict[str, T.DataType](), dict[str, str]()
    for column, dtype in columns.items():
        name, wanted = names.get(column, column), with_field_names(dtype, names, column)
        fields[name] = wanted
        typed[name] = rename_fields(quote_identifier(column), type_ddl(dtype), type_ddl(wanted))
    fields_sql = (
        _rescued_in_object(RESCUED, fields, typed.__getitem__, (), 0) if columns else _NO_FIELDS
    )
    is_known = "exists(known, each -> each.path = field.path)"
    unique = (
        f"aggregate({fields_sql}, {_NO_FIELDS},"
        f" (known, field) -> if({is_known}, known, array_append(known, field)))"
    )
    return f"case when {RESCUED} is not null then {unique} end"


def merged_objects(one: Column, other: Column) -> Column:
    """Return a JSON object with the members of two objects, each of which is null or not empty."""
    start = F.substr(one, F.lit(1), F.length(one) - 1)
    return F.coalesce(F.concat(start, F.lit(","), F.substr(other, F.lit(2))), one, other)


def rescued_rule_names(
    columns: Mapping[str, T.DataType],
    rules: Mapping[str, Sequence[str]],
    names: Mapping[str, str] | None = None,
) -> str:
    """Return SQL for the names of the rules whose field has a rescued value.

    Args:
        columns: as for `rescued_fields`; columns without a rule can be left out.
        rules: names with the path of their column, or field within one. A rule is broken by a
            rescued value in its field, in a part of the field, or in an enclosing field.
        names: the original names of fields by path.

    Returns:
        An expression over a bronze row of type `array<string>`, never null.
    """
    named = {path[0] for path in rules.values()}
    fields = rescued_fields({name: columns[name] for name in columns if name in named}, names)
    steps = {"_paths": f"transform({fields}, f -> transform(f.path, n -> lower(n)))"}
    rule_names = [
        f"case when exists(_paths, path -> {_overlap_sql('path', field_path(path, names or {}))})"
        f" then {string_literal(name)} end"
        for name, path in rules.items()
    ]
    all_names = f"array_compact(array({', '.join(rule_names)}))"
    broken = with_variables(steps, all_names, "array<string>")
    return f"case when {RESCUED} is not null then {broken} else cast(array() as array<string>) end"


def _overlap_sql(path: str, other: Sequence[str]) -> str:
    """Return SQL of whether one path, SQL of lower-case names, is the start of the other."""
    names = string_array(name.lower() for name in other)
    return f"slice({path}, 1, {len(other)}) = slice({names}, 1, size({path}))"


def _rescued_in_object(
    json: str,
    fields: Mapping[str, T.DataType],
    typed: Callable[[str], str],
    path: tuple[str, ...],
    depth: int,
) -> str:
    """Return SQL for the rescued fields of a JSON object.

    Args:
        json: SQL of the object's text.
        fields: the object's fields in the table, with types.
        typed: returns SQL for a field's value in the table.
        path: the names from the top down to the object.
        depth: the number of enclosing values, for the names of lambda variables.
    """
    keys, members, entries, empty, lost = (f"_{n}{depth}" for n in ("k", "m", "e", "n", "l"))
    is_empty = (f"case when {typed(n)} is null then {string_literal(n)} end" for n in fields)
    steps = {
        keys: f"json_object_keys({json})",
        members: f"from_json({json}, 'map<string, string>')",
        entries: f"filter(map_entries({members}), e -> e.value is not null)",
        empty: f"array_compact(array({', '.join(is_empty)}))",
        lost: f"array_intersect(transform({entries}, e -> lower(e.key)),"
        f" transform({empty}, n -> lower(n)))",
    }
    name = f"get(filter({empty}, n -> lower(n) = lower(e.key)), 0)"
    is_lost, known = f"array_contains({lost}, lower(e.key))", string_array(fields)
    fields_sql = [
        f"transform(filter({entries}, e -> {is_lost}),"
        f" e -> {_rescued_field(path, 'e.value', name)})",
        f"case when size(array_distinct({keys})) < size({keys}) then transform("
        f"filter(array_distinct({keys}), k -> array_contains({known}, k)"
        f" and size(array_remove({keys}, k)) < size({keys}) - 1),"
        f" k -> {_rescued_field(path, f'{members}[k]', 'k')}) end",
    ]
    if path:  # an unknown top-level field is new: there is no column that it does not fit
        unknown = f"filter({entries}, e -> not {is_lost} and not array_contains({known}, e.key))"
        fields_sql.append(f"transform({unknown}, e -> {_rescued_field(path, 'e.value', 'e.key')})")
    for field, dtype in fields.items():
        value, member = typed(field), f"{members}[{string_literal(field)}]"
        within = _rescued_in_value(member, value, dtype, (*path, field), depth + 1)
        if within != _NO_FIELDS:
            both = f"{value} is not null and {member} is not null"
            fields_sql.append(f"case when {both} then {within} end")
    every = f"flatten(array_compact(array({', '.join(fields_sql)})))"
    # JSON that is not an object differs from the table's value.
    other = f"array({_rescued_field(path, json)})" if path else _NO_FIELDS
    return with_variables(steps, f"if({members} is null, {other}, {every})", _FIELDS)


def _rescued_in_value(
    json: str, typed: str, dtype: T.DataType, path: tuple[str, ...], depth: int
) -> str:
    """Return SQL for the rescued fields in a value that neither JSON nor the table has as null."""
    this_field = f"array({_rescued_field(path, json)})"
    if isinstance(dtype, T.StructType):
        fields = {field.name: field.dataType for field in dtype}
        return _rescued_in_object(json, fields, lambda n: parsed_field(n, typed), path, depth)
    if isinstance(dtype, T.ArrayType):
        items, item, value = (f"_{n}{depth}" for n in ("i", "j", "t"))
        one = _rescued_in_item(item, value, dtype.elementType, path, depth)
        each = f"flatten(zip_with({items}, {typed}, ({item}, {value}) -> {one}))"
        is_same_size = f"size({items}) <=> size({typed})"
        steps = {items: f"from_json({json}, 'array<string>')"}
        return with_variables(steps, f"if({is_same_size}, {each}, {this_field})", _FIELDS)
    if isinstance(dtype, T.MapType):
        entry = f"_e{depth}"
        key = f"try_cast({entry}.key as {dtype.keyType.simpleString()})"
        one = _rescued_in_item(f"{entry}.value", f"{typed}[{key}]", dtype.valueType, path, depth)
        entries = f"map_entries(from_json({json}, 'map<string, string>'))"
        return f"coalesce(flatten(transform({entries}, {entry} -> {one})), {this_field})"
    return _NO_FIELDS


def _rescued_in_item(
    json: str, typed: str, dtype: T.DataType, path: tuple[str, ...], depth: int
) -> str:
    within = _rescued_in_value(json, typed, dtype, path, depth + 1)
    if_empty = f"when {typed} is null then array({_rescued_field(path, json)})"
    return f"case when {json} is null then {_NO_FIELDS} {if_empty} else {within} end"


def _rescued_field(path: tuple[str, ...], value: str, name: str | None = None) -> str:
    """Return SQL of one rescued field: its path, with a name (SQL) at the end, and its value."""
    names = ", ".join([string_literal(each) for each in path] + ([name] if name else []))
    # A repeated field may be null in one of its places.
    example = f"left(coalesce({value}, 'null'), {_EXAMPLE_LENGTH})"
    return f"named_struct('path', array({names}), 'example', {example})"
