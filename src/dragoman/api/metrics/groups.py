"""Groups, transactions and delayed records that this node coordinates or stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dragoman.broker.groups.messages import State
from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.api.node_ports import NodeBroker

#: Groups that are looked at between two pauses.
_AT_ONCE = 1000


def group_stats(broker: NodeBroker) -> Iterator[Stats]:
    states: Counter[tuple[str, ...]] = Counter({(state,): 0 for state in State})
    members = 0
    for number, group in enumerate(broker.coordination.groups.table):
        membership = group.membership
        states[(State.EMPTY if membership is None else membership.state,)] += 1
        members += 0 if membership is None else membership.member_count
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield {}
    transactions = broker.coordination.transactions.coordinator.stats()
    yield {
        "groups": states,
        "group_members": members,
        "transactions_open": transactions.ongoing,
        "transactional_ids": transactions.transactional_ids,
        "delayed_records": broker.delayed.store.record_count,
    }
