"""`medallion add`: a source's entry for pipeline.yaml from a sample of its files, without Spark.

`files` reads bytes, `detect` finds format and rows, `columns` finds types, times and keys, and
`entry` writes the result as YAML.
"""
