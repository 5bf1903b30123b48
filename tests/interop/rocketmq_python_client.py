"""PyPI's `rocketmq`, behind the program in `rocketmq/python/`."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import rocketmq_operations
import rocketmq_signatures
from rocketmq_client import RocketmqClient

AGENT = Path(__file__).parent / "rocketmq" / "python" / "agent.py"
VERSION = "0.4.4"


def set_up() -> str:
    """Why it cannot be run, or nothing."""
    try:
        found = importlib.metadata.version("rocketmq")
    except importlib.metadata.PackageNotFoundError:
        return "there is no wheel of rocketmq for this machine"
    return "" if found == VERSION else f"rocketmq {found} is installed"


class RocketmqPythonClient(RocketmqClient):
    name = "rocketmq (PyPI)"
    version = VERSION
    sections = rocketmq_operations.SECTIONS | rocketmq_signatures.SECTION
    #: It does not pass on what the broker answers to a message.
    refusals = dict.fromkeys(("wrong", "unsigned", "no right"), "No route info of this topic")
    once = "once"
    has = frozenset(
        {
            "sync",
            "once",
            "one-way",
            "async",
            "batch",
            "properties",
            "delay",
            "queue",
            "first use",
            "push",
            "pull",
            "clustering",
            "broadcasting",
            "orderly",
            "TAG",
        }
    )

    def command(self, servers: str) -> list[str]:
        return ["env", f"HOME={self._home.name}", sys.executable, str(AGENT), servers]
