"""All that a group reaches outside itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from dragoman.broker.groups.records import StateRecord
from dragoman.broker.groups.settings import GroupSettings
from dragoman.errors import DragomanError
from dragoman.types import GroupId, TopicName
from dragoman.world import Clock, Random, Scheduler

#: Makes records of a group durable, in the order of the calls, and calls `done` exactly once, at
#: once or later, with the error if they are not.
Persist: TypeAlias = Callable[
    [GroupId, Sequence[StateRecord], Callable[[DragomanError | None], None]], None
]
#: The topics in a member's metadata, given its protocol type; None when they cannot be told.
ReadSubscription: TypeAlias = Callable[[str, bytes], frozenset[TopicName] | None]


class GroupPorts(msgspec.Struct, frozen=True, kw_only=True):
    settings: GroupSettings
    scheduler: Scheduler
    clock: Clock
    random: Random
    persist: Persist
    read_subscription: ReadSubscription
    #: Called when a group has neither members nor anybody who was promised to become one.
    became_idle: Callable[[GroupId], None]
