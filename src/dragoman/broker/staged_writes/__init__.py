"""Atomic publication: records that were staged aside appear in their topics exactly once.

Writers such as Spark work in task attempts, some of which die and some of which run twice. Each
attempt stages its records in an internal topic. One request at the end names the attempts that
count, and the broker copies their records, and no others, into their topics.

- `publication`: what is published, and by whom, as values: pieces of staged records, their
  destinations, and writers; `records`: the binary form of a writer in an internal topic.
- `staging_topic`: the topic in which attempts stage their records, and what may be removed from it.
- `destinations`: what the leader of a destination does: read staged records slice by slice, from
  this node or another one, check them, and append them.
- `publisher`: the coordinator of a writer: it commits a decision, then rolls it forward.
- `service`: the publisher connected to its internal topic and to other nodes.
"""

from dragoman.broker.staged_writes.publication import (
    STAGING_TOPIC,
    Destination,
    Piece,
    Publication,
    Target,
    Writer,
)
from dragoman.broker.staged_writes.publisher import Publisher
from dragoman.broker.staged_writes.service import StagedWrites
from dragoman.broker.staged_writes.staging_topic import STAGING_EPOCH, StagingPlace

__all__ = [
    "STAGING_EPOCH",
    "STAGING_TOPIC",
    "Destination",
    "Piece",
    "Publication",
    "Publisher",
    "StagedWrites",
    "StagingPlace",
    "Target",
    "Writer",
]
