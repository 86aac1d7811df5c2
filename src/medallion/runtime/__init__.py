"""The flows put in order: nightly, always on, refreshed, backfilled."""
