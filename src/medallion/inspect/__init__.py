"""Read-only inspection of a lakehouse: balance, audit, status, catalog."""
