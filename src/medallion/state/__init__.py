"""The records: runs, the ledgers of files and of topics, and what a refresh has left to do."""
