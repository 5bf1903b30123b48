"""KafkaJS, behind the program in `kafkajs/`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from client import Unsupported
from remote_client import Remote, RemoteClient

SOURCES = Path(__file__).parent / "kafkajs"
BUILD = Path(__file__).parents[2] / "build" / "interop" / "kafkajs"


def set_up() -> str:
    """Install the packages, once. Why it cannot be run, or nothing."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    wanted, stamp = (SOURCES / "package.json").read_bytes(), BUILD / "installed.json"
    if not stamp.exists() or stamp.read_bytes() != wanted:
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / "package.json").write_bytes(wanted)
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
        subprocess.run(install, cwd=BUILD, check=True, timeout=600)
        stamp.write_bytes(wanted)
    # A module is looked for beside the program that imports it.
    for program in SOURCES.glob("*.mjs"):
        shutil.copy(program, BUILD)
    return ""


class KafkaJSClient(RemoteClient):
    name = "KafkaJS"
    version = json.loads((SOURCES / "package.json").read_text())["dependencies"]["kafkajs"]
    lacks = frozenset(
        {
            "delete_group_offset",
            "list_transactions",
            "producer_states",
            "elect_leader",
            "features",
            "quota",
            "alter_quota",
            "log_directory_bytes",
        }
    )

    def command(self, servers: str) -> list[str]:
        return ["node", str(BUILD / "agent.mjs"), servers]

    def member(
        self,
        group: str,
        topics: Sequence[str],
        pattern: str | None = None,
        protocol: str = "classic",
        instance: str | None = None,
    ) -> Remote:
        if protocol != "classic" or instance is not None:
            raise Unsupported("neither other protocols nor static members")
        if pattern is not None:
            raise Unsupported("a pattern is matched once, when it is given")
        return super().member(group, topics)
