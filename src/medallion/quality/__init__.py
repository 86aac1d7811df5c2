"""Data quality: rules that send single rows to quarantine, and gates over whole tables.

Both are defined by the Great Expectations suites in `conf/great_expectations`.
"""
