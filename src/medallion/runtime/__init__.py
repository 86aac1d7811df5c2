"""The commands that run flows: nightly runs, streams, refreshes and backfills."""
