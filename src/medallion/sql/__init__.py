"""Read-only SQL over the tables, without a JVM."""
