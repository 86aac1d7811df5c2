"""Others who make the same gold of the same landing: a module each, in its own idiom.

`python -m benchmarks.peers.NAME ROOT` reads `ROOT/landing/activity/*.json` and writes
`ROOT/gold/device_counts` and `ROOT/gold/device_totals` as Delta tables with medallion's columns.
"""
