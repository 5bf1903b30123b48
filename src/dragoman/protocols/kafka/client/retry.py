"""Trying again: one loop for every call of the client, and the spreading of a call over leaders.

An attempt that fails with a retriable error is repeated after a pause, with whatever the error
shows to be outdated forgotten, until the operation's time is up. The last error is what the caller
gets, so that it says what was wrong and not merely that time passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeAlias, TypeVar

import msgspec

from dragoman.client_core.errors import ClientError
from dragoman.protocols.kafka.client.cluster import Cluster, Located
from dragoman.protocols.kafka.client.errors import KafkaError
from dragoman.protocols.kafka.client.peer import Peer
from dragoman.protocols.kafka.client.values import TopicPartition
from dragoman.world import Random

Result = TypeVar("Result")
Wanted = TypeVar("Wanted")


def is_retriable(error: ClientError) -> bool:
    return error.retriable


class Retrying:
    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    async def until_done(
        self,
        attempt: Callable[[], Awaitable[Result]],
        *,
        is_worth_it: Callable[[ClientError], bool] = is_retriable,
    ) -> Result:
        """The result of the first attempt that succeeds.

        Raises the error of the last attempt: the first that is not worth a retry, or the one after
        which the time was up.
        """
        loop = asyncio.get_running_loop()
        settings = self._cluster.settings
        deadline = loop.time() + settings.operation_timeout_s
        failures = 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                self._cluster.forget(error)
                failures += 1
                pause = settings.backoff_s(failures, self._random)
                if not is_worth_it(error) or loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)


class Calls:
    """What every call of the client works with."""

    def __init__(self, cluster: Cluster, retrying: Retrying) -> None:
        self._cluster = cluster
        self._retrying = retrying


class Part(msgspec.Struct, Generic[Wanted], frozen=True):
    """What is wanted of one partition, and what its leader has to be told."""

    wanted: Wanted
    topic_id: bytes
    leader_epoch: int


Outcome: TypeAlias = Result | KafkaError
AskLeader: TypeAlias = Callable[
    [Peer, Mapping[TopicPartition, Part[Wanted]]],
    Awaitable[Mapping[TopicPartition, Outcome[Result]]],
]


async def from_leaders(
    retrying: Retrying,
    cluster: Cluster,
    wanted: Mapping[TopicPartition, Wanted],
    ask: AskLeader[Wanted, Result],
    *,
    is_worth_it: Callable[[ClientError], bool] = is_retriable,
) -> dict[TopicPartition, Result]:
    """Ask every leader for its partitions, side by side, until each partition has a result.

    `ask` gets the partitions of one leader and returns a result or an error for each. Raises the
    first error that is not retriable; what others answered is dropped then.
    """
    results: dict[TopicPartition, Result] = {}

    async def attempt() -> None:
        missing = {where: each for where, each in wanted.items() if where not in results}
        for outcome in await asyncio.gather(
            *(ask(peer, parts) for peer, parts in (await _by_leader(cluster, missing)).items()),
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
    await retrying.until_done(attempt, is_worth_it=is_worth_it)
    assert results.keys() == wanted.keys()
    return results


def _raise_worst(failed: list[BaseException], cluster: Cluster) -> None:
    """Errors that no retry can cure come first."""
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
) -> dict[Peer, dict[TopicPartition, Part[Wanted]]]:
    groups: dict[Peer, dict[TopicPartition, Part[Wanted]]] = {}
    for where, each in wanted.items():
        located: Located = await cluster.leader(where)
        part = Part(each, located.topic_id, located.leader_epoch)
        groups.setdefault(located.peer, {})[where] = part
    return groups
