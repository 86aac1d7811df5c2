"""Gold: aggregates."""
