"""Events: changes of rows as records.

- Envelopes shape the value: pgcdc's, Debezium's and a flat one.
- Tables and columns decide topic, key and masking; the encoder of a row is compiled once per table.
- Transactions put their identity into the headers of their records.
- Messages of applications (rows of an outbox, payloads of NOTIFY) have encoders of their own, and
  so have marks: begin and commit of a transaction, heartbeats, changed schemas, start and end of a
  snapshot.
"""

from dragoman.cdc.events.encoder import CapturedTable, Encoder
from dragoman.cdc.events.records import EventRecord, TopicNeeded, Transaction, build_event_batch

__all__ = [
    "CapturedTable",
    "Encoder",
    "EventRecord",
    "TopicNeeded",
    "Transaction",
    "build_event_batch",
]
