"""What may happen to the files of a data directory: bits, cuts, deletions, swaps and zeros."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from damage.image import Files

WOUNDS = ("bit", "cut", "delete", "swap", "zeros")


class Wound(NamedTuple):
    kind: str
    how: str
    path: str
    #: First byte that was changed.
    position: int
    #: The other file of a swap.
    other: str = ""


def kind_of(path: str) -> str:
    """What sort of file it is, as the table names it."""
    name = path.rpartition("/")[2]
    if path.startswith("quarantine/"):
        return "quarantine"
    if path.startswith("journal/"):
        return "journal mark" if name == "mark" else "journal"
    if not path.startswith("partitions/"):
        return name
    directory = path.split("/")[1].partition("-")[2]
    owner = "metadata " if directory.startswith("__cluster") else ""
    owner = owner or ("internal " if directory.startswith("__") else "")
    return owner + {
        "manifest.json": "manifest",
        "producers.snapshot": "producers",
    }.get(name, "segment" if name.endswith(".log") else "index")


def written_bytes(data: bytes) -> int:
    """Bytes up to the last that is not zero: a journal file is mostly free space."""
    return len(data.rstrip(b"\0"))


def inflict(files: Files, kind: str, how: str, random: Random) -> tuple[Files, Wound] | None:
    """A copy of the files with one wound; None when there is nothing of that kind to wound."""
    paths = sorted(path for path in files if kind_of(path) == kind)
    used = [path for path in paths if written_bytes(files[path])]
    paths = used or paths
    if not paths:
        return None
    path = random.choice(paths)
    data = files[path]
    size = max(1, written_bytes(data))
    changed = dict(files)
    position = random.randrange(size)
    match how:
        case "bit":
            if not data:
                return None
            wrong = bytearray(data)
            wrong[position] ^= 1 << random.randrange(8)
            changed[path] = bytes(wrong)
        case "cut":
            if not data:
                return None
            changed[path] = data[:position]
        case "delete":
            position = 0
            del changed[path]
        case "swap":
            others = [each for each in sorted(files) if each != path and files[each] != data]
            alike = [each for each in others if kind_of(each) == kind]
            other = random.choice(alike or others)
            changed[path], changed[other] = files[other], data
            return changed, Wound(kind, how, path, 0, other)
        case "zeros":
            if not data:
                return None
            # A block, the rest of the file, or all of it.
            end = random.choice((min(position + 512, len(data)), len(data)))
            position = random.choice((position, 0))
            changed[path] = data[:position] + bytes(end - position) + data[end:]
    return changed, Wound(kind, how, path, position)
