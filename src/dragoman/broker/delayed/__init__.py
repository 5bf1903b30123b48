"""Delayed and held records: stored durably, and appended to their partition exactly once when due.

Protocols use it for delays, retries, and messages that wait for the outcome of a transaction.

- Each partition of the internal topic has an in-memory index of times and offsets, never of bodies.
- When records are due, a decision is committed, and then they are appended to their target.
- Producers are asked about held records whose fate is undecided; after a few attempts a record is
  given up.
- The leader of a target partition, and the limits of its topic, are found for each delivery.
- A service offers all of it to protocols on any node, and forwards to the node that holds a record.
"""

from dragoman.broker.delayed.records import TOPIC as DEFERRED_TOPIC
from dragoman.broker.delayed.service import DelayedRecords
from dragoman.broker.delayed.state import Content, Target, Token

__all__ = ["DEFERRED_TOPIC", "Content", "DelayedRecords", "Target", "Token"]
