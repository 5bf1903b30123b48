"""How commands that move records reach a cluster: over Kafka's protocol, like any client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from dragoman import limits
from dragoman.cli.status import USAGE, CommandError
from dragoman.client.kafka import (
    BlockingKafkaClient,
    ClientSettings,
    LiveGroupError,
    UnknownGroupError,
    UnreachableError,
    UnsupportedRequestError,
)
from dragoman.errors import ConfigError, DragomanError

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
    try:
        client = BlockingKafkaClient(bootstrap, _SETTINGS)
    except ConfigError as error:
        raise CommandError(f"--bootstrap: {error}", USAGE) from None
    try:
        with client:
            yield client
    except CommandError:
        raise
    except UnreachableError as error:
        raise CommandError(f"{error}; is a node there?") from None
    except LiveGroupError as error:
        raise CommandError(f"{error}; stop its members first") from None
    except DragomanError as error:
        raise CommandError(str(error)) from None


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
