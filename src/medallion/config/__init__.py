"""Settings: what may be said in conf/, .env and the environment, checked.

`loader.load` gives the `model.Config` of a process; every mistake is a `ConfigError` of one
sentence that names the key and what would be right.
"""
