"""`dragoman group`: list and describe groups, and reset their committed offsets."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.api.values import GroupDescription, GroupSummary
from dragoman.cli.client_security import NO_LOGIN, PLAIN, EncryptionOptions, LoginOptions
from dragoman.cli.kafka_client import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    bounds_of,
    commit_offsets,
    kafka_client,
    offsets_at,
    refuse_live_group,
)
from dragoman.cli.output import Fields, Output, Part, Table, show
from dragoman.cli.positions import PLACES, Place, parse_place, resolve
from dragoman.cli.record_clients.session import running
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.client.kafka import Isolation, KafkaClient, TopicPartition

app = App(name="group", help="List and describe groups, and reset their offsets.")


@app.command(name="list")
def list_groups(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """List groups."""
    groups = Remote(server).groups()
    rows = ((each.group, each.protocol, each.state, each.members) for each in groups)
    show(output, groups, GroupSummary, Table(("GROUP", "PROTOCOL", "STATE", "MEMBERS"), rows))


@app.command
def describe(name: str, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show a group's members, committed offsets and lag.

    Parameters
    ----------
    name
        Group to show.
    """
    group = Remote(server).group(name)
    show(output, group, GroupDescription, *_description(group))


def _description(group: GroupDescription) -> tuple[Part, ...]:
    fields = Fields(
        (
            ("group", group.group),
            ("protocol", group.protocol),
            ("state", group.state),
            ("generation", group.generation),
            ("coordinator", group.coordinator),
        )
    )
    members = Table(
        ("MEMBER", "CLIENT", "HOST", "ASSIGNMENT"),
        (
            (
                member.member_id,
                member.client_id,
                member.host,
                " ".join(
                    f"{each.topic}:{','.join(map(str, each.partitions))}"
                    for each in member.assignment
                ),
            )
            for member in group.members
        ),
    )
    offsets = Table(
        ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG"),
        (
            (
                each.topic,
                each.partition,
                each.committed_offset,
                each.log_end_offset,
                each.lag_records,
            )
            for each in group.offsets
        ),
    )
    return fields, members, offsets


class MovedOffset(msgspec.Struct, frozen=True):
    """An item of the JSON output of `group reset`."""

    topic: str
    partition: int
    #: None: nothing was committed.
    committed_offset: int | None
    new_offset: int
    log_end_offset: int


@app.command
def reset(
    name: str,
    /,
    *,
    topic: Annotated[tuple[str, ...], Parameter(negative="")],
    to: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help=f"New position: {PLACES}, or shift:N."),
    ],
    partition: Annotated[tuple[int, ...], Parameter(name=["--partition", "-p"], negative="")] = (),
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    encryption: EncryptionOptions = PLAIN,
    credentials: LoginOptions = NO_LOGIN,
    output: Output = "table",
) -> None:
    """Reset a group's committed offsets. Refused while the group has members.

    Parameters
    ----------
    name
        Group whose offsets to reset.
    topic
        Topic to reset; may be repeated.
    partition
        Partition of each topic to reset; may be repeated. All by default.
    dry_run
        Show the new offsets and commit nothing.
    """
    if not name:
        raise CommandError("NAME: expected the name of a group, got an empty one", USAGE)
    place = parse_place("--to", to, with_shift=True)
    with running("Kafka", kafka_client(bootstrap, credentials, encryption.settings())) as (
        thread,
        client,
    ):
        moves = thread.run(lambda: _reset(client, name, topic, partition, place, dry_run=dry_run))
    show(output, moves, MovedOffset, _moves_table(moves))
    count = "1 offset" if len(moves) == 1 else f"{len(moves)} offsets"
    say(f"{'would move' if dry_run else 'moved'} {count} of group {name!r}")


async def _reset(
    client: KafkaClient,
    group: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    place: Place,
    *,
    dry_run: bool,
) -> list[MovedOffset]:
    await refuse_live_group(client, group)
    moves = await _moves(client, group, await _chosen(client, topics, partitions), place)
    if moves and not dry_run:
        new = {TopicPartition(each.topic, each.partition): each.new_offset for each in moves}
        await commit_offsets(client, group, new)
    return moves


async def _chosen(
    client: KafkaClient, topics: tuple[str, ...], partitions: tuple[int, ...]
) -> list[TopicPartition]:
    chosen: list[TopicPartition] = []
    for topic in dict.fromkeys(topics):
        every = (await client.topic(topic)).all_partitions()
        wanted = [TopicPartition(topic, each) for each in dict.fromkeys(partitions)] or every
        for where in wanted:
            if where not in every:
                raise CommandError(f"topic {topic!r} has no partition {where.partition}")
        chosen += wanted
    return chosen


async def _moves(
    client: KafkaClient, group: str, partitions: list[TopicPartition], place: Place
) -> list[MovedOffset]:
    # A group may read uncommitted records, so open transactions do not limit its offsets.
    bounds = await bounds_of(client, partitions, Isolation.READ_UNCOMMITTED)
    found = await client.committed_offsets(group, partitions)
    committed = {where: each.offset for where, each in found.items()}
    at_time = await offsets_at(client, place.number, bounds.end) if place.kind == "time" else None
    new = resolve(place, bounds, committed=committed, at_time=at_time)
    if not new:
        raise CommandError(f"group {group!r} has no committed offsets to shift")
    return [
        MovedOffset(where.topic, where.partition, committed.get(where), offset, bounds.end[where])
        for where, offset in sorted(new.items())
    ]


def _moves_table(moves: list[MovedOffset]) -> Table:
    return Table(
        ("TOPIC", "PARTITION", "COMMITTED", "NEW", "END"),
        (
            (
                each.topic,
                each.partition,
                each.committed_offset,
                each.new_offset,
                each.log_end_offset,
            )
            for each in moves
        ),
    )
