"""Others who make the same gold of the same landing: a module each, in its own idiom.

`python -m benchmarks.peers.NAME` reads `landing/activity/*.json` under MEDALLION_HOME and writes
`gold/device_counts` and `gold/device_totals` there, as Delta tables with medallion's columns.
"""
