"""Pure functions from DataFrame to DataFrame, the same for batch and stream."""
