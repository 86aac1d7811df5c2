"""How files come in: listed, handed over in order, read, and accounted for."""
