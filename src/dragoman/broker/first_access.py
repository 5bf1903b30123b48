"""The file of a new cluster's first users and rules.

    [[users]]
    name = "admin"
    password = "file:/run/secrets/admin"

    [[rules]]
    principal = "User:admin"
    operation = "all"
    resource = "cluster"

It is read once in the life of a cluster (`foundation.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dragoman.broker.access_rules import check_rule
from dragoman.broker.login_secret import with_login_secret
from dragoman.broker.users import check_name
from dragoman.cluster.events import Event, RulesChanged, UserChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import ConfigError, DragomanError
from dragoman.limits import ACCESS_RULES_PER_CHANGE, BOOTSTRAP_USERS_MAX
from dragoman.security.access import CLUSTER_NAME, Operation, Resource
from dragoman.security.passwords import PasswordHasher, verifiers_of
from dragoman.security.rules import EVERY, Pattern, Permission, Rule
from dragoman.security.secrets import ClusterKeys
from dragoman.security.users import User
from dragoman.world import Random


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


class FoundedAccess(NamedTuple):
    """The users and rules that a file describes."""

    users: tuple[User, ...]
    rules: tuple[Rule, ...]

    def events(self, image: MetadataImage, random: Random) -> list[Event]:
        events: list[Event] = [UserChanged(user=each) for each in self.users]
        if self.rules:
            events.append(RulesChanged(added=self.rules))
        return with_login_secret(events, image, random)


async def decode_access(
    data: bytes, path: str, keys: ClusterKeys, hasher: PasswordHasher, random: Random
) -> FoundedAccess:
    """What the file has. Raises `ConfigError`, which begins with its path."""
    try:
        first = msgspec.toml.decode(data, type=FirstAccess)
        _check(first)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None
    except (msgspec.DecodeError, DragomanError) as error:
        raise ConfigError(f"{path}: {error}") from None
    users = []
    for each in first.users:
        try:
            users.append(await _user(each, keys, hasher, random))
        except DragomanError as error:
            raise ConfigError(f"{path}: user {each.name!r}: {error}") from None
    return FoundedAccess(tuple(users), tuple(dict.fromkeys(each.rule() for each in first.rules)))


async def _user(
    first: FirstUser, keys: ClusterKeys, hasher: PasswordHasher, random: Random
) -> User:
    verifiers = await verifiers_of(keys.resolve(first.password), random, hasher)
    incarnation = random.randbytes(16).hex()
    return User(name=first.name, incarnation=incarnation, scram=verifiers)


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
