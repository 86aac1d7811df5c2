"""A small medallion lakehouse: JSON files in, three chained streaming layers, SQL out."""

__version__ = "0.1.0"
