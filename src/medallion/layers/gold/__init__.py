"""Gold: aggregates, SQL statements and joins."""
