"""What this project knows of Spark itself: session, streaming queries, checkpoints, errors."""
