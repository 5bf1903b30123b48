"""The files for Docker Compose: its own parser takes them, and a node their settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deploy_check import tools
from deploy_check.command import ROOT, output_of
from deploy_check.settings import settings_of

FOLDER = ROOT / "deploy" / "compose"


def services(path: Path) -> dict[str, Any]:
    """The services of a file as Compose understands it."""
    said = output_of((tools.compose(), "--file", path, "config", "--format", "json"))
    return dict(json.loads(said)["services"])


def check() -> None:
    for path in sorted(FOLDER.glob("*.yaml")):
        nodes = 0
        for service in services(path).values():
            variables = service.get("environment") or {}
            if "DRAGOMAN_LISTEN" not in variables:
                continue
            nodes += 1
            settings_of({name: str(value) for name, value in variables.items()})
        print(f"  {path.name}: valid, nodes with valid settings: {nodes}", flush=True)
