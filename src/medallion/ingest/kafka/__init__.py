"""Kafka topics as a source.

Spark plans and reads the batches (`source`), and its checkpoint has the offsets. The ledger of
topics has them too, without Spark, and is compared with the brokers (`broker`): lost messages stop
the source until the user skips them. `verify` counts messages without Spark.
"""
