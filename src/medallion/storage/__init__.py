"""What lies under the root: folders, columns, Delta tables as files, locks and small files."""
