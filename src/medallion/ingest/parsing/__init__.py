"""The parser: lines of JSON or typed rows to bronze's columns, without losing a value."""
