"""Which internal topics a client may write to, and what.

They are the broker's own, with two exceptions: attempts of a publication bring their records to the
staging topic, and transactions may write to topics that are reserved for them. A process that
captures a database, for example, commits its position in one transaction with the rows.
"""

from __future__ import annotations

from dragoman.broker.errors import InvalidRecord, NotAuthorized
from dragoman.broker.staged_writes.publication import STAGING_TOPIC
from dragoman.broker.staged_writes.staging_topic import STAGING_EPOCH
from dragoman.broker.topics import Topics
from dragoman.cluster.metadata import TopicMetadata
from dragoman.log.batch import BatchHeader


def check_writable(
    topics: Topics, topic: TopicMetadata, header: BatchHeader, transactional_id: str | None
) -> None:
    """Whether a client may write this batch to the topic. Raises `NotAuthorized`."""
    if not topic.is_internal:
        return
    if topic.name == STAGING_TOPIC and header.producer_epoch == STAGING_EPOCH:
        if header.is_transactional:
            raise InvalidRecord("staged records cannot be part of a transaction")
        return
    if header.is_transactional and topics.accepts_transaction(topic.name, transactional_id):
        return
    raise NotAuthorized(f"topic {topic.name!r} is written by the broker only")
