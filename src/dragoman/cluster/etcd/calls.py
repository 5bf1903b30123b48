"""The port to etcd's gateway, and the calls that go through it.

A call returns an answer or raises `CallFailedError`. Unless etcd refused it, the effect of a call
that failed is unknown: it may have happened, or may still happen. `leadership.py` repeats such a
call in a way that finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

from dragoman.cluster.etcd import messages as m
from dragoman.errors import ClusterError, DragomanError
from dragoman.outcome import Outcome, ignore, start

Answer = TypeVar("Answer")


class CallFailedError(ClusterError):
    """A call without an answer."""

    def __init__(self, failure: m.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Stream(Protocol):
    def close(self) -> None:
        """End the stream; no more callbacks."""
        ...


class Gateway(Protocol):
    """HTTP to any member of etcd that answers; `net/http_client.py` is the real one.

    Outcomes are settled, and callbacks come, after the call that they belong to has returned.
    """

    def request(
        self, method: str, path: str, body: bytes, timeout_s: float
    ) -> Outcome[tuple[int, bytes]]:
        """Status and body; status 0 and the reason if no answer came in time."""
        ...

    def stream(
        self,
        path: str,
        body: bytes,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> Stream:
        """Lines until the stream ends or the connection is lost; `on_end` gets the reason."""
        ...


_read_transaction = m.reader(m.TransactionAnswer)
_read_range = m.reader(m.RangeAnswer)
_read_grant = m.reader(m.LeaseAnswer)
_read_keep_alive = m.stream_reader(m.LeaseAnswer)
_read_watch = m.stream_reader(m.WatchAnswer)
_read_version = m.reader(m.Version)
_read_nothing = m.reader(m.Empty)


class Calls:
    def __init__(self, gateway: Gateway, timeout_s: float) -> None:
        self._gateway = gateway
        self._timeout_s = timeout_s
        #: Called with an error that ends the handling of an answer: metadata that cannot be read,
        #: or that is lost.
        self.on_error: Callable[[DragomanError], None] = ignore

    def run(self, work: Coroutine[object, None, None]) -> None:
        """Run a coroutine that makes calls. An error that it raises goes to `on_error`."""
        start(work).then(self._ended)

    def _ended(self, error: DragomanError | None) -> None:
        if error is not None:
            self.on_error(error)

    async def transaction(self, request: m.Transaction) -> m.TransactionAnswer:
        return await self._post("kv/txn", request, _read_transaction)

    async def range(self, request: m.Range) -> m.RangeAnswer:
        return await self._post("kv/range", request, _read_range)

    async def grant(self, ttl_s: int) -> m.LeaseAnswer:
        return await self._post("lease/grant", m.Grant(TTL=ttl_s), _read_grant)

    async def keep_alive(self, lease: int) -> m.LeaseAnswer:
        return await self._post("lease/keepalive", m.Lease(ID=lease), _read_keep_alive)

    def revoke(self, lease: int) -> None:
        """Give a lease back, without waiting; if the call fails, the lease expires."""
        start(self._post("lease/revoke", m.Lease(ID=lease), _read_nothing)).then(ignore)

    async def version(self) -> m.Version:
        return await self._call("GET", "/version", b"", _read_version)

    def watch(
        self,
        keys: tuple[bytes, bytes],
        start_revision: int,
        on_answer: Callable[[m.WatchAnswer | m.Failure], None],
    ) -> Stream:
        """A failure is the last thing that `on_answer` gets."""
        key, end = keys
        request = m.WatchRequest(
            create_request=m.Watch(
                key=key, range_end=end, start_revision=start_revision, progress_notify=True
            )
        )
        return self._gateway.stream(
            "/v3/watch",
            m.encode(request),
            lambda line: self._report(_read_watch(line), on_answer),
            lambda reason: self._report(m.Failure(reason), on_answer),
        )

    async def _post(
        self, name: str, request: object, read: Callable[[bytes], Answer | m.Failure]
    ) -> Answer:
        return await self._call("POST", f"/v3/{name}", m.encode(request), read)

    async def _call(
        self, method: str, path: str, body: bytes, read: Callable[[bytes], Answer | m.Failure]
    ) -> Answer:
        status, answer = await self._gateway.request(method, path, body, self._timeout_s)
        if status == 200:
            found = read(answer)
        elif status:
            found = m.read_failure(answer)
        else:
            found = m.Failure(answer.decode("utf-8", "replace"))
        if isinstance(found, m.Failure):
            raise CallFailedError(found)
        return found

    def _report(
        self,
        answer: m.WatchAnswer | m.Failure,
        on_answer: Callable[[m.WatchAnswer | m.Failure], None],
    ) -> None:
        try:
            on_answer(answer)
        except DragomanError as error:
            self.on_error(error)
