"""The layers: a package each for bronze, silver and gold, publish, and the code they share."""
