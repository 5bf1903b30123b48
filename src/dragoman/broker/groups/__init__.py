"""Consumer groups: membership, generations, and one table that all protocols share.

- `messages`: requests and results.
- `coordinator`: the groups of a node, joined to the internal topic that keeps them.
- `registry`: the table of groups, the rule that one protocol owns a group's members, and replay.
- `group`: one entry of the table, with its committed and its staged offsets.
- `offsets`: which commits are valid, and the records that they write.
- `classic`: Kafka's first protocol, request by request and state by state, and static members that
  come back. `rebalance` has the states and phases of a group, and its members.
- `consumer`: Kafka's second protocol (KIP-848), a package of its own.
- `direct`: groups whose members the broker assigns at once, for minibroker and Cursus.
- `remote_members`: members of such groups whose clients are connected to other nodes.
- `waits`: deadlines, member ids that were given out, and requests that wait.
- `records`: keys and values in `__consumer_offsets`.
- `ports`: what a group reaches outside itself, and settings under Kafka's names.
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
from dragoman.broker.groups.ports import (
    Catalog,
    ClassicSubscription,
    Dialect,
    GroupSettings,
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
from dragoman.broker.groups.waits import Parked

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
