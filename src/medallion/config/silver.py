"""Parsing of `silver` in pipeline.yaml: tables whose rows come from another silver table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medallion.config import values
from medallion.config.document import Node
from medallion.config.model import SILVER_COLUMNS, SilverTable, SourceConfig, change_keys
from medallion.config.tables import ChildTable
from medallion.config.values import fold_case

SilverTables = Mapping[str, SilverTable]


def parse_child_table(name: str, node: Node, tables: SilverTables) -> ChildTable:
    """Parse one entry of `silver`.

    Args:
        name: the name of the table.
        node: its entry.
        tables: the sources, and the entries that come before this one by `parents_first`.
    """
    node.allow_only("source", "explode", "outer", "columns", "where", "keys")
    logs = [each.rows_table for each in tables.values() if isinstance(each, SourceConfig)]
    if name in tables or f"silver.{name}" in logs:
        node.fail("", "has the name of a source's silver table, or of its changes: rename it")
    parent = tables[silver_table(node, "source", tables)]
    explode = node.optional(
        "explode", values.non_blank_string, "an expression in Spark SQL that gives an array"
    )
    outer = node.get("outer", values.boolean, "true or false", False)
    if outer and not explode:
        node.fail("outer", "needs explode, whose empty arrays it is for")
    taken, added = {fold_case(column) for column in parent.columns}, ("item", "pos")
    node.refuse_added_columns("explode", added if explode else (), taken, f"silver.{parent.name}")
    default = ... if explode else {column: column for column in parent.columns}
    columns = node.get("columns", values.named_columns, SILVER_COLUMNS, default)
    keys = node.get("keys", values.string_list, "a list of its columns", [])
    node.refuse_unknown_columns("keys", keys, columns, "this table")
    followed = _change_keys(node, columns, keys, parent)
    return ChildTable(
        name=name,
        parent=parent.name,
        explode=explode,
        outer=outer,
        columns=columns,
        where=node.optional("where", values.non_blank_string, values.CONDITION),
        keys=keys,
        event_time=next((n for n, sql in columns.items() if sql == parent.event_time), None),
        watermark=parent.watermark,
        change_keys=followed,
    )


def _change_keys(
    node: Node, columns: Mapping[str, str], keys: Sequence[str], parent: SilverTable
) -> dict[str, str]:
    """Return the column for each of the parent's columns that say which of its rows change."""
    own = {sql: name for name, sql in columns.items()}
    followed = dict[str, str]()
    for key in change_keys(parent):
        if key not in own:
            node.fail("columns", f"must have {key}, which says which rows of its source change")
        if keys and own[key] not in keys:
            node.fail("keys", f"must have {own[key]}, because rows of its source change")
        followed[key] = own[key]
    return followed


def parents_first(entries: Mapping[str, Any]) -> list[str]:
    """Return the names of the entries, each after the one that it reads."""

    def depth(name: str, above: tuple[str, ...] = ()) -> int:
        entry = entries[name]
        parent = str(entry.get("source") if isinstance(entry, dict) else "").partition(".")[2]
        # In a circle the first entry is an error, because its parent is not known yet.
        is_end = parent not in entries or parent in above
        return 0 if is_end else 1 + depth(parent, (*above, name))

    return sorted(entries, key=depth)


def silver_table(node: Node, key: str, tables: SilverTables) -> str:
    """Return the name, without `silver.`, of the table that a key names."""
    name = node.get(key, values.non_blank_string, "a silver table")
    layer, _, table = name.partition(".")
    if layer != "silver" or table not in tables:
        known = ", ".join(f"silver.{each}" for each in tables)
        node.fail(key, f"must be one of {known}, not {name}")
    return table
