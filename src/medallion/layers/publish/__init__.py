"""Publish: the changes of gold tables, as files or Kafka messages."""
