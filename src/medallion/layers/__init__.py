"""The three layers, a folder each: flow, transform, writer."""
