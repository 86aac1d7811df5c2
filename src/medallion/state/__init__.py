"""The records: runs, the ledgers of files and of topics, and the journal of unfinished commands."""
