"""Sources of rows, their parsing and their schemas: everything before bronze."""
