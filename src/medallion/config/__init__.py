"""Settings: what may be said in conf/, .env and the environment, checked."""
