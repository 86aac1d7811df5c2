"""Settings from conf/, `.env` and the environment, validated.

`loader.load` returns the `model.Config` of a process. A mistake is a `ConfigError` whose message
names the key and a valid value.
"""
