"""Topics of a benchmark: its own, which it makes and deletes, or those that the user names."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dragoman.cli.status import say
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from dragoman.client_core.errors import ClientError
from dragoman.errors import DragomanError

#: Begins the names of topics that a benchmark makes. It deletes only topics that it has made.
PREFIX = "bench-"


@contextmanager
def topics(
    client: BlockingKafkaClient,
    *,
    named: Sequence[str],
    count: int,
    partitions: int,
    replication_factor: int,
    keep: bool,
) -> Iterator[tuple[str, ...]]:
    if named:
        for name in named:
            client.topic(name)
        yield tuple(named)
        return
    run = secrets.token_hex(4)
    made: list[str] = []
    try:
        for number in range(count):
            name = f"{PREFIX}{run}-{number}"
            # Before the request: it may succeed without a reply.
            made.append(name)
            wanted = NewTopic(
                name=name, partitions=partitions, replication_factor=replication_factor
            )
            try:
                client.create_topic(wanted)
            except ClientError as error:
                if not error.is_ambiguous:
                    made.pop()
                raise
        yield tuple(made)
    finally:
        if keep:
            say(f"kept: {', '.join(made)}")
        else:
            _delete(client, made)


def _delete(client: BlockingKafkaClient, names: Sequence[str]) -> None:
    for name in names:
        try:
            client.delete_topic(name)
        except DragomanError as error:
            say(f"topic {name!r} was not deleted: {error}")
