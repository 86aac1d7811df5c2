"""A random walk of commands and faults over a lakehouse, after which no row may be lost.

The model is Spark's own stress test of streams: add data, start, stop and check at random. The
steps are medallion's commands, combined with injected faults. The expected tables are computed
from the landed lines, never by medallion. `make faults` runs the long form.
"""
