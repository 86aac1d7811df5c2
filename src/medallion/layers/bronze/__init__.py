"""Bronze: every line as it came."""
