"""`dragoman topic`: list, describe and create topics.

`topic_settings` has what changes them, `topic_records` what deletes them or their records.
"""

from __future__ import annotations

import re
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from dragoman import limits
from dragoman.api.values import NewTopic, TopicDescription, TopicSummary
from dragoman.cli.completers import TopicName
from dragoman.cli.output import Fields, Output, Part, Table, show, show_change
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.cli.topic_records import delete, truncate
from dragoman.cli.topic_settings import alter, assignments, partitions

#: `is_visible` in `protocols/kafka/handlers/resources.py`, and no name of a directory.
_KAFKA_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_PARTITIONS = Number(gte=1, lte=limits.TOPIC_PARTITIONS_MAX)
_REPLICAS = Number(gte=1, lte=limits.REPLICATION_FACTOR_MAX)

app = App(name="topic", help="List, describe, create, change and delete topics.")
app.command(alter)
app.command(partitions)
app.command(truncate)
app.command(delete)


@app.command(name="list")
def list_topics(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """List topics.

    Examples
    --------
    dragoman topic list
    dragoman topic list --output csv > topics.csv
    """
    topics = Remote(server).topics()
    rows = ((each.name, each.partitions, each.replication_factor, each.internal) for each in topics)
    table = Table(("NAME", "PARTITIONS", "REPLICAS", "INTERNAL"), rows)
    show(output, topics, TopicSummary, table)


@app.command
def describe(
    name: TopicName, /, *, server: Server = DEFAULT_SERVER, output: Output = "table"
) -> None:
    """Show a topic's partitions and configuration.

    Parameters
    ----------
    name
        Topic to show.

    Examples
    --------
    dragoman topic describe orders
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

    Examples
    --------
    dragoman topic create payments --partitions 3 --config retention.ms=86400000
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
        config=assignments("--config", config),
    )
    topic = Remote(server).post("/api/v1/topics", wanted, TopicDescription)
    message = f"created topic {topic.name!r} with partitions: {len(topic.partitions)}"
    show_change(output, message, topic, TopicDescription)
    if topic.hidden_from:
        say(_hidden(topic))


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
