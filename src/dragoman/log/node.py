"""`node.json`: a data directory's identity, whether it was stopped cleanly, and which journal
groups are still needed.

The file has one line of JSON and one line with its CRC-32C, like a manifest, and is replaced
atomically. The id of the directory seeds the journal's checksums, so a wrong bit here would make
the whole journal unreadable: a file that fails its checksum is refused, and nothing in the
directory is changed.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import NamedTuple

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import MALFORMED, CorruptionError, FormatError
from dragoman.world import Disk, Replacement, read_whole, replace_file

NODE_FILE = "node.json"
FORMAT = 1
#: Features of data and of messages between nodes that this release knows. A node refuses a
#: directory with a higher level (docs/guides/upgrading.md).
FEATURE_LEVEL = 5
#: From this level on, the checksums of indexes and producer state are seeded with the segment or
#: partition they belong to. Releases with a lower level take such files for damaged.
TAGGED_FILES_LEVEL = 4
#: From this level on there are users, access rules and listeners that demand a login.
SECURITY_LEVEL = 5
#: The lowest level at which this release can run beside older nodes.
FEATURE_LEVEL_MIN = 2


class Durability(Enum):
    FSYNC = "fsync"
    OS = "os"


class Ballot(NamedTuple):
    """The newest term of the metadata quorum that a node knows, and its vote in that term.

    They are one record, so that no crash keeps one without the other. The greater of two ballots is
    the later one.
    """

    term: int = 0
    #: -1 when the node has not voted.
    vote: int = -1


#: The ballot of an adopted directory, before that of the journal or the term of the log is known.
UNKNOWN_BALLOT = Ballot(-1)

_BALLOT = struct.Struct("<qq")


def ballot_entry_data(ballot: Ballot) -> bytes:
    """Data of a ballot's journal entry."""
    return _BALLOT.pack(*ballot)


def read_ballot(data: bytes) -> Ballot:
    return Ballot._make(_BALLOT.unpack(data))


class DamagedPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a reader found damage. The node looks there again when it starts."""

    partition_id: int
    path: str
    position: int


class NodeState(msgspec.Struct, kw_only=True):
    format: int = FORMAT
    #: Features that the data uses. It rises when all nodes of the cluster know a higher level, not
    #: with the release.
    feature_level: int = FEATURE_LEVEL_MIN
    #: Random, 32 hex digits; also seeds the journal's checksums.
    directory_id: str
    #: Counts starts, so that a restarted node is distinguished from its earlier life.
    incarnation: int
    #: Mode in which the segments were written. It changes only when a start has made all of them
    #: durable.
    durability: Durability
    is_clean: bool
    #: Journal groups up to this one are durable in the segments and are never replayed again.
    sequence: int = 0
    generation: int = 0
    #: Recovery takes the later of this ballot and those in journal groups behind `sequence`.
    ballot: Ballot = Ballot()
    #: Whether damage of the journal lost acknowledged groups and the cluster does not know it yet.
    has_lost: bool = False
    #: Whether `journal/mark` should exist.
    has_mark: bool = False
    #: Ids of damaged partitions, which a start opens and reports.
    damaged: tuple[int, ...] = ()
    #: The cluster of this directory if its metadata is in etcd, else "".
    etcd_cluster: str = ""
    #: Entries that this node knew to be in etcd when this file was last written.
    etcd_entries: int = 0
    #: Damage that may be in no manifest: in active segments, or found seconds ago. Left out when
    #: there is none, as by earlier releases, which ignore it.
    damaged_places: tuple[DamagedPlace, ...] | msgspec.UnsetType = msgspec.UNSET


class _Versions(msgspec.Struct):
    """Fields of every format: a newer format, or another kind of file, is recognised before the
    other fields are decoded.
    """

    format: int
    directory_id: str
    feature_level: int = 0


def node_replacement(state: NodeState) -> Replacement:
    """The file as a replacement for a background job."""
    body = msgspec.json.encode(state)
    return Replacement(NODE_FILE, b"%s\n%08x\n" % (body, crc32c(body)))


def write_node_state(disk: Disk, state: NodeState) -> None:
    """Replace `node.json`. Durable when this returns."""
    replacement = node_replacement(state)
    replace_file(disk, replacement.path, replacement.data)


def read_node_state(disk: Disk) -> NodeState:
    """Raises `FormatError` when a newer release wrote it, `CorruptionError` for damage."""
    body, _, rest = read_whole(disk, NODE_FILE).partition(b"\n")
    if rest != b"%08x\n" % crc32c(body):
        raise CorruptionError(NODE_FILE, 0, "file fails its checksum")
    try:
        versions = msgspec.json.decode(body, type=_Versions)
    except MALFORMED:
        raise CorruptionError(NODE_FILE, 0, "the file has the contents of another file") from None
    _refuse_newer(versions)
    try:
        return msgspec.json.decode(body, type=NodeState)
    except MALFORMED as error:
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
    """Whether a node has used the directory, with or without `node.json`."""
    return any(disk.names(directory) for directory in ("partitions", "journal"))
