"""Hostile web pages in a real browser whose user may use a node: `make browser`."""
