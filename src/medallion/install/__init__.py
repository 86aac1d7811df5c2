"""What is not in the wheel: jars and Java, in a cache of the user; and new projects.

Nothing here imports PySpark, so that missing parts are reported before Spark starts.
"""
