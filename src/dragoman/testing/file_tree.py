"""Directories and files in memory: names, links, space, and the operating system's own errors.

Both disks of this package are built on it. It owns the mapping of names to files; the contents of a
file, and their fate in a power cut, belong to the disks.

A change of names takes two steps. A `plan_*` method checks the request and returns the edits,
grouped so that each group is atomic on a real file system; `apply` performs one group and `undo`
reverts it. A simulated disk keeps applied groups until they are durable, and undoes some of them
when the power fails.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from dragoman.limits import FILE_NAME_BYTES_MAX


class FileNode:
    """The bytes of one file, with the numbers of its names and of its open descriptors."""

    __slots__ = ("data", "links", "opens")

    def __init__(self) -> None:
        self.data = bytearray()
        self.links = 0
        self.opens = 0


F = TypeVar("F", bound=FileNode)


class Directory(Generic[F]):
    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, F | Directory[F]] = {}


class Edit(NamedTuple, Generic[F]):
    """One name in one directory changes from `old` to `new`; None is absent."""

    directory: Directory[F]
    name: str
    old: F | Directory[F] | None
    new: F | Directory[F] | None


#: Edits that happen together or not at all.
Edits: TypeAlias = tuple[Edit[F], ...]


class DirectoryLock:
    """A lock on the directory of a node, held by a file of a disk in memory."""

    def __init__(self, exists: Callable[[str], bool], locked: set[str], path: str) -> None:
        self._exists = exists
        self._locked = locked
        self._path = path

    def is_ours(self) -> bool:
        return self._path in self._locked and self._exists(self._path)

    def release(self) -> None:
        self._locked.discard(self._path)


def os_error(code: int, path: str) -> OSError:
    """The exception of the operating system's call: `OSError` picks the subclass."""
    return OSError(code, os.strerror(code), path)


class FileTree(Generic[F]):
    def __init__(self, capacity_bytes: int) -> None:
        self.root: Directory[F] = Directory()
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0

    # ---- looking up

    def find(self, path: str) -> F | Directory[F] | None:
        node: F | Directory[F] | None = self.root
        if not path:
            return node
        for name in _parts(path):
            if not isinstance(node, Directory):
                raise os_error(errno.ENOTDIR, path)
            node = node.entries.get(name)
            if node is None:
                return None
        return node

    def file(self, path: str) -> F:
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        return node

    def directory(self, path: str, wanted: str = "") -> Directory[F]:
        """Errors name `wanted`, the requested path, when the directory is only its parent."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, wanted or path)
        if not isinstance(node, Directory):
            raise os_error(errno.ENOTDIR, wanted or path)
        return node

    def exists(self, path: str) -> bool:
        try:
            return self.find(path) is not None
        except NotADirectoryError:
            return False

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(self.directory(directory).entries)
        except FileNotFoundError:
            return []

    def files(self) -> Iterator[tuple[str, F]]:
        """Every file under every one of its names, in the order of the names."""
        yield from _files_below("", self.root)

    def directories(self) -> list[str]:
        """Every directory, children before parents; the root is last."""
        return [*_directories_below("", self.root), ""]

    # ---- planning a change of names

    def plan_add(self, path: str, node: F) -> Edits[F]:
        directory, name, old = self._place(path)
        if old is not None:
            raise os_error(errno.EEXIST, path)
        return (Edit(directory, name, None, node),)

    def plan_directories(self, path: str) -> list[Edits[F]]:
        """One group for each directory that is missing on the way.

        A crash may come between them.
        """
        groups: list[Edits[F]] = []
        node: F | Directory[F] | None = self.root
        for name in _parts(path) if path else ():
            if not isinstance(node, Directory):
                raise os_error(errno.ENOTDIR, path)
            following = node.entries.get(name)
            if following is None:
                _check_name(name, path)
                following = Directory()
                groups.append((Edit(node, name, None, following),))
            node = following
        if not isinstance(node, Directory):
            raise os_error(errno.EEXIST, path)
        return groups

    def plan_remove(self, path: str) -> Edits[F]:
        """No edits when the file is missing."""
        try:
            directory, name, old = self._place(path)
        except FileNotFoundError:
            return ()
        if old is None:
            return ()
        if isinstance(old, Directory):
            raise os_error(errno.EISDIR, path)
        return (Edit(directory, name, old, None),)

    def plan_remove_directory(self, path: str) -> Edits[F]:
        """No edits when the directory is missing."""
        try:
            directory, name, old = self._place(path)
        except FileNotFoundError:
            return ()
        if old is None:
            return ()
        if not isinstance(old, Directory):
            raise os_error(errno.ENOTDIR, path)
        if old.entries:
            raise os_error(errno.ENOTEMPTY, path)
        return (Edit(directory, name, old, None),)

    def plan_link(self, old: str, new: str) -> Edits[F]:
        node = self.find(old)
        if node is None:
            raise os_error(errno.ENOENT, old)
        if isinstance(node, Directory):
            raise os_error(errno.EPERM, old)
        return self.plan_add(new, node)

    def plan_rename(self, old: str, new: str) -> Edits[F]:
        source, source_name, node = self._place(old)
        if node is None:
            raise os_error(errno.ENOENT, old)
        target, target_name, replaced = self._place(new)
        if replaced is node:
            # POSIX: two names of one file stay as they are.
            return ()
        if isinstance(node, Directory):
            if new.startswith(old + "/"):
                raise os_error(errno.EINVAL, new)
            if replaced is not None and not isinstance(replaced, Directory):
                raise os_error(errno.ENOTDIR, new)
            if isinstance(replaced, Directory) and replaced.entries:
                raise os_error(errno.ENOTEMPTY, new)
        elif isinstance(replaced, Directory):
            raise os_error(errno.EISDIR, new)
        return (
            Edit(source, source_name, node, None),
            Edit(target, target_name, replaced, node),
        )

    # ---- performing a change

    def apply(self, edits: Edits[F]) -> None:
        for edit in edits:
            self._set(edit.directory, edit.name, edit.new)
        for edit in edits:
            self._count(edit.new, 1)
        for edit in edits:
            self._count(edit.old, -1)

    def undo(self, edits: Edits[F]) -> None:
        for edit in reversed(edits):
            self._set(edit.directory, edit.name, edit.old)

    def opened(self, node: F) -> None:
        node.opens += 1

    def closed(self, node: F) -> None:
        node.opens -= 1
        self._release_if_unreachable(node)

    def recount(self) -> None:
        """Recount links and space from the names alone, with no file open: after a crash."""
        nodes = [node for _, node in self.files()]
        for node in nodes:
            node.links = node.opens = 0
        self.used_bytes = 0
        for node in nodes:
            if not node.links:
                self.used_bytes += len(node.data)
            node.links += 1

    def _set(self, directory: Directory[F], name: str, node: F | Directory[F] | None) -> None:
        if node is None:
            directory.entries.pop(name, None)
        else:
            directory.entries[name] = node

    def _count(self, node: F | Directory[F] | None, change: int) -> None:
        if node is None or isinstance(node, Directory):
            return
        node.links += change
        self._release_if_unreachable(node)

    def _release_if_unreachable(self, node: F) -> None:
        if not node.links and not node.opens:
            self.used_bytes -= len(node.data)

    def _place(self, path: str) -> tuple[Directory[F], str, F | Directory[F] | None]:
        """The directory of a path's last name, that name, and its file or directory."""
        name = _parts(path)[-1]
        _check_name(name, path)
        directory = self.directory(path[: -len(name) - 1], path)
        return directory, name, directory.entries.get(name)


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    for part in parts:
        if not part or part in (".", ".."):
            raise ValueError(f"{path!r} is not a plain path relative to the disk's root")
    return parts


def _check_name(name: str, path: str) -> None:
    if len(name.encode()) > FILE_NAME_BYTES_MAX:
        raise os_error(errno.ENAMETOOLONG, path)


def _files_below(prefix: str, directory: Directory[F]) -> Iterator[tuple[str, F]]:
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, Directory):
            yield from _files_below(f"{prefix}{name}/", node)
        else:
            yield f"{prefix}{name}", node


def _directories_below(prefix: str, directory: Directory[F]) -> Iterator[str]:
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, Directory):
            yield from _directories_below(f"{prefix}{name}/", node)
            yield f"{prefix}{name}"
