"""`MemoryDisk`: the disk port without a disk, for brokers that live and die with a test.

Nothing fails and nothing is lost except by running out of the given capacity. What is "durable"
here lives as long as the object. Errors are the operating system's own.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Literal

from dragoman.errors import DirectoryInUseError
from dragoman.limits import MEMORY_DISK_BYTES_MAX
from dragoman.testing.file_tree import DirectoryLock, FileNode, FileTree, os_error
from dragoman.types import Buffer


class MemoryFile:
    __slots__ = ("_before_write", "_node", "_path", "_tree", "_writable")

    def __init__(
        self,
        tree: FileTree[FileNode],
        node: FileNode,
        path: str,
        writable: bool,
        before_write: Callable[[], None],
    ) -> None:
        self._before_write = before_write
        self._tree = tree
        self._node: FileNode | None = node
        self._path = path
        self._writable = writable
        tree.opened(node)

    def _opened(self) -> FileNode:
        node = self._node
        if node is None:
            raise os_error(errno.EBADF, self._path)
        return node

    def _changeable(self, position: int) -> FileNode:
        if not self._writable:
            raise os_error(errno.EBADF, self._path)
        if position < 0:
            raise os_error(errno.EINVAL, self._path)
        return self._opened()

    def read(self, size: int, position: int) -> bytes:
        if size < 0 or position < 0:
            raise os_error(errno.EINVAL, self._path)
        # Through a view the bytes are copied only once; large reads are a broker's most frequent
        # ones.
        with memoryview(self._opened().data) as view:
            return bytes(view[position : position + size])

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._before_write()
        data = self._changeable(position).data
        length = sum(map(len, buffers))
        end = position + length
        if length and end > len(data):
            self._grow(data, position, end)
        for buffer in buffers if length else ():
            following = position + len(buffer)
            data[position:following] = buffer
            position = following

    def write_durable(self, buffers: Sequence[Buffer], position: int) -> None:
        self.write(buffers, position)

    def sync(self) -> None:
        self._opened()

    def truncate(self, size: int) -> None:
        data = self._changeable(size).data
        if size > len(data):
            self._grow(data, size, size)
        else:
            self._tree.used_bytes -= len(data) - size
            del data[size:]

    def size(self) -> int:
        return len(self._opened().data)

    def is_linked(self) -> bool:
        return self._opened().links > 0

    def close(self) -> None:
        self._tree.closed(self._opened())
        self._node = None

    def _grow(self, data: bytearray, position: int, end: int) -> None:
        """Allocate the space up to `end`, and fill the gap before `position` with zeros."""
        growth = end - len(data)
        if self._tree.used_bytes + growth > self._tree.capacity_bytes:
            raise os_error(errno.ENOSPC, self._path)
        self._tree.used_bytes += growth
        if position > len(data):
            data.extend(bytes(position - len(data)))


class MemoryDisk:
    def __init__(
        self,
        capacity_bytes: int = MEMORY_DISK_BYTES_MAX,
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_write = before_write
        self._capacity_bytes = capacity_bytes
        self._tree: FileTree[FileNode] = FileTree(capacity_bytes)
        self._locked: set[str] = set()

    def open(self, path: str, mode: Literal["read", "write", "create"]) -> MemoryFile:
        if mode == "create":
            node = FileNode()
            self._tree.apply(self._tree.plan_add(path, node))
        else:
            node = self._tree.file(path)
        return MemoryFile(self._tree, node, path, mode != "read", self._before_write)

    def names(self, directory: str) -> list[str]:
        return self._tree.names(directory)

    def exists(self, path: str) -> bool:
        return self._tree.exists(path)

    def make_directory(self, path: str) -> None:
        for edits in self._tree.plan_directories(path):
            self._tree.apply(edits)

    def remove_directory(self, path: str) -> None:
        self._tree.apply(self._tree.plan_remove_directory(path))

    def rename(self, old: str, new: str) -> None:
        self._tree.apply(self._tree.plan_rename(old, new))

    def link(self, old: str, new: str) -> None:
        self._tree.apply(self._tree.plan_link(old, new))

    def remove(self, path: str) -> None:
        self._tree.apply(self._tree.plan_remove(path))

    def sync_directory(self, path: str) -> None:
        if self._tree.find(path) is not None:
            self._tree.directory(path)

    def sync_all(self) -> None:
        return

    def fill(self) -> None:
        """Leave no room for anything that grows."""
        self._tree.capacity_bytes = self._tree.used_bytes

    def empty(self) -> None:
        """Undo `fill`."""
        self._tree.capacity_bytes = self._capacity_bytes

    def free_bytes(self) -> int:
        return self._tree.capacity_bytes - self._tree.used_bytes

    def size_bytes(self) -> int:
        return self._tree.capacity_bytes

    def lock(self, path: str) -> DirectoryLock:
        if path in self._locked:
            raise DirectoryInUseError(f"{path} is locked by another user of this disk")
        if not self._tree.exists(path):
            self._tree.apply(self._tree.plan_add(path, FileNode()))
        self._locked.add(path)
        return DirectoryLock(self.exists, self._locked, path)
