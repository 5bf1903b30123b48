"""Changes of names that are not yet durable, and what a power cut leaves of them.

They are kept in the order they were made, one group of edits for each change that is atomic on a
real file system. The durable names are the visible ones with all groups taken back; a sync of a
directory forgets groups; a power cut takes some back, by two rules:

    a group survives as a whole or not at all: a rename never leaves neither name, or both
    a group survives only if all earlier groups that touch one of its names do
"""

from __future__ import annotations

from random import Random

from dragoman.testing.file_tree import Directory, Edits, FileTree
from dragoman.testing.sim.inode import Inode


class PendingNames:
    def __init__(self) -> None:
        self._groups: list[Edits[Inode]] = []

    def add(self, edits: Edits[Inode]) -> None:
        self._groups.append(edits)

    def sync(self, directory: Directory[Inode]) -> None:
        """Changes in this directory are durable now, and with them all that they build on."""
        needed: set[tuple[Directory[Inode], str]] = set()
        pending: list[Edits[Inode]] = []
        for edits in reversed(self._groups):
            if any(e.directory is directory or (e.directory, e.name) in needed for e in edits):
                needed.update((e.directory, e.name) for e in edits)
            else:
                pending.append(edits)
        pending.reverse()
        self._groups = pending

    def settle(self, tree: FileTree[Inode], random: Random, kept_chance: float) -> tuple[int, int]:
        """The power goes: take back what does not survive. Returns groups kept and lost."""
        lost: list[Edits[Inode]] = []
        lost_names: set[tuple[Directory[Inode], str]] = set()
        for edits in self._groups:
            follows_lost = any((e.directory, e.name) in lost_names for e in edits)
            if follows_lost or random.random() >= kept_chance:
                lost.append(edits)
                lost_names.update((e.directory, e.name) for e in edits)
        for edits in reversed(lost):
            tree.undo(edits)
        kept = len(self._groups) - len(lost)
        self._groups = []
        return kept, len(lost)
