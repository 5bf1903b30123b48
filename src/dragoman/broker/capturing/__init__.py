"""Captures on the nodes of a cluster: which captures exist, which node runs each, and their status.

The definition of a capture is metadata, committed like a topic. Each capture maps to a partition of
the internal topic of positions, and the leader of that partition runs the capture, which therefore
moves when the leader changes.

- The service answers for captures on any node, wherever they run.
- A supervisor keeps the process of one capture alive, and passes requests to it.
- Removal drops what a capture created in its database, after its process has ended.
- The ports say what the core needs from the process runner of a real node.
"""

from dragoman.broker.capturing.service import Capturing

__all__ = ["Capturing"]
