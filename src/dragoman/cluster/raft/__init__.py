"""Raft over the metadata partition: a pure core, and the driver that connects it to a node.

- The core of one voter takes events and returns messages and effects. It knows no file, socket or
  clock. The state of a leader is separate, and made anew with each election.
- Membership says who votes, and which changes are allowed.
- Messages have one binary form; snapshots travel in pieces.
- The driver runs the core on the node's ports; the storage keeps entries in an ordinary partition,
  ballots in its journal, and the snapshot in one file.
- Two readers work without a quorum: one shows the metadata of a data directory, one reconstructs
  the metadata of a single node after damage.
"""
