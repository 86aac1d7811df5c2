"""Topics of Kafka as a source.

Spark plans and reads the batches (`source`, `batch`), and its checkpoint knows up to where. The
ledger of topics says the same without Spark, and the broker is asked (`broker`) whether what comes
next is there, in the topic that it was: messages that are gone are told, and never skipped, until
somebody says to go on (`skip`). `recount` counts messages again without
Spark.
"""
