"""`dragoman topic`: list, describe, create and delete topics."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.api.values import NewTopic, TopicDescription
from dragoman.cli.output import Output, print_fields, print_json, print_table
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server, topic_path
from dragoman.cli.status import USAGE, CommandError, say

app = App(name="topic", help="List, describe, create and delete topics.")


class DeletedTopic(msgspec.Struct, frozen=True):
    """An item of the JSON output of `topic delete`."""

    name: str


@app.command(name="list")
def list_topics(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """List topics."""
    topics = Remote(server).topics()
    if output == "json":
        print_json(topics)
        return
    columns = ("NAME", "PARTITIONS", "REPLICAS", "INTERNAL")
    print_table(
        columns,
        ((each.name, each.partitions, each.replication_factor, each.internal) for each in topics),
    )


@app.command
def describe(name: str, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show a topic's partitions and configuration.

    Parameters
    ----------
    name
        Topic to show.
    """
    topic = Remote(server).topic(name)
    if output == "json":
        print_json(topic)
    else:
        _print_description(topic)


@app.command
def create(
    name: str,
    /,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
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
    """
    wanted = NewTopic(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        config=_parse_config(config),
    )
    topic = Remote(server).post("/api/v1/topics", wanted, TopicDescription)
    if output == "json":
        print_json(topic)
    say(f"created topic {topic.name!r} with partitions: {len(topic.partitions)}")
    if topic.hidden_from:
        say(_hidden(topic))


@app.command
def delete(*names: str, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Delete topics and their records.

    Parameters
    ----------
    names
        Topics to delete.
    """
    if not names:
        raise CommandError("NAMES: expected the name of at least one topic", USAGE)
    remote = Remote(server)
    for name in names:
        remote.delete(topic_path(name))
        say(f"deleted topic {name!r}")
    if output == "json":
        print_json([DeletedTopic(name) for name in names])


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


def _print_description(topic: TopicDescription) -> None:
    fields: list[tuple[str, str | bool]] = [
        ("name", topic.name),
        ("topic id", topic.topic_id),
        ("internal", topic.internal),
    ]
    if topic.hidden_from:
        fields.append(("hidden from", ", ".join(topic.hidden_from)))
    print_fields(fields)
    print()
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
    print_table(
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
    print()
    print_table(
        ("CONFIG", "VALUE", "SOURCE"),
        (
            (each.name, each.value, each.source if each.effective else f"{each.source}, no effect")
            for each in topic.config
        ),
    )
