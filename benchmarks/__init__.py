"""What `make bench` measures: a module a question, and `peers`, who answer the first one too."""
