"""The three layers and what gold publishes, a folder each: its flow, and what that is made of."""
