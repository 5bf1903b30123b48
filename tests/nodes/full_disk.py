"""A small file system of its own for a node, which can be filled and emptied from outside.

A tmpfs in a mount namespace of the node: no privileges are needed where users may have namespaces.
"""

from __future__ import annotations

import errno
import subprocess
import sys
from functools import cache
from pathlib import Path

from nodes.process import ServedNode

_BALLAST = "ballast"
_PIECE = bytes(1 << 16)


@cache
def reason_against() -> str:
    """Why this machine cannot do it; empty: it can."""
    try:
        tried = subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except FileNotFoundError:
        return "there is no unshare"
    return "" if not tried.returncode else f"no mounts of its own for a process: {tried.stderr}"


def launcher(directory: Path, size_mib: int) -> list[str]:
    """What to start a node with, so that it has a file system of that size there."""
    directory.mkdir()
    script = f'mount -t tmpfs -o size={size_mib}m none "$0" && exec "$@"'
    return ["unshare", "-rm", "sh", "-c", script, str(directory), sys.executable]


class SmallDisk:
    """The file system as the node sees it."""

    def __init__(self, node: ServedNode, directory: Path) -> None:
        self._ballast = Path(f"/proc/{node.process.pid}/root{directory}") / _BALLAST

    def fill(self) -> None:
        """To the last byte."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(_PIECE)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def empty(self) -> None:
        """Take away what `fill` has put there."""
        self._ballast.unlink()
