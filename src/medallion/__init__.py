"""A small medallion lakehouse: JSON files in, three chained streaming layers, SQL out."""

from medallion.factory import DataFactory

__all__ = ["DataFactory"]
__version__ = "0.1.0"
