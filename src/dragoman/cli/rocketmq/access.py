"""Commands about users and their permissions, in the form of RocketMQ 5.x."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from dragoman.cli.rocketmq.command import Broker, Cluster, Session, masters
from dragoman.cli.status import USAGE, CommandError
from dragoman.client.rocketmq import AclEntry, AclInfo, AclPolicy, UserInfo
from dragoman.client_core.credentials import resolved
from dragoman.errors import ConfigError

_USER_PREFIX = "User:"


class UserRow(msgspec.Struct, frozen=True):
    user: str
    type: str
    status: str


class AclRow(msgspec.Struct, frozen=True):
    subject: str
    resource: str
    actions: str
    sources: str
    decision: str


def _named(*names: str, text: str) -> Parameter:
    return Parameter(name=list(names), help=text)


def create_user(
    session: Session,
    *,
    username: Annotated[str, _named("--username", "-u", text="Name, and access key, of the user.")],
    password_file: Annotated[str, _named("--password-file", text="File with the secret key.")],
    user_type: Annotated[str, _named("--user-type", "-t", text="Normal or Super.")] = "Normal",
    broker: Broker = None,
    cluster: Cluster = None,
) -> str:
    """Create a user. Its password is the secret key that signs its requests.

    Examples
    --------
    dragoman rocketmq create-user -u bob --password-file bob.password
    """
    user = UserInfo(username=username, password=_secret(password_file), user_type=user_type)
    for each in _brokers(session, broker, cluster):
        session.admin.create_user(each, user)
    return f"created user {username!r}"


def update_user(
    session: Session,
    *,
    username: Annotated[str, _named("--username", "-u", text="Name of the user.")],
    password_file: Annotated[
        str | None, _named("--password-file", text="File with the new secret key.")
    ] = None,
    user_type: Annotated[
        str | None, _named("--user-type", "-t", text="Normal or Super; as it is by default.")
    ] = None,
    user_status: Annotated[
        str | None, _named("--user-status", "-s", text="enable or disable; as it is by default.")
    ] = None,
    broker: Broker = None,
    cluster: Cluster = None,
) -> str:
    """Change the secret key, the type or the status of a user.

    Examples
    --------
    dragoman rocketmq update-user -u alice -s disable
    """
    brokers = _brokers(session, broker, cluster)
    for each in brokers:
        known = session.admin.get_user(each, username)
        if known is None:
            raise CommandError(f"there is no user {username!r}", code="unknown_user")
        changed = UserInfo(
            username=username,
            password=None if password_file is None else _secret(password_file),
            user_type=user_type or known.user_type,
            user_status=user_status or known.user_status,
        )
        session.admin.update_user(each, changed)
    return f"changed user {username!r}"


def delete_user(
    session: Session,
    *,
    username: Annotated[str, _named("--username", "-u", text="Name of the user.")],
    broker: Broker = None,
    cluster: Cluster = None,
) -> str:
    """Delete a user.

    Examples
    --------
    dragoman rocketmq delete-user -u carol
    """
    for each in _brokers(session, broker, cluster):
        session.admin.delete_user(each, username)
    return f"deleted user {username!r}"


def list_user(
    session: Session,
    *,
    filter: Annotated[str, _named("--filter", "-f", text="A part of the name.")] = "",  # noqa: A002
    broker: Broker = None,
    cluster: Cluster = None,
) -> list[UserRow]:
    """List users.

    Examples
    --------
    dragoman rocketmq list-user -f ali
    """
    first = _brokers(session, broker, cluster)[0]
    found = session.admin.list_users(first, filter)
    return [UserRow(each.username, each.user_type, each.user_status) for each in found]


def create_acl(
    session: Session,
    *,
    subject: Annotated[str, _named("--subject", "-s", text="User:NAME.")],
    resources: Annotated[
        str, _named("--resources", "-r", text="Topic:NAME, Group:NAME*, separated by commas.")
    ],
    actions: Annotated[
        str,
        _named(
            "--actions",
            "-a",
            text="All, Pub, Sub, Create, Update, Delete, Get, List, separated by commas.",
        ),
    ],
    decision: Annotated[str, _named("--decision", "-d", text="Allow or Deny.")] = "Allow",
    source_ip: Annotated[
        str, _named("--source-ip", "-i", text="Addresses of clients; any by default.")
    ] = "",
    broker: Broker = None,
    cluster: Cluster = None,
) -> str:
    """Allow or deny a user actions on resources, in place of what it had there.

    Examples
    --------
    dragoman rocketmq create-acl -s alice -r Topic:orders -a Pub,Sub
    """
    entries = [
        AclEntry(
            resource=each,
            actions=_split(actions),
            source_ips=_split(source_ip),
            decision=decision,
        )
        for each in _split(resources)
    ]
    acl = AclInfo(subject=_subject(subject), policies=[AclPolicy(entries=entries)])
    for each in _brokers(session, broker, cluster):
        session.admin.create_acl(each, acl)
    return f"{decision.lower()} {subject} {actions} on {resources}"


def delete_acl(
    session: Session,
    *,
    subject: Annotated[str, _named("--subject", "-s", text="User:NAME.")],
    resource: Annotated[
        str, _named("--resource", "-r", text="The resource; all of the subject by default.")
    ] = "",
    broker: Broker = None,
    cluster: Cluster = None,
) -> str:
    """Delete the permissions of a user.

    Examples
    --------
    dragoman rocketmq delete-acl -s carol
    """
    for each in _brokers(session, broker, cluster):
        session.admin.delete_acl(each, _subject(subject), resource)
    return f"deleted the permissions of {subject} on {resource or 'all resources'}"


def list_acl(
    session: Session,
    *,
    subject: Annotated[str, _named("--subject", "-s", text="A part of the subject.")] = "",
    resource: Annotated[str, _named("--resource", "-r", text="A part of a resource.")] = "",
    broker: Broker = None,
    cluster: Cluster = None,
) -> list[AclRow]:
    """List the permissions of users.

    Examples
    --------
    dragoman rocketmq list-acl -s alice
    """
    first = _brokers(session, broker, cluster)[0]
    return [
        AclRow(
            acl.subject,
            entry.resource,
            ",".join(entry.actions),
            ",".join(entry.source_ips) or "*",
            entry.decision,
        )
        for acl in session.admin.list_acls(first, subject, resource)
        for policy in acl.policies
        for entry in policy.entries
        if resource in entry.resource
    ]


def _brokers(session: Session, broker: str | None, cluster: str | None) -> list[str]:
    """The brokers to change. Raises `CommandError` if there are none."""
    found = masters(session, broker, cluster)
    if not found:
        raise CommandError(f"there is no broker in cluster {cluster!r}")
    return found


def _secret(path: str) -> str:
    try:
        return resolved(f"file:{path}")
    except ConfigError as error:
        raise CommandError(str(error), USAGE, code=error.code) from None


def _subject(text: str) -> str:
    return text if text.startswith(_USER_PREFIX) else _USER_PREFIX + text


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


COMMANDS = (
    create_user,
    update_user,
    delete_user,
    list_user,
    create_acl,
    delete_acl,
    list_acl,
)
