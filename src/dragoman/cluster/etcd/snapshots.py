"""Writes the image to etcd in place of the entries that led to it.

The pieces are put one after the other; then one transaction makes them the current snapshot and
deletes the entries and pieces that it replaces. Each transaction requires that this leadership
lasts and that the previous snapshot is still current: one that is carried out late would otherwise
bring back a snapshot whose pieces are gone. A snapshot that is not finished is never read; the next
one deletes what is left of it.
"""

from __future__ import annotations

import logging

from dragoman.checksum import crc32c
from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import CallFailedError, Calls
from dragoman.cluster.etcd.layout import Keys, SnapshotHead, to_json
from dragoman.limits import ETCD_PIECE_BYTES

log = logging.getLogger("dragoman.etcd")


class SnapshotWriter:
    def __init__(
        self, calls: Calls, keys: Keys, term: int, before: int, entries: int, state: bytes
    ) -> None:
        """`before` is the revision that made the previous snapshot current, 0 without one."""
        self._calls = calls
        self._keys = keys
        self._compare = (m.created(keys.leader, term), m.changed(keys.snapshot, before))
        self._entries = entries
        self._state = state

    async def write(self) -> int:
        """The revision that makes this snapshot current; 0: it is not, or that is not known."""
        try:
            return await self._write()
        except CallFailedError as error:
            log.warning("no metadata snapshot in etcd: %s", error)
            return 0

    async def _write(self) -> int:
        keys, entries = self._keys, self._entries
        pieces = 0
        for begin in range(0, len(self._state), ETCD_PIECE_BYTES):
            value = self._state[begin : begin + ETCD_PIECE_BYTES]
            if not await self._put(m.puts(m.Put(key=keys.piece(entries, pieces), value=value))):
                return 0
            pieces += 1
        head = SnapshotHead(entries=entries, pieces=pieces, checksum=crc32c(self._state))
        return await self._put(
            (
                *m.puts(m.Put(key=keys.snapshot, value=to_json(head))),
                *m.deletes(
                    m.Delete(key=keys.entry(0), range_end=keys.entry(entries)),
                    m.Delete(key=keys.image(0), range_end=keys.image(entries)),
                ),
            )
        )

    async def _put(self, operations: tuple[m.Operation, ...]) -> int:
        """The revision of the transaction; 0: this node does not lead any more, or another
        snapshot is current.
        """
        request = m.Transaction(compare=self._compare, success=operations)
        answer = await self._calls.transaction(request)
        return answer.header.revision if answer.succeeded else 0
