"""Definitions of tables as they were first run, compared with the configuration."""

from medallion.config.model import Config
from medallion.config.queries import Query, QueryType
from medallion.layers.definition import refuse_changed
from medallion.layers.gold.definition import refuse_changed_gold
from medallion.layers.silver.child import child_definition
from medallion.layers.silver.keys import with_recorded_time_digits
from medallion.layers.silver.rules import silver_definition
from medallion.layers.silver.scd import scd_definition
from medallion.spark import checkpoints


def refuse_changed_definition(config: Config, query: Query) -> None:
    """Raise ConfigError if the definition of a query's table has changed since its first run.

    A key that the data added is no change.
    """
    recorded = checkpoints.read_document(config.layout.checkpoint(query.name), "definition")
    source = config.sources[query.source]
    if recorded is None:
        return
    match query.type:
        case QueryType.GOLD:
            refuse_changed_gold(config, config.gold[query.table], recorded)
            return
        case QueryType.CHILD:
            now = child_definition(config.silver[query.table])
        case QueryType.CHANGES:
            now = scd_definition(source)
        case _:
            now = silver_definition(with_recorded_time_digits(config, source))
    refuse_changed(config, query.name, recorded, now)
