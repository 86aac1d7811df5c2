"""Files in folders as a source.

A file's way, and the module that sees to it: it is met (`walk`, `listing`), compared with what the
ledger has of its path (`discovery`, `versions`; `requests` for backfills), and handed over in the
order in which it came (`handover`); in a folder that no source reads it is told (`unread`). A batch
reads it (`batch`, `reader`, `csv`, `typed/`, `codecs`), or puts it aside with the reason (`reject`,
`lengths`, `csv_dialect`, `typed/`, and `trial` by the hints of `attempts`). Once its rows are in
bronze it is entered in the ledger (`ledger_entries`),
and later archived or deleted (`archive`, `moving`).
What is asked of any kind of source without Spark is answered in `kind`.
For the deep audit `recount` holds bronze against the files, whose rows `line_counts` counts again
without Spark; it shares nothing with the way above but `codecs` and `typed/`.
"""
