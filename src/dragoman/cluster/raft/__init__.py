"""Raft over the metadata partition: a pure core, and what connects it to a node."""
