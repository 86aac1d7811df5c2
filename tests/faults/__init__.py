"""A random walk over a lakehouse in which everything goes wrong that can, and nothing may be lost.

The model is Spark's own stress test of streams: add data, start, stop, check, at random. Here the
steps are medallion's commands and the faults that befall them; what the tables must hold in the
end is counted from the lines that landed, never by medallion. `make faults` runs the long form.
"""
