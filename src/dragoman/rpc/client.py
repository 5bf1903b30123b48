"""Finding the node that serves a request, and asking it.

An error of the called node is raised as it is. Where a request did not reach any node, nothing was
done, and that is a `NotSentError`; where its answer was lost, whether it was carried out cannot be
known, and that is an `OutcomeUnknownError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from dragoman.errors import ClusterError, NotSentError, OutcomeUnknownError
from dragoman.outcome import Outcome, retried, start
from dragoman.rpc.messages import A, Reply, Request, Where
from dragoman.rpc.registry import Registry
from dragoman.types import Buffer
from dragoman.world import Scheduler


class RawReply(msgspec.Struct, frozen=True):
    """What another node has answered, as bytes."""

    header: Buffer
    body: memoryview


class Transport(Protocol):
    """The connections to other nodes."""

    def exchange(self, node_id: int, header: bytes, body: Sequence[Buffer], /) -> Outcome[RawReply]:
        """Send a request and wait for its reply. Fails with `NotSentError` or `ClusterError`."""
        ...


class NoTransport:
    """For a node that is alone, or has not begun to connect."""

    def exchange(self, node_id: int, _header: bytes, _body: Sequence[Buffer]) -> Outcome[RawReply]:
        outcome: Outcome[RawReply] = Outcome()
        outcome.fail(NotSentError(f"node {node_id} cannot be reached"))
        return outcome


class Directory(Protocol):
    """Knows which node is responsible for what."""

    async def locate(self, where: Where, /) -> int:
        """The node. Raises `NotLeader`, `CoordinatorNotAvailable` and the like while there is
        none.
        """
        ...


class Rpc:
    def __init__(
        self, node_id: int, registry: Registry, directory: Directory, scheduler: Scheduler
    ) -> None:
        self._node_id = node_id
        self._registry = registry
        self._directory = directory
        self._scheduler = scheduler
        #: The composition root replaces it once there are connections.
        self.transport: Transport = NoTransport()
        #: Whether the node stops: nothing is tried again then.
        self.is_stopping: Callable[[], bool] = lambda: False

    async def call(self, request: Request[A], at: Where, body: Sequence[Buffer] = ()) -> A:
        """Have a request served, and get its answer without its body."""
        return (await self.exchange(request, at, body)).answer

    async def exchange(
        self, request: Request[A], at: Where, body: Sequence[Buffer] = ()
    ) -> Reply[A]:
        """Have a request served. Transient errors are retried as the type of the request says."""
        retry = request.retry

        async def once() -> Reply[A]:
            return await self._once(request, at, body)

        if retry is None:
            return await once()
        return await retried(retry, self._scheduler, once, self.is_stopping)

    def begin(
        self, request: Request[A], at: Where, body: Sequence[Buffer] = ()
    ) -> Outcome[Reply[A]]:
        """The same for callers that are called back."""
        return start(self.exchange(request, at, body))

    async def _once(self, request: Request[A], at: Where, body: Sequence[Buffer]) -> Reply[A]:
        node_id = await self._directory.locate(at)
        if node_id == self._node_id:
            joined = body[0] if len(body) == 1 else b"".join(body)
            return await self._registry.run(node_id, request, memoryview(joined))
        header = msgspec.msgpack.encode(request)
        try:
            reply = await self.transport.exchange(node_id, header, body)
        except (NotSentError, OutcomeUnknownError):
            raise
        except ClusterError as error:
            raise OutcomeUnknownError(str(error)) from None
        return Reply(self._registry.decode_answer(request, reply.header), (reply.body,))
