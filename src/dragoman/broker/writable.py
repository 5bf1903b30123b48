"""Which internal topics a client may write to, and what.

They are the broker's own, with two exceptions: attempts of a publication bring their records to the
staging topic, and what captures a database keeps its position beside the records that it has got to
that position with, in one transaction with them.
"""

from __future__ import annotations

from dragoman.broker.errors import InvalidRecord, NotAuthorized
from dragoman.broker.staged_writes.publication import STAGING_TOPIC
from dragoman.broker.staged_writes.staging_topic import STAGING_EPOCH
from dragoman.captures.definition import POSITIONS_TOPIC, TRANSACTIONAL_PREFIX
from dragoman.cluster.metadata import TopicMetadata
from dragoman.log.batch import BatchHeader


def check_writable(topic: TopicMetadata, header: BatchHeader, transactional_id: str | None) -> None:
    """Whether a client may write this batch to the topic. Raises `NotAuthorized`."""
    if not topic.is_internal:
        return
    if topic.name == STAGING_TOPIC and header.producer_epoch == STAGING_EPOCH:
        if header.is_transactional:
            raise InvalidRecord("staged records cannot be part of a transaction")
        return
    is_capture = (transactional_id or "").startswith(TRANSACTIONAL_PREFIX)
    if topic.name == POSITIONS_TOPIC and header.is_transactional and is_capture:
        return
    raise NotAuthorized(f"topic {topic.name!r} is written by the broker only")
