"""Data quality: rules that send single rows to quarantine, and gates over whole tables.

Both come from the Great Expectations suites in ``conf/great_expectations``, and from nowhere else.
"""
