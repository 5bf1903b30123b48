"""Passwords and the verifiers that are stored in their place (RFC 5802).

One password has a verifier for each SCRAM mechanism; a password that a client sends in clear is
checked against one of them. Both take PBKDF2, which costs milliseconds, so it goes through a port:
`PasswordHasher` works beside the loop in a running node, and inline in tests and simulations.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Protocol

from dragoman.errors import InvalidPasswordError
from dragoman.limits import (
    PASSWORD_BYTES_MAX,
    SCRAM_ITERATIONS,
    SCRAM_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
    SCRAM_SALT_BYTES,
)
from dragoman.outcome import Outcome, succeeded
from dragoman.security.users import ScramVerifier
from dragoman.world import Random


class Mechanism(Enum):
    """The SCRAM mechanisms, as clients and the metadata name them."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The hash function, as `hashlib` names it."""
        return "sha256" if self is Mechanism.SHA_256 else "sha512"


class PasswordHasher(Protocol):
    """Computes PBKDF2 without holding up the loop."""

    def derive(self, digest: str, password: bytes, salt: bytes, iterations: int) -> Outcome[bytes]:
        """Fails with `LoginsOverloadedError` when too many computations wait."""
        ...


class InlineHasher:
    """Computes at once, on the caller's thread: for tests, simulations and tools."""

    def derive(self, digest: str, password: bytes, salt: bytes, iterations: int) -> Outcome[bytes]:
        return succeeded(hashlib.pbkdf2_hmac(digest, password, salt, iterations))


def prepared(text: str) -> str:
    """A name or password in the form that is compared (SASLprep, RFC 4013).

    Raises `InvalidPasswordError` for characters that it prohibits.
    """
    if text.isascii() and text.isprintable():
        return text
    # Imported here: most names and passwords need no tables.
    from scramp.utils import ScramException, saslprep

    try:
        return str(saslprep(text))
    except ScramException as error:
        raise InvalidPasswordError(f"not allowed in names and passwords: {error}") from None


def check_new_password(password: str) -> bytes:
    """The bytes of a password that is being set. Raises `InvalidPasswordError`.

    Kafka's clients hash passwords as they are typed, others prepare them first. A password on
    which they would disagree is refused.
    """
    if not password:
        raise InvalidPasswordError("a password has at least one character")
    if prepared(password) != password:
        raise InvalidPasswordError(
            "the password has characters that clients encode differently (SASLprep changes them)"
        )
    encoded = password.encode()
    if len(encoded) > PASSWORD_BYTES_MAX:
        raise InvalidPasswordError(f"a password has at most {PASSWORD_BYTES_MAX} bytes")
    return encoded


async def verifiers_of(
    password: str,
    random: Random,
    hasher: PasswordHasher,
    mechanisms: tuple[Mechanism, ...] = tuple(Mechanism),
    iterations: int = SCRAM_ITERATIONS,
    like: Callable[[Mechanism], ScramVerifier] | None = None,
) -> dict[str, ScramVerifier]:
    """By mechanism, the verifier to store for a new password, with the salt and the iterations of
    the one that it is to be `like`; otherwise the salt is random.

    Raises `InvalidPasswordError`, and `LoginsOverloadedError`.
    """
    encoded = check_new_password(password)
    if not SCRAM_ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
        raise InvalidPasswordError(
            f"iterations must be between {SCRAM_ITERATIONS_MIN} and {SCRAM_ITERATIONS_MAX}"
        )
    found: dict[str, ScramVerifier] = {}
    for mechanism in mechanisms:
        if like is not None:
            salt, iterations = (shown := like(mechanism)).salt, shown.iterations
        else:
            salt = random.randbytes(SCRAM_SALT_BYTES)
        salted = await hasher.derive(mechanism.digest, encoded, salt, iterations)
        found[mechanism.value] = verifier_of(mechanism, salted, salt, iterations)
    return found


def verifier_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """The verifier of a salted password, which is the result of PBKDF2."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    return ScramVerifier(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(mechanism.digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.digest),
    )


async def is_password(
    password: bytes, mechanism: Mechanism, verifier: ScramVerifier, hasher: PasswordHasher
) -> bool:
    """Whether the verifier was made from this password. Raises `LoginsOverloadedError`."""
    salted = await hasher.derive(mechanism.digest, password, verifier.salt, verifier.iterations)
    found = verifier_of(mechanism, salted, verifier.salt, verifier.iterations)
    return hmac.compare_digest(found.stored_key, verifier.stored_key)


_UNKNOWN: Final = b"verifier of an unknown user"


def unknown_users_verifier(
    mechanism: Mechanism, name: str, secret: bytes, iterations: Iterable[int] = ()
) -> ScramVerifier:
    """A verifier that no password has, the same for each use of the name on every node.

    A name has one of the default number of iterations and `iterations`, which are those that users
    have, so that no number shows a user. A number that is new is taken over by few names, and no
    name goes from one of the others to another.
    """
    context = b"\0".join((_UNKNOWN, mechanism.value.encode(), name.encode()))
    made = hmac.digest(secret, context, "sha512")
    size = hashlib.new(mechanism.digest).digest_size

    def rank(count: int) -> bytes:
        return hmac.digest(secret, context + b"\0iterations %d" % count, "sha256")

    return ScramVerifier(
        salt=made[:SCRAM_SALT_BYTES],
        iterations=max({SCRAM_ITERATIONS, *iterations}, key=rank),
        stored_key=hmac.digest(secret, context + b"\0stored", "sha512")[:size],
        server_key=hmac.digest(secret, context + b"\0server", "sha512")[:size],
    )
