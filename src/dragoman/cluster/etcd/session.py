"""A node's session in etcd: it shows that the node is live, and its leadership depends on it.

A session is a lease and the node's key bound to it. It ends when etcd reports that the lease is
gone, or when this node could not renew it in time; a new one begins at once. Its end proves nothing
about the node: others suspect it, and terms decide whether it may still lead.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import Calls
from dragoman.cluster.etcd.layout import Holder, Keys, to_json
from dragoman.world import Handle, Scheduler


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Time-outs for etcd and the snapshot interval. Times in seconds."""

    #: Time-out of one call, after which the next member is called.
    call_s: float = 2.0
    #: Pause before a retry.
    retry_s: float = 0.25
    #: Interval of looks beside the watch, which may have died unnoticed.
    look_s: float = 2.0
    #: Time-out of a proposal, after which its outcome is unknown.
    outcome_s: float = 10.0
    #: Number of entries since the last snapshot that make a new one due.
    snapshot_entries: int = 10_000


class Session:
    def __init__(
        self,
        calls: Calls,
        keys: Keys,
        scheduler: Scheduler,
        settings: Settings,
        holder: Holder,
        ttl_s: int,
    ) -> None:
        self.holder = holder
        #: The id of the lease; 0 while there is none.
        self.lease = 0
        #: The revision in which the node's key was bound to the lease.
        self.revision = 0
        #: Called when the lease changes.
        self.on_change: Callable[[], None] = lambda: None
        self._calls = calls
        self._key = keys.node(holder.node)
        self._scheduler = scheduler
        self._settings = settings
        self._ttl_s = ttl_s
        self._next: Handle | None = None
        self._expiry: Handle | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin a new session."""
        since = self._scheduler.time()

        def granted(answer: m.LeaseAnswer | m.Failure) -> None:
            if self._is_stopped:
                return
            if isinstance(answer, m.Failure):
                self._later(self._settings.retry_s, self.start)
            else:
                self._announce(answer.ID, since)

        self._calls.grant(self._ttl_s, granted)

    def lost(self) -> None:
        """End the session."""
        if self.lease and not self._is_stopped:
            self._calls.revoke(self.lease)
            self._set(0)
            self.start()

    def stop(self) -> None:
        """Revoke the lease, so that other nodes need not wait until it expires."""
        if self.lease:
            self._calls.revoke(self.lease)
        self._is_stopped = True
        self.lease = 0
        for timer in (self._next, self._expiry):
            if timer is not None:
                timer.cancel()

    def _announce(self, lease: int, since: float) -> None:
        put = m.Put(key=self._key, value=to_json(self.holder), lease=lease)

        def announced(answer: m.TransactionAnswer | m.Failure) -> None:
            if self._is_stopped or isinstance(answer, m.Failure):
                self._calls.revoke(lease)
                self._later(self._settings.retry_s, self.start)
                return
            self.revision = answer.header.revision
            self._kept(since)
            self._set(lease)

        self._calls.transaction(m.Transaction(success=m.puts(put)), announced)

    def _keep(self) -> None:
        lease, sent_at = self.lease, self._scheduler.time()

        def kept(answer: m.LeaseAnswer | m.Failure) -> None:
            if lease != self.lease:
                return
            if isinstance(answer, m.Failure):
                self._later(self._settings.retry_s, self._keep)
            elif answer.TTL:
                self._kept(sent_at)
            else:
                self.lost()

        self._calls.keep_alive(lease, kept)

    def _kept(self, sent_at: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        left_s = max(0.0, sent_at + self._ttl_s - self._scheduler.time())
        self._expiry = self._scheduler.call_later(left_s, self.lost)
        self._later(self._ttl_s / 3, self._keep)

    def _set(self, lease: int) -> None:
        self.lease = lease
        if not lease:
            for timer in (self._next, self._expiry):
                if timer is not None:
                    timer.cancel()
        self.on_change()

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        if self._next is not None:
            self._next.cancel()
        if not self._is_stopped:
            self._next = self._scheduler.call_later(seconds, callback)
