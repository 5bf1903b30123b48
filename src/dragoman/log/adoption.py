"""Adoption: a data directory that has lost its `node.json` gets a new one, made from other files.

The directory's id seeds the checksums of the journal: with another id, everything in it would look
like free space, and recently acknowledged records would be lost. The id is taken from
`journal/mark`; without that file, the seed is computed from the groups, since a CRC can be run
backwards.

Two fields of `node.json` cannot be recovered: which journal groups are no longer needed, and the
node's vote in the metadata quorum. Without the first, more is replayed than necessary. Because of
the second, adoption is for single nodes: a node of a cluster could vote twice. The term of the vote
is raised to that of the metadata's log when the node opens it (`LogStore.restore_term`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from dragoman.errors import CorruptionError, FormatError
from dragoman.limits import JOURNAL_BLOCK_BYTES
from dragoman.log.directory import LOCK_FILE, PARTITIONS, QUARANTINE
from dragoman.log.journal import DIRECTORY, JournalReader, group_seeds, read_mark, seed_of
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import decode_manifest
from dragoman.log.node import (
    FEATURE_LEVEL,
    NODE_FILE,
    UNKNOWN_BALLOT,
    Durability,
    NodeState,
    has_data,
    read_node_state,
    write_node_state,
)
from dragoman.world import Disk, Random, read_whole

#: The incarnation of a directory whose number of starts is unknown: higher than any real one.
_INCARNATION_UNKNOWN = 1 << 20


class Adopted(NamedTuple):
    state: NodeState
    #: Source of the id: `journal/mark`, the metadata, the journal's groups, or chance.
    source: str
    #: Groups of the journal that the next start replays.
    groups: int


def adopt_directory(
    disk: Disk,
    random: Random,
    durability: Durability | None = None,
    known_ids: Callable[[Disk, int | None], Iterable[str]] = lambda _disk, _seed: (),
) -> Adopted:
    """Write a new `node.json`; a damaged one is kept in `quarantine/`.

    `known_ids` returns ids under which the cluster may know the directory, given the journal's seed
    if that was found; it may raise instead.

    Raises `FormatError` when the directory is empty or its `node.json` is sound,
    `DirectoryInUseError` when a node runs on it.
    """
    lock = disk.lock(LOCK_FILE)
    try:
        _refuse_sound(disk)
        adopted = _made(disk, random, durability, known_ids)
        if disk.exists(NODE_FILE):
            disk.make_directory(QUARANTINE)
            disk.rename(NODE_FILE, f"{QUARANTINE}/{NODE_FILE}")
            disk.sync_directory(QUARANTINE)
        write_node_state(disk, adopted.state)
        return adopted
    finally:
        lock.release()


def _refuse_sound(disk: Disk) -> None:
    if not disk.exists(NODE_FILE):
        if not has_data(disk):
            raise FormatError("there is no data in the directory: nothing to adopt")
        return
    try:
        read_node_state(disk)
    except CorruptionError:
        return
    raise FormatError(f"{NODE_FILE} is sound: nothing to adopt")


def _made(
    disk: Disk,
    random: Random,
    durability: Durability | None,
    known_ids: Callable[[Disk, int | None], Iterable[str]],
) -> Adopted:
    mark = read_mark(disk)
    seed = seed_of(mark.directory_id) if mark is not None else _seed_from_groups(disk)
    known = [each for each in known_ids(disk, seed) if seed is None or seed_of(each) == seed]
    if mark is not None:
        directory_id, source = mark.directory_id, "journal/mark"
    elif known:
        directory_id, source = known[0], "the metadata"
    else:
        source = "the journal's groups" if seed is not None else "chance: the journal is empty"
        seed = seed if seed is not None else random.getrandbits(32)
        directory_id = f"{seed:08x}{random.getrandbits(96):024x}"
    reader = JournalReader(disk, seed_of(directory_id), 0, mark.sequence if mark else 0)
    state = NodeState(
        feature_level=FEATURE_LEVEL,
        directory_id=directory_id,
        incarnation=mark.incarnation if mark is not None else _INCARNATION_UNKNOWN,
        durability=durability or (mark.durability if mark is not None else Durability.FSYNC),
        is_clean=False,
        # In an empty journal, numbers continue behind the manifests, which ignore older groups.
        sequence=0 if reader.groups else _listed_sequence(disk),
        generation=reader.generation,
        ballot=UNKNOWN_BALLOT,
        has_mark=mark is not None,
    )
    return Adopted(state, source, len(reader.groups))


def _listed_sequence(disk: Disk) -> int:
    """The newest group that a manifest knows."""
    newest = 0
    for name in disk.names(PARTITIONS):
        path = f"{PARTITIONS}/{name}/{MANIFEST}"
        with suppress(CorruptionError, FileNotFoundError):
            newest = max(newest, decode_manifest(read_whole(disk, path), path).sequence)
    return newest


def _seed_from_groups(disk: Disk) -> int | None:
    """The seed that most groups of the journal agree on."""
    seeds: Counter[int] = Counter()
    for name in disk.names(DIRECTORY):
        if name.endswith(".jnl"):
            seeds.update(group_seeds(disk, f"{DIRECTORY}/{name}", JOURNAL_BLOCK_BYTES))
    return seeds.most_common(1)[0][0] if seeds else None
