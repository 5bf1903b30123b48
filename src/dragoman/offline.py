"""Work on files that no node uses meanwhile: verify, repair, adopt directories; make keys.

A store is opened as a node would open it, without a loop: background work runs synchronously, and
deferred work runs when the store is closed.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from dragoman.broker.partitions import directory_name
from dragoman.cluster.events import NodeRegistered, TopicDeleted
from dragoman.cluster.metadata import (
    METADATA_PARTITION_ID,
    METADATA_TOPIC,
    MetadataImage,
    PartitionMetadata,
    new_cluster_id,
)
from dragoman.cluster.raft_quorum.salvage import (
    Reconstruction,
    StoredImage,
    check_snapshot,
    complete,
    journalled_registrations,
    read_stored_image,
    replace_metadata,
)
from dragoman.data_directory import is_data_directory
from dragoman.errors import ConfigError, CorruptionError, SecretError
from dragoman.limits import CLUSTER_KEY_FILE_BYTES_MAX, CLUSTER_KEYS_MAX
from dragoman.log.adoption import Adopted, adopt_directory
from dragoman.log.directory import PARTITIONS, QUARANTINE
from dragoman.log.inspect import Finding, Problem, inspect_disk
from dragoman.log.journal import DIRECTORY as JOURNAL
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Identity, Manifest, decode_manifest
from dragoman.log.node import Durability, read_node_state
from dragoman.log.partition import PartitionLog
from dragoman.log.repair import Repair, repair_partition
from dragoman.log.store import LogStore
from dragoman.operating_system import (
    RealDisk,
    SystemClock,
    create_private,
    is_directory,
    replace_private,
    system_random,
)
from dragoman.security.key_file import KEY_BYTES, format_keys, new_key, parse_keys
from dragoman.world import BackgroundJob, Disk, Handle, perform, read_whole, replace_file

_METADATA = Identity(
    partition_id=METADATA_PARTITION_ID, topic=METADATA_TOPIC, partition=0, topic_id=""
)


_SHARED_METADATA = (
    "the metadata of a cluster, and what the node has voted for, cannot be made again: "
    "`dragoman cluster remove NODE --keep-replicas`, start the node with an empty directory, "
    "`dragoman cluster add NODE@HOST:PORT`"
)
#: The default of `node.id`.
_DEFAULT_NODE_ID = 1


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    repairs: list[Repair]
    #: What was not repaired, and why.
    left: list[str]
    #: Losses of the journal, which cannot be repaired.
    journal: list[str]
    #: Whether damaged metadata was rebuilt, and the topics whose settings were lost.
    has_new_metadata: bool = False
    topics_without_settings: list[str] = []


class _Config(msgspec.Struct, frozen=True):
    """The defaults of all topics. Nothing is appended: only the spacing of rebuilt indexes
    matters.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 1 << 40
    index_interval_bytes: int = 4096


class _Never:
    def cancel(self) -> None:
        return None


class _Turns:
    """A scheduler without a loop: `call_soon` callbacks run in `run`, timers never."""

    def __init__(self) -> None:
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def time(self) -> float:
        return SystemClock().monotonic()

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle:
        self._soon.append((callback, args))
        return _Never()

    def call_later(self, _delay: float, _callback: Callable[..., object], *_args: object) -> Handle:
        return _Never()

    def run(self) -> None:
        while self._soon:
            callback, args = self._soon.popleft()
            callback(*args)


class _OnTheSpot:
    """Runs background work synchronously."""

    def __init__(self, disk: Disk, turns: _Turns) -> None:
        self._disk = disk
        self._turns = turns

    def submit(self, job: BackgroundJob, done: Callable[[OSError | None], None]) -> None:
        outcome: OSError | None = None
        try:
            perform(self._disk, job)
        except OSError as error:
            outcome = error
        self._turns.call_soon(done, outcome)

    def close(self) -> None:
        return None


def open_existing(path: str) -> RealDisk:
    """Raises `ConfigError` when there is no data directory."""
    if not is_directory(path):
        is_other = os.path.lexists(path)
        raise ConfigError(f"{path}: {'not a data directory' if is_other else 'no such directory'}")
    if not is_data_directory(path):
        raise ConfigError(f"{path}: not a data directory{_data_directories_in(path)}")
    return RealDisk(path)


def _data_directories_in(path: str) -> str:
    """Names directories in a directory, such as those of the nodes of a local cluster."""
    found = [os.path.join(path, each) for each in sorted(os.listdir(path))]
    found = [each for each in found if is_directory(each) and is_data_directory(each)]
    return f"; there are {', '.join(found[:3])}{' and more' * (len(found) > 3)}" if found else ""


def inspect_all(path: str) -> Iterator[Finding]:
    """Damage that the log finds in a directory, and whether the metadata snapshot is intact.

    Raises `ConfigError` when there is no data directory, `FormatError`, `OSError`.
    """
    disk = open_existing(path)
    yield from inspect_disk(disk)
    try:
        check_snapshot(disk)
    except CorruptionError as error:
        yield Problem(path=error.path, position=error.position, reason=error.reason)


def adopt(path: str, durability: Durability | None) -> Adopted:
    """Write a new `node.json` for a directory that has lost it.

    Raises what `adopt_directory` raises, and `ConfigError` for a node of a cluster.
    """
    disk = open_existing(path)
    return adopt_directory(disk, system_random(), durability, registered_ids)


def registered_ids(disk: Disk, seed: int | None) -> list[str]:
    """Ids of the directory as its node has registered them. Raises `ConfigError` for a node of a
    cluster.
    """
    known = read_stored_image(disk, _metadata_directory(disk)).image.registrations
    if seed is not None:
        known = known | journalled_registrations(disk, seed)
    if len(known) > 1:
        nodes = ", ".join(map(str, sorted(known)))
        raise ConfigError(
            f"the directory belongs to a cluster of nodes {nodes}: what it has voted for cannot be "
            "restored. Add the node again: `dragoman cluster remove NODE --keep-replicas`, start "
            "it with an empty directory, `dragoman cluster add NODE@HOST:PORT`"
        )
    return [each.directory for each in known.values() if each.directory]


def repair(path: str, *, is_dry: bool) -> RepairReport:
    """Make every partition of a directory readable.

    Raises `DirectoryInUseError`, `FormatError`, `CorruptionError` for a directory that has to be
    adopted first, and `OSError`.
    """
    return repair_disk(open_existing(path), is_dry=is_dry)


def repair_disk(disk: Disk, *, is_dry: bool) -> RepairReport:
    """`repair_directory` on any disk."""
    repairs: list[Repair] = []
    left: list[str] = []
    with _opened(disk) as store:
        # The metadata comes first, and may be in the journal only: it names the other partitions.
        metadata = store.partition(_METADATA, directory_name(_METADATA), _Config(), is_shared=True)
        stored = read_stored_image(disk, metadata.directory)
        image = stored.image
        is_damaged = bool(repair_partition(metadata, is_dry=True)) or not stored.is_whole
        journalled, unknown = _journalled(store, image)
        if unknown and is_damaged:
            # Intact metadata knows every partition except deleted ones.
            left.append(_keep_journal(disk, unknown))
        names = {*disk.names(PARTITIONS), *journalled}
        for name in sorted(names):
            identity = _identity(disk, name, image)
            if identity is None:
                left.append(f"{PARTITIONS}/{name}: nothing says which partition it is")
                continue
            if identity.partition_id == METADATA_PARTITION_ID:
                continue
            partition = store.partition(identity, name, _Config(), is_shared=True)
            reason = _why_not(identity, image)
            found = repair_partition(partition, is_dry=is_dry or bool(reason))
            if reason and found:
                left += [f"{each.path}: {reason}" for each in found]
            else:
                repairs += found
        store.finish_recovery()
        lost: Reconstruction | None = None
        if is_damaged and len(image.registrations) > 1:
            left.append(f"{metadata.directory}: {_SHARED_METADATA}")
        elif is_damaged:
            lost = _mend_metadata(store, metadata, stored, is_dry=is_dry)
        journal = [str(each) for each in store.journal_damage]
    return RepairReport(
        repairs=repairs,
        left=left,
        journal=journal,
        has_new_metadata=lost is not None,
        topics_without_settings=list(lost.topics) if lost is not None else [],
    )


def _mend_metadata(
    store: LogStore, metadata: PartitionLog, stored: StoredImage, *, is_dry: bool
) -> Reconstruction:
    image = stored.image
    for topic_id in stored.deleted:
        if topic_id in image.topics_by_id:
            image.apply(TopicDeleted(topic_id=topic_id))
    node = min((*image.registrations, *image.voters), default=_DEFAULT_NODE_ID)
    if node not in image.registrations:
        # A node that registers for the first time would lead none of its partitions.
        directory = read_node_state(store.disk).directory_id
        image.apply(NodeRegistered(node_id=node, incarnation=1, directory=directory))
    manifests = list(_manifests(store.disk))
    lost = complete(image, manifests, stored.deleted, node)
    if not is_dry:
        replace_metadata(store, metadata, image, node, new_cluster_id(system_random()))
    return lost


def _manifests(disk: Disk) -> Iterator[Manifest]:
    """The identities of all intact partitions except the metadata."""
    for name in disk.names(PARTITIONS):
        path = f"{PARTITIONS}/{name}/{MANIFEST}"
        with suppress(CorruptionError, FileNotFoundError):
            manifest = decode_manifest(read_whole(disk, path), path)
            if manifest.identity.partition_id != METADATA_PARTITION_ID:
                yield manifest


@contextmanager
def _opened(disk: Disk) -> Iterator[LogStore]:
    turns = _Turns()
    durability = read_node_state(disk).durability
    store = LogStore(
        disk, _OnTheSpot(disk, turns), turns, SystemClock(), system_random(), durability
    )
    try:
        yield store
    except BaseException:
        store.abandon()
        raise
    turns.run()
    store.close()
    if store.failure is not None:
        raise store.failure


def _journalled(store: LogStore, image: MetadataImage) -> tuple[set[str], list[int]]:
    """Directories of partitions with entries in the journal, and the ids of those that have no
    name. Entries of unopened partitions are dropped from the journal.
    """
    names: set[str] = set()
    unknown: list[int] = []
    for number in store.pending_partitions:
        known = image.partitions.get(number)
        if known is not None:
            names.add(directory_name(_identity_of(known)))
        elif not any(name.startswith(f"{number}-") for name in store.disk.names(PARTITIONS)):
            unknown.append(number)
    return names, unknown


def _keep_journal(disk: Disk, unknown: list[int]) -> str:
    """Copy the journal aside. Returns a note about records whose topic is lost with the
    metadata.
    """
    disk.make_directory(QUARANTINE)
    for name in disk.names(JOURNAL):
        if name.endswith(".jnl"):
            path = f"{JOURNAL}/{name}"
            replace_file(disk, f"{QUARANTINE}/{path.replace('/', '_')}", read_whole(disk, path))
    numbers = ", ".join(map(str, unknown))
    return (
        f"{JOURNAL}: holds records of partitions that the damaged metadata does not name any more "
        f"({numbers}); the journal is kept in {QUARANTINE}/, and they are left out"
    )


def _metadata_directory(disk: Disk) -> str:
    prefix = f"{METADATA_PARTITION_ID}-"
    for name in disk.names(PARTITIONS):
        if name.startswith(prefix):
            return f"{PARTITIONS}/{name}"
    return ""


def _identity(disk: Disk, name: str, image: MetadataImage) -> Identity | None:
    """The identity from the manifest or, without one, from the metadata."""
    path = f"{PARTITIONS}/{name}/{MANIFEST}"
    if disk.exists(path):
        try:
            return decode_manifest(read_whole(disk, path), path).identity
        except CorruptionError:
            pass
    number = name.partition("-")[0]
    if not number.isdecimal():
        return None
    if int(number) == METADATA_PARTITION_ID:
        return _METADATA
    known = image.partitions.get(int(number))
    if known is None:
        return None
    identity = _identity_of(known)
    return identity if directory_name(identity) == name else None


def _identity_of(partition: PartitionMetadata) -> Identity:
    return Identity(
        partition_id=partition.partition_id,
        topic=partition.topic.name,
        partition=partition.index,
        topic_id=partition.topic.topic_id.hex(),
    )


def _why_not(identity: Identity, image: MetadataImage) -> str:
    """The reason for not repairing a damaged partition; empty when it is repaired."""
    known = image.partitions.get(identity.partition_id)
    if known is not None and len(known.replicas) > 1:
        return "other nodes hold the partition: start the node, and it is copied from them"
    return ""


def add_cluster_key(path: str) -> tuple[str, bool]:
    """Put a new first key into a key file, which only this user can read afterwards. Returns the id
    of the key, and whether the file is new. Raises `SecretError`, and leaves the file as it was.
    """
    key = new_key(secrets.token_bytes(KEY_BYTES + 4))
    try:
        if not os.path.lexists(path):
            create_private(path, format_keys([key]))
            return key.key_id, True
        if not os.path.isfile(path) or os.path.getsize(path) > CLUSTER_KEY_FILE_BYTES_MAX:
            raise SecretError(f"{path} is not a key file")
        with open(path, "rb") as file:
            keys = parse_keys(file.read())
        if len(keys) >= CLUSTER_KEYS_MAX:
            raise SecretError(f"it has {len(keys)} keys already: remove those not in use")
        # Through a link, so that it stays one.
        replace_private(os.path.realpath(path), format_keys([key, *keys.values()]))
    except OSError as error:
        raise SecretError(f"{path}: {error.strerror or error}") from None
    except SecretError as error:
        raise SecretError(f"{path}: {error}") from None
    return key.key_id, False
