"""Captures of databases: which there are, which node runs which, and how they are.

What a capture is told is metadata, agreed on like topics. Each has a partition of the internal
topic of positions, and whoever leads that partition runs it; so it moves when the leader does.
"""

from dragoman.broker.capturing.service import Capturing

__all__ = ["Capturing"]
