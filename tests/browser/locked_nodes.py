"""Nodes as processes that demand logins, with an administrator and a user who may do little."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from browser.console_world import ADMIN, PASSWORD, VIEWER
from dragoman.cli.remote import Remote
from dragoman.security.key_file import KEY_BYTES, format_keys, new_key
from nodes.cluster import ServedCluster


def options(root: Path) -> list[str]:
    """What the nodes are started with; the key of the cluster is put into the folder."""
    key = root / "cluster.key"
    key.write_bytes(format_keys([new_key(os.urandom(KEY_BYTES + 4))]))
    key.chmod(0o600)
    settings = {
        "listener.kafka.authentication": "required",
        "listener.http.authentication": "required",
        "super.users": f"User:{ADMIN}",
        "sasl.insecure.clear.text": "true",
        "cluster.key.file": str(key),
    }
    return [word for pair in settings.items() for word in ("--set", "=".join(pair))]


def create_users(nodes: ServedCluster) -> None:
    """As the administrator of the first node's machine."""
    operator = Remote(f"unix:{nodes.data(1)}")
    for name in (ADMIN, VIEWER):
        user = {"name": name, "password": PASSWORD}
        operator.post("/api/v1/security/users", user, dict[str, Any])
