"""From a line of JSON to columns, without losing a value: pure, DataFrame to DataFrame."""
