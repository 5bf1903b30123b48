"""Metrics, log lines and the history of a node.

The catalogue names every metric, with its kind, labels and meaning; snapshots are checked, bounded
and become Prometheus text; log lines are plain text or JSON, one object to a line. `lifecycle` has
the lines about the start and the end of a node. `history` keeps figures of an hour and of a week.
"""
