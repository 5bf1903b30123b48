"""Remote procedure calls: finding the node that serves a request, and calling it.

An error of the called node is raised unchanged. `NotSentError` means that no node got the request,
so nothing was done. `OutcomeUnknownError` means that the answer was lost, so the request may or may
not have been carried out.
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
    """The encoded answer of another node."""

    header: Buffer
    body: memoryview


class Transport(Protocol):
    """The connections to other nodes."""

    def exchange(self, node_id: int, header: bytes, body: Sequence[Buffer], /) -> Outcome[RawReply]:
        """Send a request and wait for its reply. Fails with `NotSentError` or `ClusterError`."""
        ...


class NoTransport:
    """The transport of a node without peers, or before it connects to them."""

    def exchange(self, node_id: int, _header: bytes, _body: Sequence[Buffer]) -> Outcome[RawReply]:
        outcome: Outcome[RawReply] = Outcome()
        outcome.fail(NotSentError(f"node {node_id} cannot be reached"))
        return outcome


class Directory(Protocol):
    """Maps a location to the responsible node."""

    async def locate(self, where: Where, /) -> int:
        """The responsible node. Raises `NotLeader`, `CoordinatorNotAvailable` and the like while
        there is none.
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
        #: Replaced by the composition root once connections exist.
        self.transport: Transport = NoTransport()
        #: Whether the node is stopping, in which case nothing is retried.
        self.is_stopping: Callable[[], bool] = lambda: False

    async def call(self, request: Request[A], at: Where, body: Sequence[Buffer] = ()) -> A:
        """Call the responsible node, and return the answer without its body."""
        return (await self.exchange(request, at, body)).answer

    async def exchange(
        self, request: Request[A], at: Where, body: Sequence[Buffer] = ()
    ) -> Reply[A]:
        """Call the responsible node. Transient errors are retried as the type of the request
        declares.
        """
        retry = request.retry

        async def once() -> Reply[A]:
            return await self._once(request, at, body)

        if retry is None:
            return await once()
        return await retried(retry, self._scheduler, once, self.is_stopping)

    def begin(
        self, request: Request[A], at: Where, body: Sequence[Buffer] = ()
    ) -> Outcome[Reply[A]]:
        """`call` for callers with a callback."""
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
