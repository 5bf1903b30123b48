"""Logins: what a client presents is examined here, for every protocol.

A password is checked against the user's verifier, a SCRAM exchange proves knowledge of it, and an
API token is looked up by its digest. All refusals are alike, and cost the same: an unknown user has
a verifier that no password matches. Failures delay the next logins (`login_failures.py`).

`Logins` also knows the connections that have logged in. When a user is removed, disabled or created
anew, its connections are closed in the same loop turn in which the metadata changes.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from dragoman.config.settings import Settings
from dragoman.errors import (
    AuthenticationFailedError,
    InvalidPasswordError,
)
from dragoman.limits import (
    CAPTURES_MAX,
    PASSWORD_BYTES_MAX,
    USER_NAME_BYTES_MAX,
)
from dragoman.outcome import pause
from dragoman.security.access import Caller, Principal
from dragoman.security.audit import AuditEvent, login
from dragoman.security.login_admission import LoginAdmission, LoginCaps
from dragoman.security.login_failures import LoginFailures
from dragoman.security.login_origins import KnownOrigins
from dragoman.security.password_cache import PasswordCache
from dragoman.security.passwords import (
    InlineHasher,
    Mechanism,
    PasswordHasher,
    prepared,
    unknown_users_verifier,
    verifier_of,
    verifiers_of,
)
from dragoman.security.sasl import OAUTHBEARER, PLAIN, PlainServer, SaslServer
from dragoman.security.scram import ScramServer
from dragoman.security.secrets import signing_secret_context
from dragoman.security.unverified_frames import UnverifiedFrames
from dragoman.security.users import (
    ApiToken,
    ScramVerifier,
    SealedSecret,
    User,
)
from dragoman.security.waiting_logins import WaitingLogins
from dragoman.world import Clock, Random, Scheduler

if TYPE_CHECKING:
    from dragoman.security.bearer_tokens import BearerLogin, BearerTokens
    from dragoman.security.token_keys import FetchKeys

log = logging.getLogger("dragoman.security")
USER = "User"


class UserDirectory(Protocol):
    """The part of the metadata that logins need."""

    @property
    def login_secret(self) -> bytes:
        """Known to the nodes only; empty before the first user."""
        ...

    @property
    def users(self) -> Mapping[str, User]: ...

    @property
    def security_revision(self) -> int: ...


class LoginSession(Protocol):
    """A connection whose caller has logged in, or is named by its certificate or network."""

    caller: Caller

    def is_renamed(self) -> bool:
        """Whether settings have changed, so that its certificate or network names another caller
        now. Never of a caller that has logged in.
        """
        ...

    def login_ended(self, reason: str) -> None:
        """Close the connection at once."""
        ...


class ProcessLogins(Protocol):
    """Logins of processes that the nodes have started; their names belong to no user."""

    def password(self, name: str) -> str | None:
        """The password of a process; None: the name belongs to no process."""
        ...

    def caller(self, name: str, host: str) -> Caller | None: ...

    def incarnation(self, caller: Caller) -> str:
        """A text that changes with what the process is and runs as; empty: it may run no more, or
        the caller is no process.
        """
        ...


class NoProcessLogins:
    def password(self, name: str) -> str | None:  # noqa: ARG002
        return None

    def caller(self, name: str, host: str) -> Caller | None:  # noqa: ARG002
        return None

    def incarnation(self, caller: Caller) -> str:  # noqa: ARG002
        return ""


class TokenLogin(msgspec.Struct, frozen=True):
    """The result of a login by API token."""

    caller: Caller
    is_read_only: bool
    #: 0: the token does not expire.
    expires_ms: int


class Attempt(NamedTuple):
    """A login that is being examined."""

    name: str
    host: str
    protocol: str
    mechanism: str


class Logins:
    def __init__(
        self,
        directory: UserDirectory,
        settings: Callable[[], Settings],
        scheduler: Scheduler,
        clock: Clock,
        random: Random,
        hasher: PasswordHasher | None = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._scheduler = scheduler
        self._clock = clock
        self._random = random
        #: Also computes the verifiers of new passwords.
        self.hasher: PasswordHasher = InlineHasher() if hasher is None else hasher
        #: Decrypts secrets, given their context; None: this node has no key of the cluster.
        self.unseal: Callable[[SealedSecret, str], bytes] | None = None
        #: Knows the processes of the nodes; the composition root replaces it.
        self.processes: ProcessLogins = NoProcessLogins()
        #: The last verifier of each process and mechanism, with the password that it is of.
        self._process_verifiers: dict[tuple[str, Mechanism], tuple[str, ScramVerifier]] = {}
        #: The numbers of iterations that users of the directory at `_iterations_revision` have.
        self._iterations: frozenset[int] = frozenset()
        self._iterations_revision = -1
        #: Receives each login for the audit log.
        self.record: Callable[[AuditEvent], None] = _ignore
        self._cache = PasswordCache(self.hasher, scheduler, random)
        self._failures = LoginFailures()
        #: The addresses from which logins have succeeded lately.
        self._known_origins = KnownOrigins()
        self._waiting = WaitingLogins(self._known_origins)
        #: Fetches the keys that verify tokens; None: this node fetches none.
        self.fetch_keys: FetchKeys | None = None
        #: Bounds the connections that have to log in and have not.
        self.admission = LoginAdmission(self._caps, scheduler.time, self._known_origins)
        #: Bounds what these connections send before their first right signature.
        self.unverified_frames = UnverifiedFrames(
            lambda: self._settings().memory_budget_bytes, self._known_origins
        )
        #: By digest, the tokens of the directory at `_tokens_revision`.
        self._tokens: dict[bytes, tuple[User, ApiToken]] = {}
        self._tokens_revision = -1
        #: By user or process, the connections that have logged in, with its incarnation then.
        self._sessions: dict[Principal, dict[LoginSession, str]] = {}

    def prepare(self) -> None:
        """Load the library of SCRAM, so that the first login does not hold up the loop."""
        import scramp  # noqa: F401

    @cached_property
    def bearer_tokens(self) -> BearerTokens:
        """Validates tokens that others have issued."""
        # Imported here: few nodes take such tokens.
        from dragoman.security.bearer_tokens import BearerTokens

        tokens = BearerTokens(self._settings(), self._scheduler, self._clock)
        if self.fetch_keys is not None:
            tokens.keys.fetch = self.fetch_keys
        return tokens

    def _caps(self) -> LoginCaps:
        settings = self._settings()
        return LoginCaps(
            settings.max_connections_before_login, settings.max_connections_before_login_per_ip
        )

    # ---- passwords

    async def password(
        self,
        name: str,
        password: str | bytes,
        host: str,
        *,
        protocol: str,
        mechanism: str = "password",
    ) -> Caller:
        """The caller with this name and password. The last two parameters are for the audit log.

        Raises `AuthenticationFailedError`, after the same work for an unknown user, and
        `LoginsOverloadedError` when too many logins wait. Resumes after milliseconds, or, after
        failures, seconds.
        """
        name, encoded = _as_compared(name, password)
        scram, verifier = self._password_verifier(name)
        entry = self._cache.entry(name, encoded, scram, verifier)
        is_right = self._cache.known(entry)
        if not is_right:
            # A password known to be right does not wait: guesses of others cannot delay it.
            await self.wait(name, host)
        if is_right is None:
            is_right = await self._cache.check(entry, encoded, scram, verifier)
        attempt = Attempt(name, host, protocol, mechanism)
        return self._decide(attempt, is_right and bool(encoded), verifier)

    def _password_verifier(self, name: str) -> tuple[Mechanism, ScramVerifier]:
        user = self._directory.users.get(name)
        for mechanism in Mechanism:
            verifier = None if user is None else user.scram.get(mechanism.value)
            if verifier is not None:
                return mechanism, verifier
        return Mechanism.SHA_256, self._verifier(Mechanism.SHA_256, name)

    def _verifier(self, mechanism: Mechanism, name: str) -> ScramVerifier:
        user = self._directory.users.get(name)
        verifier = None if user is None else user.scram.get(mechanism.value)
        if verifier is not None:
            return verifier
        return self._unknown(mechanism, name)

    def _unknown(self, mechanism: Mechanism, name: str) -> ScramVerifier:
        directory = self._directory
        if self._iterations_revision != directory.security_revision:
            self._iterations_revision = directory.security_revision
            self._iterations = frozenset(
                each.iterations for user in directory.users.values() for each in user.scram.values()
            )
        return unknown_users_verifier(mechanism, name, directory.login_secret, self._iterations)

    async def _scram_verifier(self, mechanism: Mechanism, name: str) -> ScramVerifier:
        """The verifier of a user, a process, or nobody. Raises `LoginsOverloadedError`."""
        password = self.processes.password(name)
        if password is None:
            return self._verifier(mechanism, name)
        # Salt and iterations are those that the name has without a process.
        shown = self._unknown(mechanism, name)
        salt, iterations = shown.salt, shown.iterations
        known, found = self._process_verifiers.get((name, mechanism), ("", shown))
        if known == password and (found.salt, found.iterations) == (salt, iterations):
            return found
        salted = await self.hasher.derive(mechanism.digest, password.encode(), salt, iterations)
        if len(self._process_verifiers) >= CAPTURES_MAX * len(Mechanism):
            # Only names of removed captures have filled it.
            self._process_verifiers.clear()
        found = verifier_of(mechanism, salted, salt, iterations)
        self._process_verifiers[name, mechanism] = password, found
        return found

    async def verifiers(self, name: str, password: str) -> dict[str, ScramVerifier]:
        """The verifiers of a user's new password, with the salts and iterations that the name has
        without a user, so that clients which log in see no difference. Raises
        `InvalidPasswordError`, and `LoginsOverloadedError`.
        """

        def unknown(mechanism: Mechanism) -> ScramVerifier:
            return self._unknown(mechanism, name)

        # Without a secret every client could compute the salt, and prepare for it.
        has_secret = bool(self._directory.login_secret)
        like = unknown if has_secret else None
        return await verifiers_of(password, self._random, self.hasher, like=like)

    def must_wait(self, name: str, host: str) -> bool:
        """Whether a login of this name waits before it is examined."""
        return self._failures.wait(name, host, self._scheduler.time()) > 0

    async def wait(self, name: str, host: str) -> None:
        """Awaited before a login is examined, because of earlier failures. Raises
        `LoginsOverloadedError` when too many logins wait.
        """
        seconds = self._failures.wait(name, host, self._scheduler.time())
        if not seconds:
            return
        with self._waiting.place(host):
            await pause(self._scheduler, seconds)

    def _decide(self, attempt: Attempt, is_proven: bool, verifier: ScramVerifier) -> Caller:
        # The directory may have changed during the exchange: a verifier that is no longer the
        # user's proves nothing.
        name, host = attempt.name, attempt.host
        user = self._directory.users.get(name)
        is_current = user is not None and user.is_enabled and verifier in user.scram.values()
        is_accepted = is_proven and is_current
        caller = Caller(Principal(USER, name), host, is_accepted)
        self.record(login(attempt.mechanism, caller, attempt.protocol, succeeded=is_accepted))
        if not is_accepted:
            self._failures.failed(name, host, self._scheduler.time())
            raise AuthenticationFailedError("unknown user or wrong credentials")
        self._succeeded(name, host)
        return caller

    def _decide_process(self, attempt: Attempt, caller: Caller, is_proven: bool) -> Caller:
        self.record(login(attempt.mechanism, caller, attempt.protocol, succeeded=is_proven))
        if not is_proven:
            self._failures.failed(attempt.name, attempt.host, self._scheduler.time())
            raise AuthenticationFailedError("unknown user or wrong credentials")
        self._succeeded(attempt.name, attempt.host)
        return caller

    def _succeeded(self, name: str, host: str) -> None:
        self._failures.succeeded(name)
        self._known_origins.add(host)

    # ---- SASL

    def sasl_server(self, mechanism: str, host: str, protocol: str) -> SaslServer:
        """The server's side of one exchange by a mechanism that this node has."""
        if mechanism == PLAIN:

            async def check(name: str, password: bytes) -> Caller:
                return await self.password(
                    name, password, host, protocol=protocol, mechanism="plain"
                )

            return PlainServer(check)
        if mechanism == OAUTHBEARER:
            from dragoman.security.bearer_tokens import BearerServer

            async def check_token(token: str) -> BearerLogin:
                return await self.bearer(token, host, protocol)

            return BearerServer(check_token)
        return self.scram_server(Mechanism(mechanism), host, protocol)

    def scram_server(self, mechanism: Mechanism, host: str, protocol: str = "") -> ScramServer:
        """The server's side of one SCRAM exchange."""

        async def decide(name: str, is_proven: bool, verifier: ScramVerifier) -> Caller:
            await self.wait(name, host)
            attempt = Attempt(name, host, protocol, mechanism.value.lower())
            process = self.processes.caller(name, host)
            if process is not None:
                is_proven = is_proven and verifier == await self._scram_verifier(mechanism, name)
                return self._decide_process(attempt, process, is_proven)
            return self._decide(attempt, is_proven, verifier)

        def refuse(name: str, reason: str) -> None:
            caller = Caller(Principal(USER, name), host) if name else Caller(host=host)
            self.record(
                login(mechanism.value.lower(), caller, protocol, succeeded=False, reason=reason)
            )

        find = partial(self._scram_verifier, mechanism)
        return ScramServer(mechanism, self._random, find, decide, refuse)

    # ---- tokens and signatures

    async def bearer(self, token: str, host: str, protocol: str) -> BearerLogin:
        """The login by a token that somebody else has issued.

        Raises `AuthenticationFailedError`, whose text is the status for the client.
        """
        unknown = Caller(host=host)
        await self.wait("", host)
        try:
            found = await self.bearer_tokens.login(token, host)
        except AuthenticationFailedError:
            self._failures.failed("", host, self._scheduler.time())
            self.record(login("oauthbearer", unknown, protocol, succeeded=False))
            raise
        user = self._directory.users.get(found.caller.name)
        is_accepted = user is None or user.is_enabled
        self.record(login("oauthbearer", found.caller, protocol, succeeded=is_accepted))
        if not is_accepted:
            raise AuthenticationFailedError("invalid_token")
        self._known_origins.add(host)
        return found

    def token(self, text: str, host: str) -> TokenLogin:
        """The login by an API token. Raises `AuthenticationFailedError`."""
        found = self._valid_token(text)
        if found is None:
            self.record(login("token", Caller(host=host), "http", succeeded=False))
            raise AuthenticationFailedError("unknown or expired token")
        user, token = found
        caller = Caller(Principal(USER, user.name), host, is_proven=True)
        self.record(login("token", caller, "http", succeeded=True))
        return TokenLogin(caller, token.is_read_only, token.expires_ms)

    def is_valid_token(self, text: str) -> bool:
        """Whether a token that has logged in still would. It is no login."""
        return self._valid_token(text) is not None

    def is_enabled(self, name: str) -> bool:
        """Whether there is a user of this name who may log in."""
        user = self._directory.users.get(name)
        return user is not None and user.is_enabled

    def _valid_token(self, text: str) -> tuple[User, ApiToken] | None:
        found = self._known_tokens().get(hashlib.sha256(text.encode()).digest())
        if found is None:
            return None
        user, token = found
        is_expired = 0 < token.expires_ms <= self._clock.wall_ms()
        return found if user.is_enabled and not is_expired else None

    def _known_tokens(self) -> dict[bytes, tuple[User, ApiToken]]:
        # A look-up by digest takes no secret-dependent time that helps to guess 256 random bits.
        if self._tokens_revision != self._directory.security_revision:
            self._tokens_revision = self._directory.security_revision
            self._tokens = {
                token.digest: (user, token)
                for user in self._directory.users.values()
                for token in user.tokens
            }
        return self._tokens

    def signing_secret(self, access_key: str) -> bytes | None:
        """The secret with which a user signs its requests; None: there is no such user, or it has
        no secret. Raises `SecretError` for one that this node cannot decrypt.
        """
        user = self._directory.users.get(access_key)
        if user is None or not user.is_enabled or user.signing_secret is None:
            return None
        if self.unseal is None:
            return None
        return self.unseal(user.signing_secret, signing_secret_context(user))

    def signature_checked(self, caller: Caller, protocol: str, *, is_right: bool) -> None:
        """Note a wrong signature, or the first right one of a signer on a connection."""
        self.record(login("signature", caller, protocol, succeeded=is_right))
        if is_right:
            self._succeeded(caller.name, caller.host)
        else:
            self._failures.failed(caller.name, caller.host, self._scheduler.time())

    # ---- connections

    def before_login(self, caller: Caller) -> Caller:
        """The caller of a connection that its certificate or its network names; that of a disabled
        user is nobody's.
        """
        if caller.principal.kind != USER:
            return caller
        user = self._directory.users.get(caller.name)
        return caller if user is None or user.is_enabled else Caller(host=caller.host)

    def opened(self, session: LoginSession) -> None:
        """Note that a connection has logged in as its caller, in the loop turn of the login."""
        caller = session.caller
        if caller.principal.kind == USER:
            user = self._directory.users.get(caller.name)
            incarnation = "" if user is None else user.incarnation
        else:
            incarnation = self.processes.incarnation(caller)
        self._sessions.setdefault(caller.principal, {})[session] = incarnation

    def closed(self, session: LoginSession) -> None:
        """Forget a connection, if it is known."""
        sessions = self._sessions.get(session.caller.principal)
        if sessions is not None:
            sessions.pop(session, None)
            if not sessions:
                del self._sessions[session.caller.principal]

    def user_changed(self, name: str) -> None:
        """Close the connections of a user that was removed, disabled or created anew, and those of
        processes that run as this user.
        """
        self._close_replaced_processes()
        user = self._directory.users.get(name)
        for session, incarnation in list(self._sessions.get(Principal(USER, name), {}).items()):
            if user is None:
                reason = "removed" if incarnation else ""
            elif not user.is_enabled:
                reason = "disabled"
            else:
                reason = "replaced" if incarnation and incarnation != user.incarnation else ""
            if reason:
                self.closed(session)
                session.login_ended(f"user {name} was {reason}")

    def names_changed(self) -> None:
        """Settings say by which names certificates and networks are known; these have changed."""
        for sessions in list(self._sessions.values()):
            for session in list(sessions):
                if session.is_renamed():
                    self.closed(session)
                    session.login_ended(
                        f"it is not {session.caller.name} any more, by the settings"
                    )

    def all_changed(self) -> None:
        """A snapshot has replaced all users."""
        for principal in list(self._sessions):
            if principal.kind == USER:
                self.user_changed(principal.name)
        self._close_replaced_processes()

    def _close_replaced_processes(self) -> None:
        processes = [each for each in self._sessions if each.kind != USER]
        for principal in processes:
            for session, incarnation in list(self._sessions[principal].items()):
                if incarnation and incarnation != self.processes.incarnation(session.caller):
                    self.closed(session)
                    session.login_ended(f"{principal} is gone, or what it runs as")


def _as_compared(name: str, password: str | bytes) -> tuple[str, bytes]:
    """Name and password in the form in which users have them. What no user can have becomes a
    password that is always wrong, or a name that is cut.
    """
    if len(name) > USER_NAME_BYTES_MAX or len(password) > PASSWORD_BYTES_MAX:
        # The name is kept in memory, for the waits after failures.
        return name[:USER_NAME_BYTES_MAX], b""
    try:
        text = password.decode() if isinstance(password, bytes) else password
        encoded = prepared(text).encode()
        name = prepared(name)
    except (InvalidPasswordError, UnicodeError):
        return name, b""
    return name, encoded if len(encoded) <= PASSWORD_BYTES_MAX else b""


def _ignore(_event: AuditEvent) -> None:
    return None
