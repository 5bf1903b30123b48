"""The operator: every act is a command that the guide has, run as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nodes.process import SOURCE

_PATIENCE_S = 120.0


class Operator:
    """Works on the machine of the nodes, through the sockets in their data directories."""

    def __init__(self, data: Path) -> None:
        """`data` is the directory of the node that commands go to."""
        self._data = data
        self.commands = 0

    def types(self, *words: str, secret: str = "", status: int = 0) -> str:
        """Run a command, with a secret for its standard input. Returns what it printed."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
        self.commands += 1
        ran = subprocess.run(
            [sys.executable, "-m", "dragoman.cli.main", *words],
            input=secret,
            capture_output=True,
            text=True,
            env={**inherited, "PYTHONPATH": SOURCE, "DRAGOMAN_SERVER": f"unix:{self._data}"},
            timeout=_PATIENCE_S,
            check=False,
        )
        if "outcome is unknown" in ran.stderr and status != ran.returncode:
            # As the message says: the command may have been carried out, and does no harm twice.
            return self.types(*words, secret=secret, status=status)
        line = f"dragoman {' '.join(words)}"
        assert ran.returncode == status, f"{line}: {ran.returncode}: {ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    def sets(self, *settings: str, node: int | None = None) -> None:
        where = () if node is None else ("--node", str(node))
        self.types("config", "set", *settings, *where)
