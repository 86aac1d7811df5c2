"""Files as a source.

The modules that a file passes on its way to bronze:

1. `listing` lists a source's directories.
2. `discovery` compares each file with the ledger, and enqueues the new ones in the order of their
   modification times.
3. `source` streams the queue; `batch` reads the files of one micro-batch and records them.
   `reader` reads them: JSON and text with Spark, CSV and what Spark cannot read with `decode`,
   which takes the `lines` of a file.
   `header`, `content` and `typed_files` find files that are unreadable or would be misread.
4. `archive` archives, deletes or rejects files.

`source_type` has the operations that need no Spark. `verify` counts the rows of files again for the
deep audit.
"""
