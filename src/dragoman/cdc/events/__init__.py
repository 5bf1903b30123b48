"""What a row change looks like to those who read topics: envelopes, keys, headers, topics."""

from dragoman.cdc.events.encoder import CapturedTable, Encoder
from dragoman.cdc.events.records import EventRecord, TopicNeeded, build_event_batch
from dragoman.cdc.events.transaction import Transaction

__all__ = [
    "CapturedTable",
    "Encoder",
    "EventRecord",
    "TopicNeeded",
    "Transaction",
    "build_event_batch",
]
