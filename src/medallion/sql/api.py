"""`medallion.query`: SQL in Python and notebooks, without a JVM."""

import os
from collections.abc import Mapping

from medallion.config.loader import load
from medallion.errors import ConfigError
from medallion.sql import engine
from medallion.sql.engine import AsOf
from medallion.sql.result import Result
from medallion.storage.paths import StoragePath


def query(root: str | os.PathLike[str], statement: str, as_of: AsOf | None = None) -> Result:
    """Run one read-only statement over the tables `layer.table` of a lakehouse.

    The views of pipeline.yaml are known if the lakehouse is that of the current project.

    Args:
        root: the lakehouse.
        statement: the statement, in DataFusion's SQL (docs/sql.md).
        as_of: the version of the table, or the time of all tables.

    Returns:
        The result: `columns` and `rows`; `to_pandas()`, `to_polars()`, `to_arrow()` and
        `to_duckdb()` convert it.

    Raises:
        UsageError: the statement is wrong.
    """
    return engine.query(root, statement, _views_of(root), as_of)


def _views_of(root: str | os.PathLike[str]) -> Mapping[str, str]:
    try:
        config = load()
    except ConfigError:  # no project here, or an invalid one: its tables can still be read
        return {}
    is_project = config.layout.root.resolved() == StoragePath(root).resolved()
    return config.views if is_project else {}
