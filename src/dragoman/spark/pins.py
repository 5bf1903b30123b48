"""Keeping the files of a planned scan: hard links under a lease that the scan renews.

See `log/pins.py` for what lies where. Where links cannot be made (another owner, a read-only or
remote file system) a scan goes without; a file that is gone by then is asked of the broker.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Sequence

import msgspec

from dragoman.log.pins import EXPIRES, PINS, remove_lease, sweep_pins
from dragoman.spark.storage import StoredPiece
from dragoman.world import RealDisk

log = logging.getLogger("dragoman.spark")


class Lease(msgspec.Struct, frozen=True):
    root: str
    name: str
    seconds: int

    def renew(self) -> None:
        """To be called while the files are in use. A lease that is gone already stays gone."""
        path = f"{self.root}/{PINS}/{self.name}/{EXPIRES}"
        aside = f"{path}.{os.getpid()}"
        try:
            with open(aside, "w") as file:
                file.write(str(_now_ms() + self.seconds * 1000))
            os.replace(aside, path)
        except OSError:
            return

    def release(self) -> None:
        try:
            remove_lease(RealDisk(self.root), self.name)
        except OSError as error:
            log.debug("lease %s is left to the next sweep: %s", self.name, error)


def pin(
    root: str, pieces: Sequence[StoredPiece], seconds: int
) -> tuple[Lease | None, list[StoredPiece]]:
    """The pieces with the paths of their links; as they were where no link can be made."""
    lease = Lease(root, secrets.token_hex(8), seconds)
    directory = f"{root}/{PINS}/{lease.name}"
    try:
        sweep_pins(RealDisk(root), _now_ms())
        os.makedirs(directory)
    except OSError as error:
        log.debug("files in %s are read without pins: %s", root, error)
        return None, list(pieces)
    lease.renew()
    return lease, [_linked(piece, directory) for piece in pieces]


def _linked(piece: StoredPiece, lease: str) -> StoredPiece:
    directory = f"{lease}/{os.path.basename(piece.directory)}"
    linked = msgspec.structs.replace(piece, directory=directory)
    try:
        os.makedirs(directory, exist_ok=True)
        for old, new in (
            (piece.log_path, linked.log_path),
            (piece.index_path, linked.index_path),
        ):
            if not os.path.exists(new):
                os.link(old, new)
    except OSError as error:
        log.debug("%s is read without a pin: %s", piece.log_path, error)
        return piece
    return linked


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
