"""The port to etcd's gateway, and the calls that go through it.

A call has exactly one outcome: an answer or a `Failure`. After any failure but a refusal, it is
unknown whether the call had, or will have, an effect; callers that need to know repeat the call in
a way that shows the effect (`leadership.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from dragoman.cluster.etcd import messages as m
from dragoman.errors import DragomanError

Answer = TypeVar("Answer")
Answered: TypeAlias = Callable[[Answer | m.Failure], None]


class Stream(Protocol):
    def close(self) -> None:
        """Stop; no callback is called any more."""
        ...


class Gateway(Protocol):
    """HTTP to the members of etcd, any of which may answer; `net/http_client.py` implements it.

    A callback is never called before the call that it belongs to has returned.
    """

    def request(
        self,
        method: str,
        path: str,
        body: bytes,
        timeout_s: float,
        done: Callable[[int, bytes], None],
    ) -> None:
        """`done` gets status and body; status 0 and the reason when there was no answer in time."""
        ...

    def stream(
        self,
        path: str,
        body: bytes,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> Stream:
        """Calls back with each line; at the end or loss of the connection, with its reason."""
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
        #: Called with errors of the callbacks for answers: unreadable or lost metadata.
        self.on_error: Callable[[DragomanError], None] = _ignore

    def transaction(self, request: m.Transaction, done: Answered[m.TransactionAnswer]) -> None:
        self._post("kv/txn", request, _read_transaction, done)

    def range(self, request: m.Range, done: Answered[m.RangeAnswer]) -> None:
        self._post("kv/range", request, _read_range, done)

    def grant(self, ttl_s: int, done: Answered[m.LeaseAnswer]) -> None:
        self._post("lease/grant", m.Grant(TTL=ttl_s), _read_grant, done)

    def keep_alive(self, lease: int, done: Answered[m.LeaseAnswer]) -> None:
        self._post("lease/keepalive", m.Lease(ID=lease), _read_keep_alive, done)

    def revoke(self, lease: int) -> None:
        """Callers that depend on the end of the lease wait until it expires."""
        self._post("lease/revoke", m.Lease(ID=lease), _read_nothing, _ignore)

    def version(self, done: Answered[m.Version]) -> None:
        self._call("GET", "/version", b"", _read_version, done)

    def watch(
        self,
        keys: tuple[bytes, bytes],
        start_revision: int,
        answered: Answered[m.WatchAnswer],
    ) -> Stream:
        """No callback follows a failure."""
        key, end = keys
        request = m.WatchRequest(
            create_request=m.Watch(
                key=key, range_end=end, start_revision=start_revision, progress_notify=True
            )
        )
        return self._gateway.stream(
            "/v3/watch",
            m.encode(request),
            lambda line: self._hand_over(_read_watch(line), answered),
            lambda reason: self._hand_over(m.Failure(reason), answered),
        )

    def _post(
        self,
        name: str,
        request: object,
        read: Callable[[bytes], Answer | m.Failure],
        done: Answered[Answer],
    ) -> None:
        self._call("POST", f"/v3/{name}", m.encode(request), read, done)

    def _call(
        self,
        method: str,
        path: str,
        body: bytes,
        read: Callable[[bytes], Answer | m.Failure],
        done: Answered[Answer],
    ) -> None:
        def answered(status: int, answer: bytes) -> None:
            if status == 200:
                outcome = read(answer)
            elif status:
                outcome = m.read_failure(answer)
            else:
                outcome = m.Failure(answer.decode("utf-8", "replace"))
            self._hand_over(outcome, done)

        self._gateway.request(method, path, body, self._timeout_s, answered)

    def _hand_over(self, outcome: Answer | m.Failure, taker: Answered[Answer]) -> None:
        try:
            taker(outcome)
        except DragomanError as error:
            self.on_error(error)


def _ignore(_answer: object) -> None:
    return None
