"""The records: runs, the ledgers of files and of topics, and the plan of an unfinished refresh."""
