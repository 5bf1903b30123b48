"""Damaged data directories: what a node, its readers and its tools make of them (`make damage`)."""
