"""Users, access rules and the security mode in the HTTP API.

Reading needs the right to describe the cluster, everything else the right to alter it, as for the
same requests of Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dragoman.api.access import Access, Rights
from dragoman.api.access_values import (
    AccessAnswer,
    AccessQuestion,
    AccessRule,
    AccessRuleFilter,
    AccessRules,
    CreatedToken,
    NewMode,
    NewToken,
    NewUser,
    RemovedRules,
    RulePage,
    RuleSearch,
    SecurityStatus,
    TokenDescription,
    UserCommand,
    UserDescription,
    UserPage,
    UserSummary,
)
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.pages import page_of
from dragoman.api.values import Told
from dragoman.broker.access import AccessControl
from dragoman.broker.administration import Actor
from dragoman.cluster.events import SecurityModeChanged, level_needed
from dragoman.cluster.metadata import MetadataImage
from dragoman.config.settings import Settings
from dragoman.limits import HTTP_PAGE_ITEMS_MAX
from dragoman.net.future import future_of
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.authorizer import RuleAuthorizer
from dragoman.security.logins import Logins
from dragoman.security.rule_filter import RuleFilter
from dragoman.security.rules import EVERY, Rule, is_address
from dragoman.security.users import ApiToken, ScramVerifier, User
from dragoman.world import Clock


class SecurityBroker(Rights, Protocol):
    """What the services use of the broker."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def access(self) -> AccessControl: ...

    @property
    def rule_authorizer(self) -> RuleAuthorizer: ...

    @property
    def logins(self) -> Logins: ...

    @property
    def clock(self) -> Clock: ...


def _actor(caller: Caller) -> Actor:
    return Actor(caller, "http")


# ---- the mode


class SecurityService:
    def __init__(self, broker: SecurityBroker) -> None:
        self._broker = broker
        self._access = Access(broker)

    def security_status(self, caller: Caller) -> SecurityStatus:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        return self._status()

    async def change_security_mode(self, caller: Caller, wanted: NewMode) -> SecurityStatus:
        await future_of(self._broker.access.change_mode(wanted.mode, _actor(caller)))
        return self._status()

    def _status(self) -> SecurityStatus:
        broker, image = self._broker, self._broker.image
        needed = level_needed([SecurityModeChanged(mode="")])
        levels = image.known_levels()
        return SecurityStatus(
            mode=image.security_mode,
            users=len(image.users),
            rules=len(image.rules),
            super_users=tuple(sorted(broker.rule_authorizer.super_users)),
            allow_everyone_if_no_acl_found=broker.settings.allow_everyone_if_no_acl_found,
            has_administrator=broker.access.has_administrator(),
            older_nodes=tuple(sorted(node for node in levels if levels[node] < needed)),
        )


# ---- rules


class RuleService:
    def __init__(self, broker: SecurityBroker) -> None:
        self._broker = broker
        self._rules = broker.access.rules
        self._access = Access(broker)

    async def find_rules(self, caller: Caller, search: RuleSearch) -> RulePage:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        found = await future_of(self._rules.find(_filter(search.filter)))
        end = search.after + search.limit
        return RulePage(
            items=tuple(map(AccessRule.of, found[search.after : end])),
            next=end if end < len(found) else None,
        )

    async def add_rules(self, caller: Caller, wanted: AccessRules) -> Told:
        self._access.require_cluster(caller, Operation.ALTER)
        rules = list(map(_rule, wanted.rules))
        await future_of(self._rules.add(rules, _actor(caller)))
        return Told(detail=f"rules in force: {len(self._broker.image.rules)}")

    async def remove_rules(self, caller: Caller, wanted: AccessRuleFilter) -> RemovedRules:
        self._access.require_cluster(caller, Operation.ALTER)
        (gone,) = await future_of(self._rules.remove([_filter(wanted)], _actor(caller)))
        items = tuple(map(AccessRule.of, gone[:HTTP_PAGE_ITEMS_MAX]))
        return RemovedRules(count=len(gone), items=items)

    def test_access(self, caller: Caller, question: AccessQuestion) -> AccessAnswer:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        kind, colon, name = question.principal.partition(":")
        if not (kind and colon and name):
            raise ApiError(400, "invalid_request", "principal: expected KIND:NAME")
        if question.operation is Operation.ALL:
            raise ApiError(400, "invalid_request", "operation: `all` is for rules only")
        asked = Caller(Principal(kind, name), question.host)
        decided = self._broker.rule_authorizer.decide(
            asked, question.operation, question.resource, question.name
        )
        return AccessAnswer(
            allowed=decided.is_allowed,
            mode=self._broker.access.mode,
            reason=decided.reason.value,
            rule=None if decided.rule is None else AccessRule.of(decided.rule),
        )


def _rule(given: AccessRule) -> Rule:
    if given.host != EVERY and not is_address(given.host):
        # Kafka accepts names of hosts, which no client ever has.
        raise ApiError(400, "invalid_rule", f"host: expected an address, or *, got {given.host!r}")
    return given.rule()


def _filter(given: AccessRuleFilter) -> RuleFilter:
    return RuleFilter(
        principal=given.principal,
        host=given.host,
        operation=given.operation,
        permission=given.permission,
        resources=frozenset(Resource if given.resource is None else (given.resource,)),
        pattern=given.pattern,
        name=given.name,
    )


# ---- users


class UserService:
    def __init__(self, broker: SecurityBroker) -> None:
        self._broker = broker
        self._users = broker.access.users
        self._access = Access(broker)

    def list_users(self, caller: Caller, after: str, limit: PageLimit) -> UserPage:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        known = self._users.known
        names, following = page_of(known, after, limit)
        return UserPage(items=tuple(_summary(known[name]) for name in names), next=following)

    def describe_user(self, caller: Caller, name: str) -> UserDescription:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        return _described(self._users.find(name))

    async def create_user(self, caller: Caller, user: NewUser) -> UserDescription:
        self._access.require_cluster(caller, Operation.ALTER)
        verifiers = {} if user.password is None else await self._verifiers(user.name, user.password)
        await future_of(self._users.create(user.name, verifiers, _actor(caller)))
        return _described(self._users.find(user.name))

    async def delete_user(self, caller: Caller, name: str) -> Told:
        self._access.require_cluster(caller, Operation.ALTER)
        await future_of(self._users.delete(name, _actor(caller)))
        left = await future_of(self._broker.access.rules.find(RuleFilter(principal=f"User:{name}")))
        remaining = f"; its {len(left)} access rules remain" if left else ""
        return Told(detail=f"deleted user {name!r}{remaining}")

    async def command_user(self, caller: Caller, name: str, wanted: UserCommand) -> UserDescription:
        self._access.require_cluster(caller, Operation.ALTER)
        actor, users = _actor(caller), self._users
        if (wanted.secret is not None) != wanted.command.startswith("set_"):
            raise ApiError(
                400, "invalid_request", "secret: needed to set one, and not allowed otherwise"
            )
        match wanted.command:
            case "set_password":
                # Before the work of hashing.
                users.find(name)
                verifiers = await self._verifiers(name, wanted.secret or "")
                await future_of(users.set_password(name, verifiers, actor))
            case "remove_password":
                await future_of(users.set_password(name, {}, actor))
            case "set_signing_secret" | "remove_signing_secret":
                await future_of(users.set_signing_secret(name, wanted.secret, actor))
            case "enable" | "disable":
                is_enabled = wanted.command == "enable"
                await future_of(users.enable(name, actor, is_enabled=is_enabled))
        return _described(users.find(name))

    async def create_token(self, caller: Caller, name: str, wanted: NewToken) -> CreatedToken:
        self._access.require_cluster(caller, Operation.ALTER)
        token, text = await future_of(
            self._users.create_token(
                name,
                _actor(caller),
                label=wanted.label,
                lifetime_ms=wanted.lifetime_ms or 0,
                is_read_only=wanted.read_only,
            )
        )
        return CreatedToken(description=_shown_token(token), token=text)

    async def revoke_token(self, caller: Caller, name: str, token_id: str) -> None:
        self._access.require_cluster(caller, Operation.ALTER)
        await future_of(self._users.revoke_token(name, token_id, _actor(caller)))

    async def _verifiers(self, name: str, password: str) -> Mapping[str, ScramVerifier]:
        return await future_of(self._broker.logins.verifiers(name, password))


def _summary(user: User) -> UserSummary:
    return UserSummary(
        name=user.name,
        enabled=user.is_enabled,
        mechanisms=tuple(sorted(user.scram)),
        signing_secret=user.signing_secret is not None,
        tokens=len(user.tokens),
    )


def _described(user: User) -> UserDescription:
    return UserDescription(
        name=user.name,
        enabled=user.is_enabled,
        mechanisms=tuple(sorted(user.scram)),
        signing_secret=user.signing_secret is not None,
        tokens=tuple(map(_shown_token, user.tokens)),
    )


def _shown_token(token: ApiToken) -> TokenDescription:
    return TokenDescription(
        token_id=token.token_id,
        label=token.label,
        read_only=token.is_read_only,
        created_ms=token.created_ms,
        expires_ms=token.expires_ms or None,
    )
