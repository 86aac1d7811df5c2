"""The layers: a package each for bronze, silver, gold and publish, and the code they share."""
