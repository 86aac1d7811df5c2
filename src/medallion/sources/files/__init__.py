"""Files that land: listed, handed over in order, read, and put away."""
