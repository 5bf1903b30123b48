"""Calls to the leaders of many partitions.

Every leader gets one request for its partitions, concurrently. Partitions whose leader failed or
refused are retried at their current leader, until each has a result or the operation times out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeAlias, TypeVar

import msgspec

from dragoman.client_core.errors import ClientError
from dragoman.client_core.retry import Result, is_retriable
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.cluster import Cluster, Located
from dragoman.protocols.kafka.client.errors import KafkaError
from dragoman.protocols.kafka.client.values import TopicPartition

Wanted = TypeVar("Wanted")


class Part(msgspec.Struct, Generic[Wanted], frozen=True):
    """The request about one partition, and the fields that a request to its leader needs."""

    wanted: Wanted
    topic_id: bytes
    leader_epoch: int


Outcome: TypeAlias = Result | KafkaError
AskLeader: TypeAlias = Callable[
    [Broker, Mapping[TopicPartition, Part[Wanted]]],
    Awaitable[Mapping[TopicPartition, Outcome[Result]]],
]


async def from_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, Wanted],
    ask: AskLeader[Wanted, Result],
    *,
    may_retry: Callable[[ClientError], bool] = is_retriable,
) -> dict[TopicPartition, Result]:
    """Call every leader for its partitions, concurrently, until each partition has a result.

    `ask` receives the partitions of one leader and returns a result or an error for each. Raises
    the first error that is not retriable, and drops the results of the other partitions.
    """
    results: dict[TopicPartition, Result] = {}

    async def attempt() -> None:
        missing = {where: each for where, each in wanted.items() if where not in results}
        for outcome in await asyncio.gather(
            *(ask(broker, parts) for broker, parts in (await _by_leader(cluster, missing)).items()),
            return_exceptions=True,
        ):
            if isinstance(outcome, BaseException):
                failed.append(outcome)
                continue
            for where, each in outcome.items():
                if isinstance(each, KafkaError):
                    failed.append(each)
                else:
                    results[where] = each
        _raise_worst(failed, cluster)

    failed: list[BaseException] = []
    await cluster.retry.call(attempt, may_retry=may_retry)
    assert results.keys() == wanted.keys()
    return results


def _raise_worst(failed: list[BaseException], cluster: Cluster) -> None:
    """Raise one of the errors, preferably one that is not retriable."""
    errors, failed[:] = list(failed), []
    for error in errors:
        if not isinstance(error, ClientError):
            raise error
        cluster.forget(error)
    errors.sort(key=lambda error: getattr(error, "retriable", False))
    if errors:
        raise errors[0]


async def _by_leader(
    cluster: Cluster, wanted: Mapping[TopicPartition, Wanted]
) -> dict[Broker, dict[TopicPartition, Part[Wanted]]]:
    groups: dict[Broker, dict[TopicPartition, Part[Wanted]]] = {}
    for where, each in wanted.items():
        located: Located = await cluster.leader(where)
        part = Part(each, located.topic_id, located.leader_epoch)
        groups.setdefault(located.broker, {})[where] = part
    return groups
