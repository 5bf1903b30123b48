"""The durable log: journal, segments, recovery and cleaning. It knows bytes, offsets and files.

- The store owns all logs of a node: group commit to the journal, write-behind to segments,
  checkpoints, start and stop. A process syncs files in the background.
- A partition owns its segments, leader epochs, producer state and offsets. The most recent batches
  stay in memory for readers at the end of the log.
- A segment has one file of batches and one sparse index; a manifest lists the segments.
- The reader checks every batch before it returns it; damage is reported with the offsets it costs.
- Recovery replays the journal into the segments. Cleaning is retention and compaction.
- Tools without a broker inspect, repair and adopt a data directory; leases pin segment files for
  readers outside the process.

The layout of each file is drawn in `docs/reference/format.md`.
"""
