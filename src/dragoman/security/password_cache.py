"""Results of password checks, so that a storm of reconnecting clients costs little.

An entry is a digest of name, password and verifier under a random key of this process. The cache
therefore contains no password, and a changed password has no entry. Equal checks at the same time
share one computation.
"""

from __future__ import annotations

import hmac

from dragoman.limits import PASSWORD_RESULT_LIFETIME_S, PASSWORD_RESULTS_MAX
from dragoman.outcome import Outcome, attempt, ignore, start
from dragoman.security.passwords import Mechanism, PasswordHasher, is_password
from dragoman.security.users import ScramVerifier
from dragoman.world import Random, Scheduler


class PasswordCache:
    def __init__(self, hasher: PasswordHasher, scheduler: Scheduler, random: Random) -> None:
        self._hasher = hasher
        self._scheduler = scheduler
        self._random = random
        #: Drawn with the first check.
        self._key = b""
        #: Result and the time when it expires, the oldest first.
        self._known: dict[bytes, tuple[bool, float]] = {}
        #: Those who wait for a computation in progress.
        self._under_way: dict[bytes, list[Outcome[bool]]] = {}

    def entry(
        self, name: str, password: bytes, mechanism: Mechanism, verifier: ScramVerifier
    ) -> bytes:
        """The key of a check."""
        self._key = self._key or self._random.randbytes(32)
        made = hmac.new(self._key, digestmod="sha256")
        for each in (
            name.encode(),
            password,
            mechanism.value.encode(),
            verifier.salt,
            verifier.stored_key,
        ):
            made.update(len(each).to_bytes(8, "big"))
            made.update(each)
        return made.digest()

    def known(self, entry: bytes) -> bool | None:
        """The result of an earlier check, if it is still valid."""
        result, expires = self._known.get(entry, (False, 0.0))
        return result if expires > self._scheduler.time() else None

    async def check(
        self, entry: bytes, password: bytes, mechanism: Mechanism, verifier: ScramVerifier
    ) -> bool:
        """Compute a result, and keep it. Raises `LoginsOverloadedError`."""
        mine: Outcome[bool] = Outcome()
        waiting = self._under_way.get(entry)
        if waiting is None:
            self._under_way[entry] = [mine]
            start(self._compute(entry, password, mechanism, verifier)).then(ignore)
        else:
            waiting.append(mine)
        return await mine

    async def _compute(
        self, entry: bytes, password: bytes, mechanism: Mechanism, verifier: ScramVerifier
    ) -> None:
        result = await attempt(is_password(password, mechanism, verifier, self._hasher))
        if isinstance(result, bool):
            self._keep(entry, result)
        for each in self._under_way.pop(entry):
            each.settle(result)

    def _keep(self, entry: bytes, result: bool) -> None:
        self._known.pop(entry, None)
        if len(self._known) >= PASSWORD_RESULTS_MAX:
            del self._known[next(iter(self._known))]
        self._known[entry] = (result, self._scheduler.time() + PASSWORD_RESULT_LIFETIME_S)
