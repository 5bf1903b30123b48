"""Open segment files: a bounded set, least recently used closed first.

Thousands of partitions share a few hundred descriptors. When the operating system has none left,
half of ours are given up and the call is tried again.
"""

from __future__ import annotations

from collections import OrderedDict

from dragoman.world import OUT_OF_FILES, Disk, File, parent


class FileCache:
    def __init__(self, disk: Disk, open_max: int) -> None:
        self._disk = disk
        self._open: OrderedDict[str, File] = OrderedDict()
        self._open_max = open_max

    def __len__(self) -> int:
        return len(self._open)

    @property
    def unopened(self) -> int:
        """How many more files it may have open."""
        return max(0, self._open_max - len(self._open))

    def get(self, path: str) -> File:
        """An existing file, open for reading and writing."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._add(path, create=False)

    def create(self, path: str) -> File:
        """A new file, in a directory that is made when missing."""
        return self._add(path, create=True)

    def get_or_create(self, path: str) -> File:
        try:
            return self.get(path)
        except FileNotFoundError:
            return self.create(path)

    def _add(self, path: str, *, create: bool) -> File:
        try:
            file = self._open_file(path, create)
        except OSError as error:
            if error.errno not in OUT_OF_FILES or not self.give_up_half():
                raise
            file = self._open_file(path, create)
        self._open[path] = file
        self._shrink(self._open_max)
        return file

    def _open_file(self, path: str, create: bool) -> File:
        if not create:
            return self._disk.open(path, "write")
        try:
            return self._disk.open(path, "create")
        except FileNotFoundError:
            self._disk.make_directory(parent(path))
            return self._disk.open(path, "create")

    def give_up_half(self) -> bool:
        """For whoever needs a descriptor more; False when there is none to give up."""
        has_any = bool(self._open)
        self._shrink(len(self._open) // 2)
        return has_any

    def _shrink(self, keep: int) -> None:
        while len(self._open) > keep:
            _, file = self._open.popitem(last=False)
            file.close()

    def forget(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        self._shrink(0)
