"""The simulated world: every port of `dragoman.world`, driven by one seed.

- A scheduler has virtual time; many event loops, one per node and client, share it.
- The disk keeps only what it promised when the power fails: it tears writes, loses names, flips
  bits.
- The network delays and splits bytes, cuts one direction between hosts, and resets connections.
- A node runs whole on its loop and disk, over many lives. The power-cut runner uses a disk, cuts
  the power anywhere, restarts and checks.

The same seed repeats a run operation for operation, so a failure is reported as its seed.
"""
