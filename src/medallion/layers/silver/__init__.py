"""Silver: typed, validated and deduplicated rows."""
