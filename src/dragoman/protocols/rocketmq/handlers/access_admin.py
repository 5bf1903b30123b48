"""Administration of users and rules, in RocketMQ's two forms: users and policies of 5.x (3001 to
3010), and accounts of 4.x (50 to 53).

Both are views of the cluster's users and rules (`acl_rules.py`). The password of a user is the
secret with which it signs; users get a password for the other protocols by Dragoman's own tools. No
password is ever shown. What cannot be expressed is refused.

Tools send each request to every broker of a cluster: a repeated request changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from dragoman.broker.access import AccessControl
from dragoman.broker.errors import UnknownUser, UserExists
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import AclInfo, UserInfo
from dragoman.protocols.rocketmq.constants import DEFAULT_CLUSTER, Response
from dragoman.protocols.rocketmq.handlers.acl_rules import (
    Perms,
    account_rules,
    is_superuser,
    patterns_of,
    perm,
    perms_by_name,
    perms_of,
    policies_of,
    principal_of,
    rules_of,
    rules_of_perms,
    superuser_rules,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.handlers.topics import broker_data, data_version
from dragoman.security.access import Operation, Resource
from dragoman.security.rule_filter import RuleFilter
from dragoman.security.rules import Rule

_NORMAL: Final = "Normal"
_SUPER: Final = "Super"
_STATUSES: Final = {"enable": True, "disable": False}
#: The kinds of resources that accounts have permissions on, with the names of their fields.
_ACCOUNT_FIELDS: Final = {
    Resource.TOPIC: ("defaultTopicPerm", "topicPerms"),
    Resource.GROUP: ("defaultGroupPerm", "groupPerms"),
}


def _access(call: Call) -> AccessControl:
    return call.broker.access


def _change(call: Call) -> None:
    call.authorize_cluster(Operation.ALTER)


def _look(call: Call) -> None:
    call.authorize_cluster(Operation.DESCRIBE)


# ---- rules


async def _rules(call: Call, principal: str | None = None) -> list[Rule]:
    return await _access(call).rules.find(RuleFilter(principal=principal))


async def _replace(call: Call, gone: Iterable[Rule], wanted: Iterable[Rule]) -> None:
    """Replace rules by others. Those that are in both stay in force throughout."""
    before, after = set(gone), set(wanted)
    added, removed = after - before, before - after
    access, actor = _access(call), call.actor
    if added:
        await access.rules.add(sorted(added, key=str), actor)
    if removed:
        filters = [_only(each) for each in sorted(removed, key=str)]
        await access.rules.remove(filters, actor)


def _only(rule: Rule) -> RuleFilter:
    return RuleFilter(
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission=rule.permission,
        resources=frozenset((rule.resource,)),
        pattern=rule.pattern.value,
        name=rule.name,
    )


async def _make_superuser(call: Call, principal: str, is_super: bool) -> None:
    every, present = superuser_rules(principal), set(await _rules(call, principal))
    if is_super:
        await _replace(call, every & present, every)
    elif every <= present:
        # Some of the rules alone are those of a user that an operator has granted much.
        await _replace(call, every, ())


# ---- users of 5.x


async def handle_auth_create_user(call: Call) -> None:
    """Create a user, or change it, as RocketMQ's brokers do."""
    _change(call)
    wanted = _user_of_request(call)
    if not wanted.password:
        raise Refused(Response.INVALID_PARAMETER, "password can not be blank")
    await _ready_for_secret(call)
    with suppress(UserExists):
        await _access(call).users.create(wanted.username, {}, call.actor)
    await _set_user(call, wanted)


async def handle_auth_update_user(call: Call) -> None:
    _change(call)
    wanted = _user_of_request(call)
    if wanted.username not in _access(call).users.known:
        raise _no_user(wanted.username)
    if wanted.password:
        await _ready_for_secret(call)
    await _set_user(call, wanted)


class _UserOfRequest(bodies.Body):
    """A user in a request; what is missing stays as it is."""

    username: str = ""
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


def _user_of_request(call: Call) -> _UserOfRequest:
    """The user is in the body; from some tools, in the fields."""
    data = call.body if len(call.body) else msgspec.json.encode(dict(call.fields))
    found = bodies.decode(data, _UserOfRequest)
    found.username = call.fields.get("username") or found.username
    if not found.username:
        raise Refused(Response.INVALID_PARAMETER, "The username is blank")
    if found.user_type and found.user_type not in (_NORMAL, _SUPER):
        text = f"userType {found.user_type[:20]!r}: expected {_NORMAL} or {_SUPER}"
        raise Refused(Response.INVALID_PARAMETER, text)
    if found.user_status and found.user_status not in _STATUSES:
        text = f"userStatus {found.user_status[:20]!r}: expected {' or '.join(_STATUSES)}"
        raise Refused(Response.INVALID_PARAMETER, text)
    return found


async def _ready_for_secret(call: Call) -> None:
    """Returns when the request's secret may be stored. Raises `Refused`, `SecretError`."""
    if not call.session.is_private:
        raise Refused(Response.NO_PERMISSION, "secrets need TLS")
    await call.broker.cluster_key.ready()


async def _set_user(call: Call, wanted: _UserOfRequest) -> None:
    name, users, actor = wanted.username, _access(call).users, call.actor
    if wanted.user_type:
        await _make_superuser(call, f"User:{name}", wanted.user_type == _SUPER)
    if wanted.password:
        await users.set_signing_secret(name, wanted.password, actor)
    if wanted.user_status:
        await users.enable(name, actor, is_enabled=_STATUSES[wanted.user_status])


async def handle_auth_delete_user(call: Call) -> None:
    """Delete a user and, unlike RocketMQ, its rules: they would hold for the next one of the
    name.
    """
    _change(call)
    name = call.text("username")
    await _delete_user(call, name)


async def _delete_user(call: Call, name: str) -> None:
    with suppress(UnknownUser):
        await _access(call).users.delete(name, call.actor)
    await _replace(call, await _rules(call, f"User:{name}"), ())


async def handle_auth_get_user(call: Call) -> Answer:
    _look(call)
    name = call.text("username")
    if name not in _access(call).users.known:
        raise _no_user(name)
    return Answer(body=bodies.encode(_shown(call, name, await _rules(call, f"User:{name}"))))


async def handle_auth_list_user(call: Call) -> Answer:
    _look(call)
    wanted = call.fields.get("filter", "")
    rules: dict[str, list[Rule]] = {}
    for rule in await _rules(call):
        rules.setdefault(rule.principal, []).append(rule)
    listed = [
        _shown(call, name, rules.get(f"User:{name}", ()))
        for name in sorted(_access(call).users.known)
        if wanted in name
    ]
    return _list(call, "users", listed)


def _shown(call: Call, name: str, rules: Iterable[Rule]) -> UserInfo:
    user = _access(call).users.known[name]
    return UserInfo(
        username=name,
        user_type=_SUPER if is_superuser(f"User:{name}", rules) else _NORMAL,
        user_status="enable" if user.is_enabled else "disable",
    )


def _no_user(name: str) -> Refused:
    return Refused(Response.USER_NOT_EXIST, f"there is no user {name[:100]!r}")


def _list(call: Call, name: str, items: list[UserInfo] | list[AclInfo]) -> Answer:
    """Java reads a bare array, the Go administration client an object with the array."""
    data = b",".join(map(bodies.encode, items))
    return Answer(body=b'{"%s":[%s]}' % (name.encode(), data) if call.is_go else b"[%s]" % data)


# ---- policies of 5.x


async def handle_auth_create_acl(call: Call) -> None:
    """Add entries to a subject's policies. As in RocketMQ, an entry replaces those about the same
    resource.
    """
    _change(call)
    acl = bodies.decode(call.body, AclInfo)
    principal = principal_of(call.fields.get("subject") or acl.subject)
    wanted = rules_of(principal, acl.policies)
    if not wanted:
        raise Refused(Response.INVALID_PARAMETER, "the policies have no entries")
    resources = {(each.resource, each.pattern, each.name) for each in wanted}
    present = await _rules(call, principal)
    gone = [each for each in present if (each.resource, each.pattern, each.name) in resources]
    await _replace(call, gone, wanted)


handle_auth_update_acl = handle_auth_create_acl


async def handle_auth_delete_acl(call: Call) -> None:
    """Delete a subject's entries, or only those about one resource."""
    _change(call)
    principal, resource = principal_of(call.text("subject")), call.fields.get("resource", "")
    gone = [each for each in await _rules(call, principal) if policies_of(principal, [each])]
    if resource:
        named = set(patterns_of(resource))
        gone = [each for each in gone if (each.resource, each.pattern, each.name) in named]
    await _replace(call, gone, ())


async def handle_auth_get_acl(call: Call) -> Answer:
    _look(call)
    subject = principal_of(call.text("subject"))
    found = policies_of(subject, await _rules(call, subject))
    if found is None:
        text = f"there are no rules for {subject[:100]!r}"
        raise Refused(Response.POLICY_NOT_EXIST, text)
    return Answer(body=bodies.encode(found))


async def handle_auth_list_acl(call: Call) -> Answer:
    _look(call)
    subject, resource = call.fields.get("subjectFilter", ""), call.fields.get("resourceFilter", "")
    by_principal: dict[str, list[Rule]] = {}
    for rule in await _rules(call):
        if subject in rule.principal:
            by_principal.setdefault(rule.principal, []).append(rule)
    listed = []
    for principal, rules in sorted(by_principal.items()):
        found = policies_of(principal, rules)
        if found is not None and _names(found, resource):
            listed.append(found)
        await call.pause()
    return _list(call, "acls", listed)


def _names(acl: AclInfo, resource: str) -> bool:
    return any(resource in entry.resource for policy in acl.policies for entry in policy.entries)


# ---- accounts of 4.x


async def handle_update_and_create_acl_config(call: Call) -> None:
    """Create an account, or change it. What the request does not name stays as it is."""
    _change(call)
    name, secret = call.text("accessKey"), call.fields.get("secretKey")
    if call.fields.get("whiteRemoteAddress"):
        raise _no_addresses()
    principal = f"User:{name}"
    present = await _rules(call, principal)
    gone: set[Rule] = set()
    wanted: set[Rule] = set()
    for kind, (default, by_name) in _ACCOUNT_FIELDS.items():
        if default in call.fields or by_name in call.fields:
            gone |= account_rules(principal, kind, present)
            perms = _perms(call, perms_of(principal, kind, present), kind, default, by_name)
            wanted |= rules_of_perms(principal, kind, perms)
    access, actor = _access(call), call.actor
    if name not in access.users.known and not secret:
        raise Refused(Response.INVALID_PARAMETER, "The secretKey is missing for a new account")
    if secret:
        await _ready_for_secret(call)
    with suppress(UserExists):
        await access.users.create(name, {}, actor)
    await _replace(call, gone, wanted)
    if "admin" in call.fields:
        await _make_superuser(call, principal, call.flag("admin"))
    if secret:
        await access.users.set_signing_secret(name, secret, actor)


def _perms(call: Call, present: Perms, kind: Resource, default: str, by_name: str) -> Perms:
    """The permissions of an account after the request."""
    if default in call.fields:
        present = Perms(perm(call.fields[default] or "DENY"), present.by_name)
    if by_name in call.fields:
        present = Perms(present.default, perms_by_name(call.fields[by_name], kind))
    return present


async def handle_delete_acl_config(call: Call) -> None:
    _change(call)
    await _delete_user(call, call.text("accessKey"))


def _no_addresses() -> Refused:
    return Refused(
        Response.INVALID_PARAMETER,
        "addresses without a login are a setting of each listener (principals), not of an account",
    )


async def handle_update_global_white_addrs_config(call: Call) -> None:
    _change(call)
    raise _no_addresses()


async def handle_get_broker_cluster_acl_info(call: Call) -> Answer:
    """The version of the rules, by which tools see whether all brokers have the same."""
    _look(call)
    broker = broker_data(call, call.broker.node_id)
    version = bodies.encode(data_version(call)).decode()
    return Answer(
        fields={
            "brokerName": broker.broker_name,
            "brokerAddr": broker.broker_addrs["0"],
            "clusterName": DEFAULT_CLUSTER,
            "version": version,
            "allAclFileVersion": "{}",
        }
    )
