"""Names that differ only in case: one column to Spark, two fields to its JSON parser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import types as T

from medallion.config.values import folded
from medallion.ingest.parsing.json_text import literal, texts
from medallion.ingest.parsing.steps import with_steps


def as_columns(fields: Sequence[str], columns: Iterable[str]) -> list[str]:
    """Return the names of a record's fields, spelled as the columns are.

    A field keeps its name if the record has another one that differs only in case.
    """
    spelled = {folded(column): column for column in columns}
    count = Counter(map(folded, fields))
    return [
        spelled.get(folded(name), name) if count[folded(name)] == 1 else name for name in fields
    ]


def has_other_spelling(keys: str, names: Iterable[str]) -> str:
    """SQL: whether some of an object's keys differ from a known name only in case.

    Args:
        keys: SQL of the keys, an array of strings.
        names: the known names.
    """
    names = list(names)
    unknown = f"array_except({keys}, {texts(names)})"
    known = texts(map(folded, names))
    return f"size(array_intersect(transform({unknown}, k -> lower(k)), {known})) > 0"


def respelled(value: str, kind: T.DataType, depth: int = 0) -> str | None:
    """SQL: a VARIANT with the names of its fields spelled as in a type, at every depth.

    A field keeps its name if its object has another one that differs only in case.

    Args:
        value: SQL of the VARIANT.
        kind: the type. None is returned if there are no fields within it.
        depth: how many lambdas of this function the value is in.
    """
    if isinstance(kind, T.ArrayType):
        item = f"i{depth}"
        if again := respelled(item, kind.elementType, depth + 1):
            items = f"transform(try_cast({value} as array<variant>), {item} -> {again})"
            return f"coalesce(to_variant_object({items}), {value})"
    if not isinstance(kind, T.StructType) or not kind.fields:
        return None
    members, targets, is_clear, names = (f"{step}{depth}" for step in ("m", "t", "c", "n"))
    pairs = ", ".join(f"{literal(folded(name))}, {literal(name)}" for name in kind.names)
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
    cases = "".join(f" when {literal(name)} then {sql}" for name, sql in nested.items() if sql)
    values = f"map_values({members})"
    if cases:
        again = f"case {names}[at]{cases} else {member} end"
        values = f"transform({values}, ({member}, at) -> {again})"
    found = f"to_variant_object(map_from_arrays({names}, {values}))"
    return with_steps(steps, f"coalesce({found}, {value})", "variant")


def respelling_steps(schema: Mapping[str, str]) -> dict[str, str]:
    """SQL: steps of the exact path that give the fields of a line the names of their columns.

    Args:
        schema: columns with their Spark types.

    Returns:
        Steps over `_written`, the line as VARIANT. `_variant` is the same with other names, `value`
        the text of that if any name has changed, and `_line` the text as it came. A line that
        VARIANT would change is left as it is.
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
