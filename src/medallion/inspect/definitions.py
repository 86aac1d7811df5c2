"""Definitions of tables as they were first run, compared with the configuration."""

from medallion.config.model import Config
from medallion.config.queries import Query, QueryType
from medallion.layers.definition import Change, changes_between
from medallion.layers.gold.flow import gold_changes
from medallion.layers.silver.child import child_definition
from medallion.layers.silver.rules import silver_definition
from medallion.layers.silver.scd import scd_definition
from medallion.spark import checkpoints
from medallion.storage import delta_tables


def changed_settings(config: Config, query: Query) -> list[Change]:
    """Return what has changed in the definition of a query's table since its first run.

    A key that the data added is no change.
    """
    recorded = checkpoints.read_document(config.layout.checkpoint(query.name), "definition")
    source = config.sources[query.source]
    if recorded is None:
        return []
    match query.type:
        case QueryType.GOLD:
            return gold_changes(config, config.gold[query.table], recorded)
        case QueryType.CHILD:
            now = child_definition(config.silver[query.table])
        case QueryType.CHANGES:
            now = scd_definition(source)
        case _:
            now = silver_definition(source)
            if source.lookup:  # of its columns, only the table has the types
                types = delta_tables.column_types(config.layout.table(query.targets[0]))
                own = {"_", *(key.removesuffix(" as") for key in recorded)}
                joined = {name: types[name] for name in types if not {name, name[0]} & own}
                recorded = recorded | {f"lookup.{name}": type_ for name, type_ in joined.items()}
                configured = source.lookup.columns.items()
                now |= {f"lookup.{name}": type_.replace(" ", "") for name, type_ in configured}
    return changes_between(recorded, now)
