"""Consumer groups (KIP-848): the coordinator assigns, members follow.

messages         requests and results
group            the machine: epochs, target assignment, who comes and goes
reconcile        the next step of one member
assignors        who is to read what
subscriptions    names and patterns, as topics; patterns: RE2
member, roster   members, and which of them has each partition
unstored         what is not durable yet, and who waits for it
classic_members  members that still speak the first protocol
conversion       groups that change from one protocol to the other
"""

from __future__ import annotations

from dragoman.broker.groups.consumer.group import ConsumerGroup
from dragoman.broker.groups.consumer.messages import (
    JOIN,
    LEAVE,
    LEAVE_FOR_NOW,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    HeartbeatReply,
    HeartbeatRequest,
    PartitionOf,
    Partitions,
    by_topic,
    flattened,
)

__all__ = [
    "JOIN",
    "LEAVE",
    "LEAVE_FOR_NOW",
    "ConsumerGroup",
    "ConsumerGroupDescription",
    "ConsumerMemberDescription",
    "HeartbeatReply",
    "HeartbeatRequest",
    "PartitionOf",
    "Partitions",
    "by_topic",
    "flattened",
]
