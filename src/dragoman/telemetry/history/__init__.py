"""The history of a node: an hour of samples every 15 s, and a week of 5 min, without Prometheus.

- `figures`: what is kept, and how it follows from the metrics.
- `sampler`: from a snapshot of the metrics to a row; which series are kept, and which combined.
- `ring`: the rows in memory.
- `files`: the same on disk.
- `recorder`: the timer that takes samples, and writes them.
- `ranges`: what was between two times.

Imported after the start of a node, so that it does not delay it.
"""
