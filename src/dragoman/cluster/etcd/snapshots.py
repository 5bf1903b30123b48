"""Writing the image to etcd in place of the entries that it includes.

The pieces are written one by one; then one transaction activates the snapshot and deletes obsolete
entries and pieces. Each step requires that this leadership lasts and that the previous snapshot is
still active: a delayed transaction could otherwise reactivate a snapshot whose pieces are gone. An
unfinished snapshot is abandoned; the next one deletes its pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dragoman.checksum import crc32c
from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import Calls
from dragoman.cluster.etcd.layout import Keys, SnapshotHead, to_json
from dragoman.limits import ETCD_PIECE_BYTES

log = logging.getLogger("dragoman.etcd")


class SnapshotWriter:
    def __init__(
        self,
        calls: Calls,
        keys: Keys,
        term: int,
        before: int,
        entries: int,
        state: bytes,
        done: Callable[[int], None],
    ) -> None:
        """`before` is the revision that activated the previous snapshot, 0 if there is none.

        `done` gets the revision that activated this one, 0 if that is unknown.
        """
        self._calls = calls
        self._keys = keys
        self._compare = (m.created(keys.leader, term), m.changed(keys.snapshot, before))
        self._entries = entries
        self._state = state
        self._done = done
        self._written = 0

    def write(self) -> None:
        """Write the next piece; after the last one, activate the snapshot."""
        begin = self._written * ETCD_PIECE_BYTES
        if begin >= len(self._state):
            self._finish()
            return
        key = self._keys.piece(self._entries, self._written)
        self._written += 1
        put = m.Put(key=key, value=self._state[begin : begin + ETCD_PIECE_BYTES])
        self._transact(m.puts(put), lambda _: self.write())

    def _finish(self) -> None:
        keys = self._keys
        head = SnapshotHead(
            entries=self._entries, pieces=self._written, checksum=crc32c(self._state)
        )
        operations = (
            *m.puts(m.Put(key=keys.snapshot, value=to_json(head))),
            *m.deletes(
                m.Delete(key=keys.entry(0), range_end=keys.entry(self._entries)),
                m.Delete(key=keys.image(0), range_end=keys.image(self._entries)),
            ),
        )
        self._transact(operations, self._done)

    def _transact(self, operations: tuple[m.Operation, ...], then: Callable[[int], None]) -> None:
        def answered(answer: m.TransactionAnswer | m.Failure) -> None:
            if isinstance(answer, m.Failure):
                log.warning("no metadata snapshot in etcd: %s", answer.message)
                self._done(0)
            elif answer.succeeded:
                then(answer.header.revision)
            else:
                self._done(0)

        self._calls.transaction(m.Transaction(compare=self._compare, success=operations), answered)
