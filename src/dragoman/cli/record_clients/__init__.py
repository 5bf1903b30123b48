"""The clients behind `produce` and `consume`: one per protocol, behind one reader and one writer.

`records` has what a command asks for and gets, `session` the reader and the writer. A protocol is a
name in `ProtocolName` and a module with a `CLIENT`, imported when the protocol is chosen: it
declares what the protocol cannot express and brings what differs on its wire.
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
    Parameter(help="Protocol to speak to the broker. What it cannot express is refused."),
]
AddressOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--bootstrap", "-b"],
        help="Address of a broker's listener, HOST:PORT; several with commas. By default the "
        "protocol's port on this machine.",
    ),
]


def record_client(protocol: ProtocolName) -> RecordClient:
    found = import_module(MODULES[protocol]).CLIENT
    assert isinstance(found, RecordClient)
    return found
