"""What members of classic Kafka groups send each other, for the coordinator to take part.

A subscription and an assignment are versioned structures inside group requests, opaque to the
broker unless a group has members of both protocols (KIP-848).
"""

from __future__ import annotations

from dragoman.broker.groups import ClassicSubscription, NamedPartitions
from dragoman.errors import DecodeError
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.resources import is_visible
from dragoman.protocols.kafka.notation import versions_of
from dragoman.types import TopicName

_NEWEST = versions_of("ConsumerProtocolAssignment").high


class KafkaGroupDialect:
    def is_visible(self, topic: str) -> bool:
        return is_visible(topic)

    def read_subscription(self, metadata: bytes) -> ClassicSubscription | None:
        try:
            read = codec.decode_versioned(m.ConsumerProtocolSubscription, metadata)
        except DecodeError:
            return None
        return ClassicSubscription(
            topics=frozenset(map(TopicName, read.topics)),
            owned=[(each.topic, each.partitions) for each in read.owned_partitions],
            rack_id=read.rack_id,
        )

    def read_assignment(self, assignment: bytes) -> NamedPartitions | None:
        try:
            read = codec.decode_versioned(m.ConsumerProtocolAssignment, assignment)
        except DecodeError:
            return None
        return [(each.topic, each.partitions) for each in read.assigned_partitions]

    def write_assignment(self, metadata: bytes, partitions: NamedPartitions) -> bytes:
        """The member reads what it writes: its metadata begins with the version it knows."""
        version = min(int.from_bytes(metadata[:2], "big"), _NEWEST)
        topics = [
            m.ConsumerProtocolAssignmentTopic(topic=name, partitions=list(indexes))
            for name, indexes in partitions
        ]
        return codec.encode_versioned(
            m.ConsumerProtocolAssignment(assigned_partitions=topics), version
        )
