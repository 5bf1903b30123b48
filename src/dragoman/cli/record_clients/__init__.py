"""The clients behind `produce` and `consume`: one per protocol, behind one reader and one writer.

`session` has the reader, the writer, and the values that commands exchange with them. A protocol is
a name in `ProtocolName` and a module with a `CLIENT`, imported when the protocol is chosen. It
declares what the protocol cannot express, and implements what differs on its wire.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

from dragoman.cli.record_clients.session import RecordClient

ProtocolName: TypeAlias = Literal["kafka", "rocketmq", "minibroker", "cursus", "mlog"]
MODULES: Final[dict[ProtocolName, str]] = {
    "kafka": "dragoman.cli.record_clients.kafka",
    "rocketmq": "dragoman.cli.record_clients.rocketmq",
    "minibroker": "dragoman.cli.record_clients.minibroker",
    "cursus": "dragoman.cli.record_clients.cursus",
    "mlog": "dragoman.cli.record_clients.mlog",
}

ProtocolOption: TypeAlias = Annotated[
    ProtocolName,
    Parameter(help="Protocol of the broker. Options that it cannot express are refused."),
]


def record_client(protocol: ProtocolName) -> RecordClient:
    found = import_module(MODULES[protocol]).CLIENT
    assert isinstance(found, RecordClient)
    return found
