"""Permissions of a data directory whose topics a group of the system may read."""

from __future__ import annotations

import os
import stat
from typing import Final

#: Directories of a data directory: partitions (log/directory.py) and pins (log/pins.py).
_PARTITIONS: Final = "partitions"
_PINS: Final = "pins"
#: Modes of shared directories: with the group passing, reading, and making files of its own, which
#: only their owners remove. Files get the group of their directory (setgid).
_PASSED, _READ, _PINNED = 0o710, 0o2750, 0o3770
_SHARED_FILE = 0o640
#: Modes for the node's user alone.
CLOSED: Final = 0o700
CLOSED_FILE: Final = 0o600


class SharedDirectory:
    """A data directory in which a group may read the files of topics.

    Permissions of directories decide: the group passes the root and `partitions`, and reads the
    directories of partitions whose topic is not internal. All others are closed, and so are files
    in the root.
    """

    def __init__(self, root: str, group: int) -> None:
        self._root = root
        self._group = group

    def apply(self) -> None:
        """Give everything that exists its permissions, the root last. Raises `OSError`, EPERM if
        this user is not a member of the group.
        """
        for entry in os.scandir(self._root):
            if entry.name not in (_PARTITIONS, _PINS):
                _restrict(entry)
        partitions = f"{self._root}/{_PARTITIONS}"
        os.makedirs(partitions, exist_ok=True)
        for entry in os.scandir(partitions):
            if entry.is_dir(follow_symlinks=False):
                self.made(f"{_PARTITIONS}/{entry.name}", entry.path)
        os.makedirs(f"{self._root}/{_PINS}", exist_ok=True)
        self._set(f"{self._root}/{_PINS}", _PINNED)
        self._set(partitions, _PASSED)
        self._set(self._root, _PASSED)

    def made(self, path: str, full: str) -> None:
        """Give a directory, which was made or found at this path, its permissions."""
        first, _, rest = path.partition("/")
        if first != _PARTITIONS or not rest or "/" in rest:
            return
        if not _is_of_users(rest):
            os.chmod(full, CLOSED)
            return
        found = os.stat(full)
        if (found.st_gid, stat.S_IMODE(found.st_mode)) != (self._group, _READ):
            for entry in os.scandir(full):
                os.chown(entry.path, -1, self._group)
                os.chmod(entry.path, _SHARED_FILE)
            self._set(full, _READ)

    def _set(self, full: str, mode: int) -> None:
        found = os.stat(full)
        if found.st_gid != self._group:
            os.chown(full, -1, self._group)
        # A change of the group clears the bits above the permissions.
        os.chmod(full, mode)


def _restrict(entry: os.DirEntry[str]) -> None:
    """Close a file or a directory to all but its user."""
    if not entry.is_symlink():
        os.chmod(entry.path, CLOSED if entry.is_dir() else CLOSED_FILE)


def _is_of_users(directory: str) -> bool:
    """Whether a partition's directory, `ID-TOPIC-INDEX`, belongs to a topic of users."""
    identity, dash, topic = directory.partition("-")
    return bool(dash) and identity.isdecimal() and not topic.startswith("__")


def close_directory(root: str) -> None:
    """Take a data directory back from the group that it was shared with, if it was."""
    try:
        modes = [stat.S_IMODE(os.stat(each).st_mode) for each in (root, f"{root}/{_PARTITIONS}")]
    except FileNotFoundError:
        return
    if modes == [_PASSED, _PASSED]:
        os.chmod(root, CLOSED)
