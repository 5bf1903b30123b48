"""The metadata quorum by Raft: what drives the core with a node's log, timers and connections.

- `quorum` is the state machine: it applies committed entries to the metadata image.
- `driver` calls the core, sends its messages and carries out its effects.
- `storage` keeps entries in an ordinary partition, ballots in its journal, and the snapshot in one
  file.
- `salvage` works without a quorum: it reads the metadata of a data directory, and rebuilds that of
  a single node after damage.
"""
