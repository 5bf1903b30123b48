"""Delayed and held records: stored durably, and appended to their partition exactly once when due.

Protocols use it for delays, retries, and messages that wait for the outcome of a transaction.

- `state`: the records of one partition of the internal topic in memory: times and offsets, never
  bodies; `records`: their binary form in the topic.
- `listing`: pages of the records that wait for a topic.
- `store`: the records that this node stores, and the timer.
- `delivery`: when records are due, a decision is committed, then they are appended to their target.
- `held_records`: decisions about held records. Producers are asked about those whose fate is
  undecided; after a few attempts a record is given up.
- `targets`: the leader of a target partition, and the limits of its topic.
- `service`: all of it for protocols on any node.
"""

from dragoman.broker.delayed.listing import FIRST, Place
from dragoman.broker.delayed.records import TOPIC as DELAYED_TOPIC
from dragoman.broker.delayed.records import Stored
from dragoman.broker.delayed.service import DelayedRecords
from dragoman.broker.delayed.state import Content, Phase, Target, Token

__all__ = [
    "DELAYED_TOPIC",
    "FIRST",
    "Content",
    "DelayedRecords",
    "Phase",
    "Place",
    "Stored",
    "Target",
    "Token",
]
