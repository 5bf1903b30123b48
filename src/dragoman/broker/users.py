"""Changes of users and their credentials.

Passwords do not come here: what is stored are verifiers, which the caller has computed. A user may
also have a secret that signs requests, sealed with the cluster's key, and API tokens, of which the
digest is stored. A name that is used again is another user (`User.incarnation`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.broker.administration import Actor, note, recorded
from dragoman.broker.changes import Changes, Decide
from dragoman.broker.cluster_key import ClusterKeyService
from dragoman.broker.errors import InvalidUser, Overloaded, UnknownUser, UserExists
from dragoman.broker.login_secret import with_login_secret
from dragoman.cluster.events import Event, UserChanged, UserRemoved
from dragoman.cluster.metadata import MetadataImage
from dragoman.config.user_names import problem_of
from dragoman.errors import BrokerError, DragomanError, InvalidPasswordError
from dragoman.limits import (
    SCRAM_BYTES_MAX,
    SCRAM_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
    SIGNING_SECRET_BYTES_MAX,
    TOKEN_BYTES,
    TOKEN_LABEL_BYTES_MAX,
    TOKENS_PER_USER_MAX,
    USERS_MAX,
    USERS_PER_CHANGE,
)
from dragoman.security.audit import AuditLog
from dragoman.security.passwords import Mechanism, prepared
from dragoman.security.secrets import ClusterKeys, signing_secret_context
from dragoman.security.users import ApiToken, ScramVerifier, User
from dragoman.world import Clock, Random

#: By mechanism, a new verifier, or None for one to be removed.
AlteredVerifiers: TypeAlias = Mapping[str, ScramVerifier | None]
#: Shows programs that search texts for secrets what an API token is.
TOKEN_PREFIX = "dragoman_"


class Users:
    def __init__(
        self,
        image: MetadataImage,
        changes: Changes,
        audit: AuditLog,
        keys: ClusterKeys,
        cluster_key: ClusterKeyService,
        clock: Clock,
        random: Random,
    ) -> None:
        self._image = image
        self._changes = changes
        self._audit = audit
        self._keys = keys
        self._cluster_key = cluster_key
        self._clock = clock
        self._random = random
        self._lock = cluster_key.user_lock

    @property
    def known(self) -> Mapping[str, User]:
        return self._image.users

    def find(self, name: str) -> User:
        """Raises `UnknownUser`."""
        user = self._image.users.get(name)
        if user is None:
            raise UnknownUser(f"there is no user {name!r}")
        return user

    # ---- users

    async def create(self, name: str, verifiers: Mapping[str, ScramVerifier], actor: Actor) -> None:
        """A user with the password that the verifiers are of; without any, the user has no
        password. Raises `UserExists`.
        """
        check_name(name)
        _check_verifiers(verifiers)

        def decide() -> list[Event]:
            if name in self._image.users:
                raise UserExists(f"there is a user {name!r}")
            return [UserChanged(user=self._new(name, verifiers))]

        await self._make("user.create", name, actor, decide)

    async def delete(self, name: str, actor: Actor) -> None:
        """The user's connections are closed, and its rules remain. Raises `UnknownUser`."""

        def decide() -> list[Event]:
            self.find(name)
            return [UserRemoved(name=name)]

        await self._make("user.delete", name, actor, decide)

    async def enable(self, name: str, actor: Actor, *, is_enabled: bool) -> None:
        """Allow or refuse the user's logins. Raises `UnknownUser`."""

        def decide() -> list[Event]:
            user = self.find(name)
            if user.is_enabled == is_enabled:
                return []
            return [UserChanged(user=replace(user, is_enabled=is_enabled))]

        await self._make("user.enable" if is_enabled else "user.disable", name, actor, decide)

    def _new(
        self, name: str, verifiers: Mapping[str, ScramVerifier], *, has_room: bool = True
    ) -> User:
        if not has_room or len(self._image.users) >= USERS_MAX:
            raise Overloaded(f"there are {len(self._image.users)} users already")
        incarnation = self._random.randbytes(16).hex()
        return User(name=name, incarnation=incarnation, scram=dict(verifiers))

    # ---- passwords

    async def set_password(
        self, name: str, verifiers: Mapping[str, ScramVerifier], actor: Actor
    ) -> None:
        """Replace all verifiers of the user. Raises `UnknownUser`."""
        _check_verifiers(verifiers)

        def decide() -> list[Event]:
            return [UserChanged(user=replace(self.find(name), scram=dict(verifiers)))]

        await self._make("user.password", name, actor, decide)

    async def alter_verifiers(
        self, wanted: Mapping[str, AlteredVerifiers], actor: Actor
    ) -> dict[str, DragomanError]:
        """Set and remove verifiers of users, by name, as Kafka's clients do: a user that does not
        exist is created, and one without any credential left is removed. Returns the errors of
        users for which nothing was done.
        """
        errors: dict[str, DragomanError] = {}
        names = list(wanted)
        for start in range(0, len(names), USERS_PER_CHANGE):
            part = {name: wanted[name] for name in names[start : start + USERS_PER_CHANGE]}
            errors |= await self._alter_some(part, actor)
        return errors

    async def _alter_some(
        self, wanted: Mapping[str, AlteredVerifiers], actor: Actor
    ) -> dict[str, DragomanError]:
        errors: dict[str, DragomanError] = {}

        def decide() -> list[Event]:
            errors.clear()
            known, events = self._image.users, list[Event]()
            room = USERS_MAX - len(known)
            for name, altered in wanted.items():
                try:
                    room -= name not in known
                    events.append(self._altered(name, altered, has_room=room >= 0))
                except BrokerError as error:
                    room += name not in known
                    errors[name] = error.with_traceback(None)
            return events

        failure: DragomanError | None = None
        try:
            async with self._lock.take(None):
                await self._changes.make(self._with_secret(decide))
        except DragomanError as error:
            failure = error.with_traceback(None)
        for name, altered in wanted.items():
            problem = failure or errors.get(name)
            if problem is not None:
                errors[name] = problem
            note(
                self._audit, "user.credentials", actor, f"user:{name}", ", ".join(altered), problem
            )
        return errors

    def _altered(self, name: str, altered: AlteredVerifiers, *, has_room: bool) -> Event:
        """Raises `BrokerError`."""
        _check_verifiers({each: verifier for each, verifier in altered.items() if verifier})
        user = self._image.users.get(name)
        scram = {} if user is None else dict(user.scram)
        for mechanism, verifier in altered.items():
            if verifier is not None:
                scram[mechanism] = verifier
            elif scram.pop(mechanism, None) is None:
                raise UnknownUser(f"user {name!r} has no {mechanism} credential")
        if user is None:
            check_name(name)
            return UserChanged(user=self._new(name, scram, has_room=has_room))
        if not (scram or user.tokens or user.signing_secret):
            return UserRemoved(name=name)
        return UserChanged(user=replace(user, scram=scram))

    # ---- signing secrets

    async def set_signing_secret(self, name: str, secret: str | None, actor: Actor) -> None:
        """The secret key with which the user signs RocketMQ requests; None: none any more.

        Raises `UnknownUser`, and `SecretError` if the cluster has no key to seal it with.
        """
        self.find(name)
        plain = b"" if secret is None else secret.encode()
        if secret is not None and not 0 < len(plain) <= SIGNING_SECRET_BYTES_MAX:
            raise InvalidUser(f"a signing secret has 1 to {SIGNING_SECRET_BYTES_MAX} bytes")

        if plain:
            await self._cluster_key.ready()

        def decide() -> list[Event]:
            user = self.find(name)
            sealed = self._keys.seal(plain, signing_secret_context(user)) if plain else None
            return [UserChanged(user=replace(user, signing_secret=sealed))]

        await self._make("user.signing-secret", name, actor, decide)

    # ---- API tokens

    async def create_token(
        self,
        name: str,
        actor: Actor,
        *,
        label: str = "",
        lifetime_ms: int = 0,
        is_read_only: bool = False,
    ) -> tuple[ApiToken, str]:
        """A new token and its text, which is not stored. `lifetime_ms` is 0 for a token that does
        not expire. Raises `UnknownUser`.
        """
        if len(label.encode()) > TOKEN_LABEL_BYTES_MAX or not (label.isprintable()):
            raise InvalidUser(
                f"the label of a token has at most {TOKEN_LABEL_BYTES_MAX} printable bytes"
            )
        now = self._clock.wall_ms()
        secret = base64.urlsafe_b64encode(self._random.randbytes(TOKEN_BYTES))
        text = TOKEN_PREFIX + secret.decode().rstrip("=")
        token = ApiToken(
            token_id=self._random.randbytes(8).hex(),
            digest=hashlib.sha256(text.encode()).digest(),
            created_ms=now,
            expires_ms=now + lifetime_ms if lifetime_ms else 0,
            is_read_only=is_read_only,
            label=label,
        )

        def decide() -> list[Event]:
            user = self.find(name)
            # Expired tokens make room.
            kept = tuple(each for each in user.tokens if not 0 < each.expires_ms <= now)
            if len(kept) >= TOKENS_PER_USER_MAX:
                raise Overloaded(f"user {name!r} has {len(kept)} tokens already")
            return [UserChanged(user=replace(user, tokens=(*kept, token)))]

        await self._make("token.create", name, actor, decide, token.token_id)
        return token, text

    async def revoke_token(self, name: str, token_id: str, actor: Actor) -> None:
        """Raises `UnknownUser` if the user does not have the token."""

        def decide() -> list[Event]:
            user = self.find(name)
            kept = tuple(each for each in user.tokens if each.token_id != token_id)
            if len(kept) == len(user.tokens):
                raise UnknownUser(f"user {name!r} has no token {token_id!r}")
            return [UserChanged(user=replace(user, tokens=kept))]

        await self._make("token.revoke", name, actor, decide, token_id)

    async def _make(
        self, action: str, name: str, actor: Actor, decide: Decide, detail: str = ""
    ) -> None:
        """Returns when the change holds on this node."""
        with recorded(self._audit, action, actor, f"user:{name}", (detail,)):
            async with self._lock.take(None):
                await self._changes.make(self._with_secret(decide))

    def _with_secret(self, decide: Decide) -> Decide:
        return lambda: with_login_secret(decide(), self._image, self._random)


def check_name(name: str) -> None:
    """Raises `InvalidUser` for a name that some client could not log in with."""
    problem = problem_of(name)
    if problem:
        raise InvalidUser(problem)
    try:
        is_prepared = prepared(name) == name
    except InvalidPasswordError as error:
        raise InvalidUser(f"the name {name!a}: {error}") from None
    if not is_prepared:
        raise InvalidUser(
            f"clients send the name {name!a} in another form (SASLprep): {prepared(name)!r}"
        )


def _check_verifiers(verifiers: Mapping[str, ScramVerifier]) -> None:
    """Raises `InvalidUser`."""
    for name, verifier in verifiers.items():
        size = hashlib.new(Mechanism(name).digest).digest_size
        if not SCRAM_ITERATIONS_MIN <= verifier.iterations <= SCRAM_ITERATIONS_MAX:
            raise InvalidUser(
                f"{verifier.iterations} iterations: expected {SCRAM_ITERATIONS_MIN} to "
                f"{SCRAM_ITERATIONS_MAX}"
            )
        if not 0 < len(verifier.salt) <= SCRAM_BYTES_MAX:
            raise InvalidUser(f"a salt has 1 to {SCRAM_BYTES_MAX} bytes")
        if not len(verifier.stored_key) == len(verifier.server_key) == size:
            raise InvalidUser(f"the keys of {name} have {size} bytes")
