"""The two records: `ops.runs` and the ledger, `ops.files`."""
