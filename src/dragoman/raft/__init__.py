"""Raft: the pure core of one voter, which knows no file, socket, clock or metadata.

- `core` takes events and returns messages and effects; `leadership` is the state of a leader,
  created with each election won.
- `membership` says who votes, and which changes are allowed.
- `messages` have one binary form; `snapshots` travel in pieces.
- `ports` are what the core needs of a node: a log, a ballot, the entries that it writes for itself.

`cluster.raft_quorum` drives the core for the metadata of a cluster.
"""
