"""`node.json`: which data directory this is, how it was left, and how far the journal is needed.

One line of JSON and one line with its CRC-32C, like a manifest, replaced atomically. The id of the
directory seeds the journal's checksums, so a wrong bit here would make the whole journal
unreadable: a file that fails its checksum is refused, with a clear message, and nothing in the
directory is touched.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import NamedTuple

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, FormatError
from dragoman.world import Disk, Replacement, read_whole, replace_file

NODE_FILE = "node.json"
FORMAT = 1
#: Features that this release knows: of data, and of what nodes write and tell each other. A node
#: refuses a directory whose level is higher (docs/guides/upgrading.md).
FEATURE_LEVEL = 4
#: From this level on, the checksums of indexes and producer state name what they belong to. A
#: release that knows less takes such files for damaged, and a cluster's partitions with them.
TAGGED_FILES_LEVEL = 4
#: The lowest level that this release can still work at, beside older nodes.
FEATURE_LEVEL_MIN = 2


class Durability(Enum):
    FSYNC = "fsync"
    OS = "os"


class Ballot(NamedTuple):
    """The newest term of the metadata quorum that a node has heard of, and its vote in it.

    One record, so that no crash keeps one without the other. Of two, the greater is the later.
    """

    term: int = 0
    #: -1 for nobody.
    vote: int = -1


_BALLOT = struct.Struct("<qq")


def ballot_entry_data(ballot: Ballot) -> bytes:
    """What a ballot's journal entry holds besides its head."""
    return _BALLOT.pack(*ballot)


def read_ballot(data: bytes) -> Ballot:
    return Ballot._make(_BALLOT.unpack(data))


class NodeState(msgspec.Struct, kw_only=True):
    format: int = FORMAT
    #: What the data uses: it grows when all nodes of the cluster know more, not with the release.
    feature_level: int = FEATURE_LEVEL_MIN
    #: Random, 32 hex digits; also seeds the journal's checksums.
    directory_id: str
    #: Counts starts. A node that comes back is told from the one that went.
    incarnation: int
    #: What the segments were written under. Changes only when a start has made them all durable.
    durability: Durability
    is_clean: bool
    #: Every journal group up to this one is in the segments for good and is never replayed again.
    sequence: int = 0
    generation: int = 0
    #: As durable as this file or the journal groups behind `sequence`, whichever is later.
    ballot: Ballot = Ballot()
    #: Acknowledged groups were lost to damage of the journal, and nobody was told yet who counts on
    #: them.
    has_lost: bool = False
    #: Whether `journal/mark` is to be expected.
    has_mark: bool = False
    #: Ids of partitions in which damage was found: they are opened, and reported, at a start.
    damaged: tuple[int, ...] = ()
    #: The cluster that this directory belongs to, if its metadata is in etcd and not in here; and
    #: how many entries there have been at least, as of when this file was last written.
    etcd_cluster: str = ""
    etcd_entries: int = 0


class _Versions(msgspec.Struct):
    """What every format has, so that a newer one is recognised before its fields are judged, and
    a file that was put in its place as well.
    """

    format: int
    directory_id: str
    feature_level: int = 0


def node_replacement(state: NodeState) -> Replacement:
    """The file as a background job puts it in place."""
    body = msgspec.json.encode(state)
    return Replacement(NODE_FILE, b"%s\n%08x\n" % (body, crc32c(body)))


def write_node_state(disk: Disk, state: NodeState) -> None:
    """Durable when this returns."""
    replacement = node_replacement(state)
    replace_file(disk, replacement.path, replacement.data)


def read_node_state(disk: Disk) -> NodeState:
    """Raises `FormatError` when a newer release wrote it, `CorruptionError` for damage."""
    body, _, rest = read_whole(disk, NODE_FILE).partition(b"\n")
    if rest != b"%08x\n" % crc32c(body):
        raise CorruptionError(NODE_FILE, 0, "file fails its checksum")
    try:
        versions = msgspec.json.decode(body, type=_Versions)
    except msgspec.DecodeError:
        raise CorruptionError(NODE_FILE, 0, "what is in it is another file's") from None
    _refuse_newer(versions)
    try:
        return msgspec.json.decode(body, type=NodeState)
    except msgspec.DecodeError as error:
        raise FormatError(f"{NODE_FILE} cannot be read: {error}") from None


def _refuse_newer(versions: _Versions) -> None:
    if versions.format > FORMAT:
        raise FormatError(
            f"the data directory has format {versions.format}, this release reads up to {FORMAT}"
        )
    if versions.feature_level > FEATURE_LEVEL:
        raise FormatError(
            f"the data directory uses feature level {versions.feature_level}, "
            f"this release knows {FEATURE_LEVEL}"
        )


def has_data(disk: Disk) -> bool:
    """Whether a node has used the directory, whatever became of `node.json`."""
    return any(disk.names(directory) for directory in ("partitions", "journal"))
