"""RocketMQ's clients for Node, behind the programs in `rocketmq/node/`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import rocketmq_operations
from rocketmq_client import RocketmqClient

SOURCES = Path(__file__).parent / "rocketmq" / "node"
BUILD = Path(__file__).parents[2] / "build" / "interop" / "rocketmq-node"
_VERSIONS = json.loads((SOURCES / "package.json").read_text())["dependencies"]


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


class AliOnsClient(RocketmqClient):
    name = "ali-ons"
    version = _VERSIONS["ali-ons"]
    sections = rocketmq_operations.SECTIONS
    has = frozenset(
        {
            "sync",
            "properties",
            "delay",
            "push",
            "clustering",
            "broadcasting",
            "TAG",
            "SQL92",
            "attempts max",
        }
    )

    def command(self, servers: str) -> list[str]:
        return ["node", str(BUILD / "ali-ons.mjs"), servers]


class RocketmqNodejsClient(RocketmqClient):
    name = "rocketmq-nodejs"
    version = _VERSIONS["rocketmq-nodejs"]
    sections = rocketmq_operations.SECTIONS
    has = frozenset({"sync", "push", "clustering", "TAG", "attempts max", "first use"})

    def command(self, servers: str) -> list[str]:
        return [
            "env",
            f"HOME={self._home.name}",
            "node",
            str(BUILD / "rocketmq-nodejs.mjs"),
            servers,
        ]
