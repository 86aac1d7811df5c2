"""The command line: arguments, commands, and how their results are printed."""
