"""Atomic publication: records that were staged aside appear in their topics exactly once.

Writers such as Spark work in task attempts, some of which die and some of which run twice. Each
attempt stages its records in an internal topic. One request at the end names the attempts that
count, and the broker copies their records, and no others, into their topics.

- A writer is a value with a binary form in an internal topic of its own.
- Staged batches are read a piece at a time, from this node or another one.
- The publisher commits a decision, then rolls it forward.
- The leader of each destination checks staged records first, and appends them after the decision.
- A service connects the publisher to the broker and to other nodes.

The writer's coordinator decides; the leader of each destination checks and copies.
"""

from dragoman.broker.publications import Destination, Piece, Publication, Target
from dragoman.broker.publishing.publisher import Publisher
from dragoman.broker.publishing.service import Publishing
from dragoman.broker.publishing.staging import STAGING_EPOCH, StagingPlace
from dragoman.broker.publishing.state import STAGING_TOPIC, Writer

__all__ = [
    "STAGING_EPOCH",
    "STAGING_TOPIC",
    "Destination",
    "Piece",
    "Publication",
    "Publisher",
    "Publishing",
    "StagingPlace",
    "Target",
    "Writer",
]
