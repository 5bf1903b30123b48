"""`dragoman topic`: list, describe, create and delete topics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number

from dragoman import limits
from dragoman.api.values import GroupDescription, NewTopic, TopicDescription, TopicSummary
from dragoman.cli.confirmation import ask, refuse_unasked
from dragoman.cli.output import Fields, Output, Part, Table, show, show_change
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server, group_path, topic_path
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.telemetry.logs import escape

#: `is_visible` in `protocols/kafka/handlers/resources.py`, and no name of a directory.
_KAFKA_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
#: Groups that `topic delete` looks through for committed offsets.
_GROUPS_MAX = 100
_PARTITIONS = Number(gte=1, lte=limits.TOPIC_PARTITIONS_MAX)
_REPLICAS = Number(gte=1, lte=limits.REPLICATION_FACTOR_MAX)

app = App(name="topic", help="List, describe, create and delete topics.")


class DeletedTopic(msgspec.Struct, frozen=True):
    """An item of the JSON output of `topic delete`."""

    name: str


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the output of `topic delete --dry-run`."""

    name: str
    partitions: int
    #: At most: offsets without a record count, too. The replicas of the answering node count.
    records: int
    size_bytes: int
    #: Groups with committed offsets; null when they are many or hidden from this user.
    groups: tuple[str, ...] | None


@app.command(name="list")
def list_topics(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """List topics."""
    topics = Remote(server).topics()
    rows = ((each.name, each.partitions, each.replication_factor, each.internal) for each in topics)
    table = Table(("NAME", "PARTITIONS", "REPLICAS", "INTERNAL"), rows)
    show(output, topics, TopicSummary, table)


@app.command
def describe(name: str, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show a topic's partitions and configuration.

    Parameters
    ----------
    name
        Topic to show.
    """
    topic = Remote(server).topic(name)
    show(output, topic, TopicDescription, *_description(topic))


@app.command
def create(
    name: str,
    /,
    *,
    partitions: Annotated[int | None, Parameter(validator=_PARTITIONS)] = None,
    replication_factor: Annotated[int | None, Parameter(validator=_REPLICAS)] = None,
    config: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    any_name: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Create a topic.

    Parameters
    ----------
    name
        Topic to create.
    partitions
        Number of partitions; the node's setting by default.
    replication_factor
        Number of replicas; the node's setting by default.
    config
        Configuration of the topic, as KEY=VALUE; may be repeated.
    any_name
        Allow a name that Kafka clients cannot use.
    """
    if not any_name and not _KAFKA_NAME.fullmatch(name):
        raise CommandError(
            f"Kafka clients cannot use a topic named {name!r}: 1 to 249 ASCII letters, digits, "
            "'.', '_' and '-'; --any-name creates it for the others",
            USAGE,
        )
    wanted = NewTopic(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        config=_parse_config(config),
    )
    topic = Remote(server).post("/api/v1/topics", wanted, TopicDescription)
    message = f"created topic {topic.name!r} with partitions: {len(topic.partitions)}"
    show_change(output, message, topic, TopicDescription)
    if topic.hidden_from:
        say(_hidden(topic))


@app.command
def delete(
    *names: str,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Delete topics and their records.

    Parameters
    ----------
    names
        Topics to delete.
    yes
        Delete without a question. Needed where stdin is not a terminal.
    dry_run
        Show what would be lost, and delete nothing.
    """
    if not names:
        raise CommandError("NAMES: expected the name of at least one topic", USAGE)
    if not (yes or dry_run):
        refuse_unasked("topic delete")
    remote = Remote(server)
    if dry_run or not yes:
        losses = _losses(remote, names)
        if dry_run:
            show(output, losses, Loss, _losses_table(losses))
            return
        ask("\n".join([*map(_loss_text, losses), "Delete for good?"]))
    for name in names:
        remote.delete(topic_path(name))
        if output == "table":
            say(f"deleted topic {name!r}")
    if output != "table":
        show(output, [DeletedTopic(name) for name in names], DeletedTopic)


def _losses(remote: Remote, names: Sequence[str]) -> list[Loss]:
    """What a deletion loses. Raises `CommandError`, also for a topic that does not exist."""
    topics = [remote.get(topic_path(name), TopicDescription) for name in names]
    readers = _readers(remote)
    return [
        Loss(
            name=topic.name,
            partitions=len(topic.partitions),
            records=sum(
                each.high_watermark - each.log_start_offset
                for each in topic.partitions
                if each.high_watermark is not None and each.log_start_offset is not None
            ),
            size_bytes=sum(each.size_bytes or 0 for each in topic.partitions),
            groups=None if readers is None else tuple(readers.get(topic.name, ())),
        )
        for topic in topics
    ]


def _readers(remote: Remote) -> dict[str, list[str]] | None:
    """Groups with committed offsets, by topic; None when they are many or hidden from this user."""
    try:
        groups = remote.groups()
        if len(groups) > _GROUPS_MAX:
            return None
        found: dict[str, list[str]] = {}
        for group in groups:
            description = remote.get(group_path(group.group), GroupDescription)
            for topic in sorted({each.topic for each in description.offsets}):
                found.setdefault(topic, []).append(group.group)
        return found
    except CommandError:
        return None


def _loss_text(loss: Loss) -> str:
    groups = "" if not loss.groups else f", offsets of groups {', '.join(loss.groups)}"
    return escape(
        f"topic {loss.name!r}: partitions: {loss.partitions}, records: {loss.records:,} "
        f"({loss.size_bytes:,} bytes){groups}"
    )


def _losses_table(losses: list[Loss]) -> Table:
    return Table(
        ("NAME", "PARTITIONS", "RECORDS", "BYTES", "GROUPS"),
        (
            (
                each.name,
                each.partitions,
                each.records,
                each.size_bytes,
                None if each.groups is None else ", ".join(each.groups),
            )
            for each in losses
        ),
    )


def _parse_config(assignments: tuple[str, ...]) -> dict[str, str]:
    config: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise CommandError(f"--config: expected KEY=VALUE, got {assignment!r}", USAGE)
        config[key] = value
    return config


def _hidden(topic: TopicDescription) -> str:
    protocols = ", ".join(topic.hidden_from)
    return f"warning: {protocols} cannot express this name, so their clients do not see the topic"


def _description(topic: TopicDescription) -> tuple[Part, ...]:
    fields: list[tuple[str, str | bool]] = [
        ("name", topic.name),
        ("topic id", topic.topic_id),
        ("internal", topic.internal),
    ]
    if topic.hidden_from:
        fields.append(("hidden from", ", ".join(topic.hidden_from)))
    columns = (
        "PARTITION",
        "LEADER",
        "EPOCH",
        "REPLICAS",
        "IN SYNC",
        "START",
        "HIGH",
        "END",
        "BYTES",
    )
    partitions = Table(
        columns,
        (
            (
                each.partition,
                each.leader,
                each.leader_epoch,
                each.replicas,
                each.in_sync,
                each.log_start_offset,
                each.high_watermark,
                each.log_end_offset,
                each.size_bytes,
            )
            for each in topic.partitions
        ),
    )
    config = Table(
        ("CONFIG", "VALUE", "SOURCE"),
        (
            (each.name, each.value, each.source if each.effective else f"{each.source}, no effect")
            for each in topic.config
        ),
    )
    return Fields(fields), partitions, config
