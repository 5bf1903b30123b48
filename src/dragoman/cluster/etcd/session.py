"""A node's lease in etcd: what tells the others that it lives, and what its leadership hangs on.

A session is a lease and the node's key bound to it. It ends when etcd says that the lease is gone
or when it was not renewed in time as seen from here; a new one begins at once. Its end proves
nothing about the node: the others suspect it, and whether it may still lead is decided by terms.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import Calls
from dragoman.cluster.etcd.layout import Holder, Keys, to_json
from dragoman.world import Handle, Scheduler


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the quorum is with etcd, and how often it snapshots. Times in seconds."""

    #: For one call; after it the next member is asked.
    call_s: float = 2.0
    #: Before something that failed is tried again.
    retry_s: float = 0.25
    #: How often etcd is looked at beside the watch, which may have died without a word.
    look_s: float = 2.0
    #: How long a proposal waits before its outcome is called unknown.
    outcome_s: float = 10.0
    #: A snapshot is wanted when there are so many entries since the last one.
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
        #: 0 while there is none.
        self.lease = 0
        #: In which the node's key was bound to the lease.
        self.revision = 0
        #: Called when the lease is another.
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
        """A new session."""
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
        """It is over."""
        if self.lease and not self._is_stopped:
            self._calls.revoke(self.lease)
            self._set(0)
            self.start()

    def stop(self) -> None:
        """The others need not wait until the lease expires."""
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
