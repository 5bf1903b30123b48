"""Password hashes computed by threads: `hashlib` releases the interpreter while it computes."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from dragoman.errors import LoginsOverloadedError
from dragoman.limits import PASSWORD_HASH_THREADS, PASSWORD_HASHES_WAITING_MAX
from dragoman.outcome import Outcome, failed

_Job: TypeAlias = tuple[Outcome[bytes], str, bytes, bytes, int]


class ThreadedHasher:
    """Belongs to the loop. Threads are started with the first work, and end when there is none."""

    def __init__(self, call_soon_threadsafe: Callable[..., object]) -> None:
        self._call_soon_threadsafe = call_soon_threadsafe
        self._waiting: deque[_Job] = deque()
        self._threads = 0
        #: Guards the two above.
        self._lock = threading.Lock()

    def derive(self, digest: str, password: bytes, salt: bytes, iterations: int) -> Outcome[bytes]:
        outcome: Outcome[bytes] = Outcome()
        with self._lock:
            if len(self._waiting) >= PASSWORD_HASHES_WAITING_MAX:
                return failed(LoginsOverloadedError("too many logins wait; retry later"))
            self._waiting.append((outcome, digest, password, salt, iterations))
            is_needed = self._threads < PASSWORD_HASH_THREADS
            self._threads += is_needed
        if is_needed:
            # A daemon does not keep the process from ending.
            threading.Thread(target=self._work, name="dragoman-password", daemon=True).start()
        return outcome

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                outcome, digest, password, salt, iterations = self._waiting.popleft()
            derived = hashlib.pbkdf2_hmac(digest, password, salt, iterations)
            try:
                self._call_soon_threadsafe(outcome.succeed, derived)
            except RuntimeError:
                # The loop was closed, and its waiters with it.
                continue
