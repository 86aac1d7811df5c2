"""The entry `maintain` of pipeline.yaml."""

from __future__ import annotations

from dataclasses import fields

from medallion.config import values
from medallion.config.document import Node
from medallion.config.model import Maintenance
from medallion.storage import table_specs


def maintenance(node: Node) -> Maintenance:
    """The policy of maintenance; every key has a default."""
    node.only(*(field.name for field in fields(Maintenance)))
    duration, size = "a duration such as '7 days'", "a size such as '128 MiB'"
    retention = node.get("retention", values.duration, duration, table_specs.RETENTION)
    if retention.seconds < 3600:  # a query of somebody's may last as long
        node.fail("retention", "must be an hour at least")
    return Maintenance(
        retention=retention,
        every=node.get("every", values.duration, duration, "1 hour"),
        compact_from=node.get("compact_from", values.count, "a whole number above 0", 20),
        target_file_size=node.get("target_file_size", values.size, size, "128 MiB"),
    )
