"""Storage below the root: paths, Delta tables without Spark, locks and atomic writes."""
