"""Options that the commands share, how they reach a cluster, and how they show what they found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from dragoman.cli.failures import one_line_failures
from dragoman.cli.output import Output, print_json, print_table
from dragoman.cli.status import USAGE, CommandError
from dragoman.client.rocketmq import (
    BlockingProducer,
    BlockingRocketmqAdmin,
    BlockingRocketmqClient,
    ClientSettings,
)
from dragoman.errors import ConfigError
from dragoman.limits import CLI_TIMEOUT_SECONDS

DEFAULT_NAMESRV = "127.0.0.1:9876"
_SETTINGS = ClientSettings(operation_timeout_s=1.0, request_timeout_s=float(CLI_TIMEOUT_SECONDS))

NameServers: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--namesrv", "-n", "--namesrvAddr"],
        env_var="NAMESRV_ADDR",
        help="Addresses of name servers, HOST:PORT; several with commas.",
    ),
]
Topic: TypeAlias = Annotated[str, Parameter(name=["--topic", "-t"], help="Topic.")]
Group: TypeAlias = Annotated[
    str, Parameter(name=["--group", "-g", "--groupName"], help="Consumer group.")
]
Cluster: TypeAlias = Annotated[
    str | None,
    Parameter(name=["--cluster", "-c", "--clusterName"], help="Cluster; all when left out."),
]
Broker: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--broker", "-b", "--brokerAddr"],
        help="Address of one broker; all masters when left out.",
    ),
]


@contextmanager
def administering(namesrv: str) -> Iterator[BlockingRocketmqAdmin]:
    """Every failure inside becomes a `CommandError` fit to be shown."""
    with one_line_failures("RocketMQ"):
        try:
            admin = BlockingRocketmqAdmin(namesrv, settings=_SETTINGS)
        except ConfigError as error:
            raise CommandError(f"--namesrv: {error}", USAGE) from None
        with admin:
            yield admin


@contextmanager
def sending(namesrv: str) -> Iterator[BlockingProducer]:
    with one_line_failures("RocketMQ"):
        try:
            client = BlockingRocketmqClient(namesrv, settings=_SETTINGS)
        except ConfigError as error:
            raise CommandError(f"--namesrv: {error}", USAGE) from None
        with client, client.producer("dragoman-cli") as producer:
            yield producer


def show(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct], output: Output) -> None:
    """Rows of one type: a table with a column for each field, or JSON."""
    if output == "json":
        print_json(rows)
        return
    names = kind.__struct_fields__
    columns = [name.replace("_", " ").upper() for name in names]
    print_table(columns, ([getattr(row, name) for name in names] for row in rows))


def time_text(time_ms: int) -> str:
    """Empty for none."""
    if time_ms <= 0:
        return ""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
