"""Ingestion of files or Kafka messages into Delta tables that you query with SQL.

Each name is imported when it is first used, so that `import medallion` is fast:

>>> medallion.query("data/lakehouse", "SELECT * FROM gold.device_totals").to_pandas()
>>> medallion.DataFactory("data/lakehouse/landing", dirty=True).land()
>>> medallion.streams.display(events, bar="count")
>>> medallion.spark_session().table("silver.event")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medallion import streams
    from medallion.factory import DataFactory
    from medallion.spark.catalog import spark_session
    from medallion.sql.api import query

__all__ = ["DataFactory", "query", "spark_session", "streams"]
__version__ = "0.1.0"

_HOMES = {
    "DataFactory": "medallion.factory",
    "query": "medallion.sql.api",
    "spark_session": "medallion.spark.catalog",
    "streams": "medallion.streams",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_HOMES[name])
    found = globals()[name] = getattr(module, name, module)  # streams is a package
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
