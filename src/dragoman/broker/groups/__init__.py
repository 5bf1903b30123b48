"""Consumer groups: membership, generations, and the table that all protocols share.

messages   requests and results
registry   the table of groups, the one-owner rule, records in
group      one entry of it
ledger     its committed and staged offsets
classic    what each request meets in each state
rebalance  states, phases, answers
static     static members that come back
roster     members, leader, vote
consumer   Kafka's second protocol (KIP-848), a package of its own
parked     requests that wait; promises: member ids not used yet; timer: deadlines
records    keys and values of the internal topic
ports      all that a group reaches outside itself; settings: under Kafka's names
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
