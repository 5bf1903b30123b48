"""A node's lease in etcd: it shows other nodes that this one lives, and leadership depends on it.

A session is a lease and the node's key bound to it. It ends when etcd reports that the lease is
gone, or when the lease was not renewed in time by this node's clock; a new one begins at once. The
end of a session proves nothing about the node: the others suspect it, and terms decide whether it
may still lead.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import Calls
from dragoman.cluster.etcd.layout import Holder, Keys, to_json
from dragoman.errors import DragomanError
from dragoman.outcome import attempt
from dragoman.world import Handle, Scheduler


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the quorum is with etcd, and how often it snapshots. Times are in seconds."""

    #: The timeout of one call; the next call goes to the next member of etcd.
    call_s: float = 2.0
    #: The pause before a retry.
    retry_s: float = 0.25
    #: How often all keys are read beside the watch, which may have died silently.
    look_s: float = 2.0
    #: Time-out of a proposal, after which its outcome is unknown.
    outcome_s: float = 10.0
    #: A snapshot is due after so many entries since the last one.
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
        #: The lease; 0: there is none.
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
        self._calls.run(self._begin())

    async def _begin(self) -> None:
        since = self._scheduler.time()
        granted = await attempt(self._calls.grant(self._ttl_s))
        if self._is_stopped:
            return
        if isinstance(granted, DragomanError):
            self._later(self._settings.retry_s, self.start)
            return
        lease = granted.ID
        put = m.Put(key=self._key, value=to_json(self.holder), lease=lease)
        announced = await attempt(self._calls.transaction(m.Transaction(success=m.puts(put))))
        if self._is_stopped or isinstance(announced, DragomanError):
            self._calls.revoke(lease)
            self._later(self._settings.retry_s, self.start)
            return
        self.revision = announced.header.revision
        self._kept(since)
        self._set(lease)

    def lost(self) -> None:
        """The session is over: begin another."""
        if self.lease and not self._is_stopped:
            self._calls.revoke(self.lease)
            self._set(0)
            self.start()

    def stop(self) -> None:
        """Give the lease back, so that other nodes need not wait until it expires."""
        if self.lease:
            self._calls.revoke(self.lease)
        self._is_stopped = True
        self.lease = 0
        for timer in (self._next, self._expiry):
            if timer is not None:
                timer.cancel()

    def _keep(self) -> None:
        self._calls.run(self._renew())

    async def _renew(self) -> None:
        lease, sent_at = self.lease, self._scheduler.time()
        renewed = await attempt(self._calls.keep_alive(lease))
        if lease != self.lease:
            return
        if isinstance(renewed, DragomanError):
            self._later(self._settings.retry_s, self._keep)
        elif renewed.TTL:
            self._kept(sent_at)
        else:
            self.lost()

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
