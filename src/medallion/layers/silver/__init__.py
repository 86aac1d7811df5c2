"""Silver: typed, checked, without duplicates."""
