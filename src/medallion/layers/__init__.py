"""One module a layer: source, transform, sink."""
