"""Publish: the changes of gold's tables, sent on to files and topics."""
