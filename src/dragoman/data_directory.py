"""What belongs in a node's directory, and which directories a node takes.

A node starts in a data directory, in an empty directory, or in one that it makes. Any other
directory is refused before anything is written: its files are of something else. A start that fails
in a directory that was new removes what it made there, so that the next one begins anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from dragoman.cluster.raft_quorum.storage import SNAPSHOT_FILE
from dragoman.errors import ConfigError, DirectoryInUseError
from dragoman.limits import SPARE_FILES
from dragoman.log.directory import LOCK_FILE, PARTITIONS, QUARANTINE
from dragoman.log.journal import DIRECTORY as JOURNAL
from dragoman.log.node import NODE_FILE
from dragoman.log.pins import PINS
from dragoman.net.operator_socket import NAME as SOCKET
from dragoman.operating_system import RealDisk, open_files_max
from dragoman.security.audit import AUDIT_FILE
from dragoman.security.secrets import KEY_FILE

SPOOL = "spool"
#: `telemetry/history/files.py`, which is imported after the start.
HISTORY = "history"
_OWN = frozenset(
    {
        NODE_FILE,
        f"{NODE_FILE}.new",
        LOCK_FILE,
        JOURNAL,
        PARTITIONS,
        QUARANTINE,
        PINS,
        HISTORY,
        SPOOL,
        SNAPSHOT_FILE,
        SOCKET,
        AUDIT_FILE,
        KEY_FILE,
    }
)
#: What file systems put into their root.
_OF_VOLUMES = frozenset({"lost+found"})


def is_data_directory(path: str) -> bool:
    """Whether a node has used the directory, with or without `node.json`. Raises `OSError`."""
    return os.path.exists(os.path.join(path, NODE_FILE)) or any(
        os.path.isdir(each) and os.listdir(each)
        for each in (os.path.join(path, JOURNAL), os.path.join(path, PARTITIONS))
    )


def foreign_names(path: str, files: Iterable[str]) -> list[str]:
    """What a directory has that is of something else, unless it is a data directory. `files` are
    named in the settings, and may be there. Raises `OSError`.
    """
    if is_data_directory(path):
        return []
    root = os.path.abspath(path)
    named = {os.path.relpath(os.path.abspath(each), root).split(os.sep)[0] for each in files}
    return sorted(set(os.listdir(path)) - _OWN - _OF_VOLUMES - named)


def refuse_other_directory(path: str, files: Iterable[str]) -> None:
    """Raises `ConfigError` for a directory with files of something else."""
    try:
        others = foreign_names(path, files)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # The start reports it.
        return
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise ConfigError(
            f"{path} is not a data directory and not empty: it has {others[0]}{more}; "
            f"name another directory, which is made when it is missing: "
            f"`--data {os.path.join(path, 'dragoman-data')}`"
        )


def open_data_directory(path: str) -> RealDisk:
    """Raises `ConfigError` when the directory cannot be created or written."""
    try:
        disk = RealDisk(path, min(SPARE_FILES, open_files_max() // 8))
    except OSError as error:
        raise ConfigError(f"data directory {path}: {error.strerror or error}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"data directory {path} is not writable")
    return disk


class NewDirectory:
    """The directory of a node before its first start."""

    def __init__(self, path: str) -> None:
        self._root = os.path.abspath(path)
        #: Directories that a start makes, the innermost first.
        self._missing: list[str] = []
        parent = self._root
        while not os.path.lexists(parent):
            self._missing.append(parent)
            parent = os.path.dirname(parent)
        try:
            #: Whether a failed start may remove what it made.
            self.is_new = not is_data_directory(path)
            self._found = set() if self._missing else set(os.listdir(self._root))
        except OSError:
            # The start will report it.
            self.is_new = False

    def restore(self) -> None:
        """Remove what the node made. The node has released its lock on the directory."""
        if os.path.isdir(self._root):
            disk = RealDisk(self._root)
            try:
                lock = disk.lock(LOCK_FILE)
            except DirectoryInUseError:
                # Another node was faster: the directory is its own.
                return
            try:
                for name in sorted(_OWN - self._found):
                    _remove(os.path.join(self._root, name))
            finally:
                lock.release()
        for path in self._missing:
            with suppress(OSError):
                os.rmdir(path)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            _remove(os.path.join(path, name))
        os.rmdir(path)
    elif os.path.lexists(path):
        os.remove(path)


@contextmanager
def restored_unless(path: str, is_needed: Callable[[], bool]) -> Iterator[None]:
    """Restore a directory to what it was before its first start, if that start raises.

    `is_needed` says whether the directory has to stay even then.
    """
    new = NewDirectory(path)
    try:
        yield
    except BaseException:
        if new.is_new and not is_needed():
            # The error of the start counts.
            with suppress(OSError):
                new.restore()
        raise
