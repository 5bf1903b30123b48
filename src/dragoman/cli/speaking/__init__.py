"""Protocols of `produce` and `consume`: one module per protocol, behind one interface.

A protocol is a name in `ProtocolName` and a module that has a `SPEAKER` (`interface.py`), which is
imported when it is chosen. Each module maps records to what its protocol can express, and refuses
the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

from dragoman.cli.speaking.interface import Speaker

ProtocolName: TypeAlias = Literal["kafka", "rocketmq", "minibroker", "cursus", "mlog"]
MODULES: Final[dict[ProtocolName, str]] = {
    "kafka": "dragoman.cli.speaking.kafka",
    "rocketmq": "dragoman.cli.speaking.rocketmq",
    "minibroker": "dragoman.cli.speaking.minibroker",
    "cursus": "dragoman.cli.speaking.cursus",
    "mlog": "dragoman.cli.speaking.mlog",
}

SpokenProtocol: TypeAlias = Annotated[
    ProtocolName,
    Parameter(help="Protocol to speak to the broker. What it cannot express is refused."),
]
Address: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--bootstrap", "-b"],
        help="Address of a broker's listener, HOST:PORT; several with commas. By default the "
        "protocol's port on this machine.",
    ),
]


def speaker(protocol: ProtocolName) -> Speaker:
    found = import_module(MODULES[protocol]).SPEAKER
    assert isinstance(found, Speaker)
    return found
