"""Consumer groups: membership, generations, and one table that all protocols share.

- `messages`: requests and results.
- `registry`: the table of groups, the rule that one protocol owns a group's members, and replay.
- `group`: one entry of the table; `ledger`: its committed and its staged offsets.
- `classic`: Kafka's first protocol, request by request and state by state. `rebalance` has states,
  phases and their ends; `roster` the members, the leader and the vote; `static` returning members.
- `consumer`: Kafka's second protocol (KIP-848), a package of its own.
- `direct`: groups whose members the broker assigns at once, for minibroker and Cursus.
- `parked`: requests that wait; `promises`: member ids not used yet; `timer`: deadlines.
- `memory`: what groups hold in memory, and the bound on it.
- `records`: keys and values in `__consumer_offsets`.
- `ports`: what a group reaches outside itself; `settings`: bounds under Kafka's names.
"""

from __future__ import annotations

from dragoman.broker.groups.consumer import (
    ConsumerGroup,
    ConsumerGroupDescription,
    HeartbeatReply,
    HeartbeatRequest,
)
from dragoman.broker.groups.group import Group, Membership
from dragoman.broker.groups.messages import (
    GroupDescription,
    GroupListing,
    Joined,
    JoinedMember,
    JoinReply,
    JoinRequest,
    LeavingMember,
    MemberDescription,
    State,
    Synced,
    SyncReply,
    SyncRequest,
)
from dragoman.broker.groups.parked import Parked
from dragoman.broker.groups.ports import (
    Catalog,
    ClassicSubscription,
    Dialect,
    NamedPartitions,
    Persist,
    ReadSubscription,
    TopicFacts,
)
from dragoman.broker.groups.records import (
    OFFSETS_TOPIC,
    CommittedOffset,
    StateRecord,
    TopicPartition,
)
from dragoman.broker.groups.registry import Groups
from dragoman.broker.groups.settings import GroupSettings

__all__ = [
    "OFFSETS_TOPIC",
    "Catalog",
    "ClassicSubscription",
    "CommittedOffset",
    "ConsumerGroup",
    "ConsumerGroupDescription",
    "Dialect",
    "Group",
    "GroupDescription",
    "GroupListing",
    "GroupSettings",
    "Groups",
    "HeartbeatReply",
    "HeartbeatRequest",
    "JoinReply",
    "JoinRequest",
    "Joined",
    "JoinedMember",
    "LeavingMember",
    "MemberDescription",
    "Membership",
    "NamedPartitions",
    "Parked",
    "Persist",
    "ReadSubscription",
    "State",
    "StateRecord",
    "SyncReply",
    "SyncRequest",
    "Synced",
    "TopicFacts",
    "TopicPartition",
]
