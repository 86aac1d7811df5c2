"""What people ask of a lakehouse: balance, audit, status, catalog; nothing is written."""
