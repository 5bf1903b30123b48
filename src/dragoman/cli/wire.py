"""Commands over Kafka's protocol: reaching a cluster, offsets of its partitions, its groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from dragoman import limits
from dragoman.cli.failures import told_in_a_line
from dragoman.cli.positions import Bounds, Place, resolve
from dragoman.cli.status import CommandError
from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    BlockingKafkaClient,
    ClientSettings,
    Isolation,
    LiveGroupError,
    TopicPartition,
    UnknownGroupError,
    UnsupportedRequestError,
)

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
Bootstrap: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--bootstrap", "-b"],
        help="Address of a broker's Kafka listener, HOST:PORT; several with commas.",
    ),
]
_SETTINGS = ClientSettings(
    client_id="dragoman-cli", operation_timeout_s=float(limits.CLI_TIMEOUT_SECONDS)
)
#: States in which nobody in the group reads.
_QUIET_STATES = frozenset(("Empty", "Dead"))


@contextmanager
def connected(bootstrap: str) -> Iterator[BlockingKafkaClient]:
    """A client. Every failure inside becomes a `CommandError` fit to be shown."""
    with told_in_a_line("Kafka"):
        try:
            with BlockingKafkaClient(bootstrap, _SETTINGS) as client:
                yield client
        except LiveGroupError as error:
            raise CommandError(f"{error}; stop its members first") from None


def refuse_live_group(client: BlockingKafkaClient, group: str) -> None:
    """Offsets of a group with members are theirs to commit."""
    try:
        details = client.describe_group(group)
    except UnknownGroupError:
        return
    except UnsupportedRequestError:
        # Such a broker refuses the commit itself.
        return
    if details.state not in _QUIET_STATES:
        raise CommandError(
            f"group {group!r} is {details.state} with {len(details.members)} members; "
            "stop them first"
        )


def bounds_of(
    client: BlockingKafkaClient, partitions: Iterable[TopicPartition], isolation: Isolation
) -> Bounds[TopicPartition]:
    wanted = list(partitions)
    first = client.list_offsets(dict.fromkeys(wanted, EARLIEST), isolation=isolation)
    end = client.list_offsets(dict.fromkeys(wanted, LATEST), isolation=isolation)
    return Bounds(
        {where: each.offset for where, each in first.items()},
        {where: each.offset for where, each in end.items()},
    )


def offsets_of(
    client: BlockingKafkaClient,
    place: Place,
    bounds: Bounds[TopicPartition],
    committed: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """The place in every partition; see `resolve`."""

    def at_time(time_ms: int) -> dict[TopicPartition, int]:
        found = client.list_offsets(dict.fromkeys(bounds.first, time_ms))
        return {
            where: bounds.end[where] if each.offset == NO_OFFSET else each.offset
            for where, each in found.items()
        }

    return resolve(place, bounds, committed=committed, at_time=at_time)
