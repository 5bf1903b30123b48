"""The Kafka client of commands: a cluster's address, its partitions' offsets and its groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dragoman import limits
from dragoman.cli.client_security import NO_LOGIN, Credentials
from dragoman.cli.positions import Bounds
from dragoman.cli.status import CommandError
from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    ClientSettings,
    Isolation,
    KafkaClient,
    LiveGroupError,
    SaslLogin,
    TlsSettings,
    TopicPartition,
    UnknownGroupError,
    UnsupportedRequestError,
)
from dragoman.plural import plural

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_SETTINGS: Final = ClientSettings(
    client_id="dragoman-cli", operation_timeout_s=float(limits.CLI_TIMEOUT_SECONDS)
)
#: States in which a group has no members.
_QUIET_STATES: Final = frozenset(("Empty", "Dead"))


def kafka_client(
    bootstrap: str, credentials: Credentials = NO_LOGIN, tls: TlsSettings | None = None
) -> KafkaClient:
    """Raises `CommandError` for credentials that cannot be read."""
    return KafkaClient(bootstrap, client_settings(credentials, tls))


def client_settings(
    credentials: Credentials = NO_LOGIN, tls: TlsSettings | None = None
) -> ClientSettings:
    """Raises `CommandError` for credentials that cannot be read."""
    settings = msgspec.structs.replace(_SETTINGS, tls=tls)
    if not credentials.user:
        return settings
    login = SaslLogin(
        mechanism=credentials.mechanism, name=credentials.user, password=credentials.password()
    )
    return msgspec.structs.replace(settings, login=login)


async def refuse_live_group(client: KafkaClient, group: str) -> None:
    """Raises `CommandError` for a group with members, which commit its offsets themselves."""
    try:
        details = await client.describe_group(group)
    except UnknownGroupError:
        return
    except UnsupportedRequestError:
        # A broker without this request refuses the commit anyway.
        return
    if details.state not in _QUIET_STATES:
        raise CommandError(
            f"group {group!r} is {details.state} with {plural(len(details.members), 'member')}; "
            "stop them first"
        )


async def commit_offsets(
    client: KafkaClient, group: str, offsets: Mapping[TopicPartition, int]
) -> None:
    try:
        await client.commit_offsets(group, offsets)
    except LiveGroupError as error:
        raise CommandError(f"{error}; stop its members first") from None


async def bounds_of(
    client: KafkaClient, partitions: Iterable[TopicPartition], isolation: Isolation
) -> Bounds[TopicPartition]:
    wanted = list(partitions)
    first = await client.list_offsets(dict.fromkeys(wanted, EARLIEST), isolation=isolation)
    end = await client.list_offsets(dict.fromkeys(wanted, LATEST), isolation=isolation)
    return Bounds(
        {where: each.offset for where, each in first.items()},
        {where: each.offset for where, each in end.items()},
    )


async def offsets_at(
    client: KafkaClient, time_ms: int, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The first offset at or after a time, or the end of a partition without such a record."""
    found = await client.list_offsets(dict.fromkeys(ends, time_ms))
    return {
        where: ends[where] if each.offset == NO_OFFSET else each.offset
        for where, each in found.items()
    }
