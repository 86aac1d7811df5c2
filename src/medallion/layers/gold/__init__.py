"""Gold: aggregates, statements of SQL, and joins."""
