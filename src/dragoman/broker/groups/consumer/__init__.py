"""Consumer groups (KIP-848): the coordinator assigns, and each member follows at its own pace.

- `messages`: requests and results, and validation that needs no group.
- `group`: the machine: epochs, target assignment, members that join and leave.
- `members`: the members, their steps towards the target assignment, and who owns each partition.
- `targets`: the target assignment, and the topics it was made for. `assignors` has the algorithms.
- `subscriptions`: names and patterns as topics.
- `unstored`: changes that are not durable yet, and the requests that wait for them.
- `replay`: members while their records are read back.
- `classic_members`: members that still speak the first protocol.
- `conversion`: groups that change from one protocol to the other.
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
