"""How fast a leader fills replicas that are being added: a move leaves room for everybody else."""

from __future__ import annotations

from collections.abc import Callable

_NO_LIMIT = 1 << 62
#: Saved up for so long at most, and spent in pieces: small ones would cost a message each.
_SAVED_S = 1.0
_PIECE_S = 0.1


class Throttle:
    """One for all partitions that a node leads."""

    def __init__(self, bytes_per_s: Callable[[], int]) -> None:
        """`bytes_per_s` may change at any time; 0: no limit."""
        self._bytes_per_s = bytes_per_s
        #: How long it takes to send what may be sent by now; below 0 after too much was.
        self._saved_s = _SAVED_S
        self._at = 0.0

    def room(self, now: float) -> int:
        """How many bytes may be sent now. The last batch may go beyond."""
        rate = self._bytes_per_s()
        if rate <= 0:
            return _NO_LIMIT
        self._saved_s = min(_SAVED_S, self._saved_s + (now - self._at))
        self._at = now
        return int(self._saved_s * rate) if self._saved_s >= _PIECE_S else 0

    def sent(self, size: int) -> None:
        rate = self._bytes_per_s()
        if rate > 0:
            self._saved_s -= size / rate

    def wait_s(self) -> float:
        """After `room` was 0: until it is not."""
        return max(0.001, _PIECE_S - self._saved_s)
