"""What a new cluster begins with: users and rules of a file, and the security mode.

    [[users]]
    name = "admin"
    password = "file:/run/secrets/admin"

    [[rules]]
    principal = "User:admin"
    operation = "all"
    resource = "cluster"

The file (`bootstrap.users.file`) counts once, while the cluster has neither users nor rules; then
it may go. A cluster that is founded with a listener which requires a login enforces its rules from
the beginning. Clusters with topics are not new: nothing is changed in those, except by the node
that has founded the cluster and was faster than its first clients.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from dragoman.broker.access_rules import check_rule
from dragoman.broker.changes import Changes
from dragoman.broker.context import NodeContext
from dragoman.broker.users import check_name, with_login_secret
from dragoman.cluster.events import (
    Event,
    FeatureLevelChanged,
    RulesChanged,
    SecurityModeChanged,
    UserChanged,
)
from dragoman.cluster.metadata import SECURITY_MODE_FIRST
from dragoman.errors import ConfigError, DragomanError
from dragoman.limits import ACCESS_RULES_PER_CHANGE, BOOTSTRAP_FILE_BYTES_MAX, BOOTSTRAP_USERS_MAX
from dragoman.outcome import attempt, start
from dragoman.security.access import CLUSTER_NAME, Operation, Resource
from dragoman.security.audit import AuditLog, noticed
from dragoman.security.authorizer import ENFORCE
from dragoman.security.passwords import PasswordHasher, verifiers_of
from dragoman.security.rules import EVERY, Pattern, Permission, Rule
from dragoman.security.secrets import ClusterKeys
from dragoman.security.users import User
from dragoman.world import SecretSource

log = logging.getLogger("dragoman.security")
_KEY: Final = "bootstrap.users.file"


class FirstUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    #: The password, or a reference to it: `file:/path` or `env:NAME`.
    password: str

    def __repr__(self) -> str:
        return f"FirstUser(name={self.name!r})"


class FirstRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    principal: str
    operation: Operation
    resource: Resource
    #: Empty: every resource of the kind.
    name: str = ""
    pattern: Pattern = Pattern.LITERAL
    permission: Permission = Permission.ALLOW
    host: str = EVERY

    def rule(self) -> Rule:
        every = CLUSTER_NAME if self.resource is Resource.CLUSTER else EVERY
        return Rule(
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission=self.permission,
            resource=self.resource,
            pattern=self.pattern,
            name=self.name or every,
        )


class FirstAccess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    users: tuple[FirstUser, ...] = ()
    rules: tuple[FirstRule, ...] = ()


class Foundation:
    def __init__(
        self,
        context: NodeContext,
        changes: Changes,
        keys: ClusterKeys,
        hasher: PasswordHasher,
        audit: AuditLog,
        source: SecretSource,
    ) -> None:
        self._context = context
        self._changes = changes
        self._keys = keys
        self._hasher = hasher
        self._audit = audit
        self._source = source
        self._is_started = False
        self._is_busy = False
        #: Whether this process has founded the cluster.
        self._is_founder = False

    def founded(self) -> None:
        """This node has founded the cluster."""
        self._is_founder = True

    async def begin(self) -> None:
        """Raises `ConfigError` for a file that cannot be used. Anything else is tried again when
        the cluster uses another feature level.
        """
        self._is_started = True
        await self._apply()

    def applied(self, event: Event | None) -> None:
        if self._is_started and (event is None or isinstance(event, FeatureLevelChanged)):
            # In a later turn: committed events are being applied.
            self._context.scheduler.call_soon(self._try)

    def _try(self) -> None:
        start(self._apply()).then(_report)

    # ---- what is due

    @property
    def _is_new(self) -> bool:
        return self._is_founder or not self._context.image.topics

    @property
    def _lacks_users(self) -> bool:
        image = self._context.image
        return not image.users and not image.rules

    @property
    def _lacks_mode(self) -> bool:
        settings = self._context.settings
        return self._context.image.security_mode == SECURITY_MODE_FIRST and any(
            settings.listener_security(each.name).authentication == "required"
            for each in settings.listeners
            if each.base != "peer"
        )

    async def _apply(self) -> None:
        path = self._context.settings.bootstrap_users_file
        has_file = bool(path) and self._lacks_users
        if self._is_busy or not self._is_new or not (has_file or self._lacks_mode):
            return
        self._is_busy = True
        try:
            first = self._read(path) if has_file else None
            users = [] if first is None else [await self._user(each) for each in first.users]
        finally:
            self._is_busy = False
        rules = () if first is None else tuple(dict.fromkeys(r.rule() for r in first.rules))

        def decide() -> list[Event]:
            events: list[Event] = []
            if self._lacks_users:
                events += [UserChanged(user=each) for each in users]
                if rules:
                    events.append(RulesChanged(added=rules))
            if self._lacks_mode:
                events.append(SecurityModeChanged(mode=ENFORCE))
            return with_login_secret(events, self._context.image, self._context.random)

        before = self._lacks_users, self._lacks_mode
        outcome = await attempt(self._changes.make(decide))
        if isinstance(outcome, DragomanError):
            log.info("the first users and the security mode have to wait: %s", outcome)
            return
        if before[0] and first is not None:
            said = f"{len(users)} users and {len(rules)} rules of {path}"
            log.info("the cluster begins with %s; the file may go", said)
            self._audit.record(noticed("bootstrap.users", detail=said))
        if before[1]:
            log.info("a listener requires a login, so the new cluster enforces its rules")
            self._audit.record(noticed("bootstrap.mode", detail=ENFORCE))

    # ---- the file

    def _read(self, path: str) -> FirstAccess | None:
        """None when there is no such file: it may have gone. Raises `ConfigError`."""
        try:
            data = self._source.read(path, BOOTSTRAP_FILE_BYTES_MAX, is_private=True)
        except FileNotFoundError:
            log.warning("%s: there is no %s, and the cluster has no users", _KEY, path)
            return None
        except OSError as error:
            raise ConfigError(f"{_KEY}: {path}: {error.strerror or error}") from None
        try:
            first = msgspec.toml.decode(data, type=FirstAccess)
            _check(first)
        except UnicodeDecodeError:
            raise ConfigError(f"{_KEY}: {path} is not UTF-8") from None
        except (msgspec.DecodeError, DragomanError) as error:
            raise ConfigError(f"{_KEY}: {path}: {error}") from None
        return first

    async def _user(self, first: FirstUser) -> User:
        random = self._context.random
        try:
            password = self._keys.resolve(first.password)
            verifiers = await verifiers_of(password, random, self._hasher)
        except DragomanError as error:
            path = self._context.settings.bootstrap_users_file
            raise ConfigError(f"{_KEY}: {path}: user {first.name!r}: {error}") from None
        incarnation = random.randbytes(16).hex()
        return User(name=first.name, incarnation=incarnation, scram=verifiers)


def _report(error: DragomanError | None) -> None:
    if error is not None:
        log.error("%s", error)


def _check(first: FirstAccess) -> None:
    """Raises `DragomanError`."""
    names = [each.name for each in first.users]
    if len(names) > BOOTSTRAP_USERS_MAX or len(first.rules) > ACCESS_RULES_PER_CHANGE:
        raise ConfigError(
            f"expected at most {BOOTSTRAP_USERS_MAX} users and {ACCESS_RULES_PER_CHANGE} rules"
        )
    if len(set(names)) < len(names):
        raise ConfigError("two users have the same name")
    for user in first.users:
        check_name(user.name)
    for each in first.rules:
        check_rule(each.rule())
