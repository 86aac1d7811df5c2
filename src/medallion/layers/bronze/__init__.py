"""Bronze: all rows as they were ingested."""
