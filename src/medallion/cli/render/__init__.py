"""Results in words, tables and JSON: the rest of the package returns dataclasses.

A module a subject, each with `as_json` (what `--json` prints) and `as_text` (what people read).
"""
