"""A source's schema: its versions, how it is inferred, and how it grows."""
