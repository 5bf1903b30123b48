"""Goal: secrets are sealed with one key that every node has; a rotation or a migration that was
interrupted continues; and afterwards no file has the old form.

Method: one node on virtual time, over restarts and kills, and pairs of nodes with key files of
their own. Secrets are those of users and captures.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec
import pytest

from captures.runner import DSN, defined
from dragoman.captures.stored import opened
from dragoman.cluster.events import (
    LEVEL_IN_FORCE,
    CaptureChanged,
    CaptureDefined,
    ClusterKeyChanged,
    Event,
    FeatureLevelChanged,
    NodeRegistered,
    UserChanged,
)
from dragoman.cluster.sealed import sealed_secrets
from dragoman.config.settings import Settings
from dragoman.errors import ClusterError, DragomanError, SecretError
from dragoman.limits import SECRETS_SEALED_AT_ONCE_MAX
from dragoman.outcome import attempt, ignore, start
from dragoman.security.key_file import ClusterKey, format_keys, new_key
from dragoman.security.secrets import KEY_FILE, signing_secret_context
from dragoman.security.users import User
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import PowerCut
from dragoman.world import read_whole, replace_file
from worlds.broker import World
from worlds.two_nodes import Pair

OLD = new_key(bytes(range(36)))
NEW = new_key(bytes(range(36, 72)))
CLEAR = CaptureDefined(name="shop", definition=msgspec.json.encode(defined()), incarnation="i")
PASSWORD = b"hunter2"


def result(world: World, work: Coroutine[object, None, Any]) -> Any:
    """The result of an asynchronous call, or its error."""
    found: list[Any] = []
    start(attempt(work)).then(found.append)
    world.settle()
    world.advance(10)
    assert found, "it has no result"
    return found[0]


def propose(world: World, *events: Event) -> None:
    assert result(world, _made(world, list(events))) is None


async def _made(world: World, events: list[Event]) -> None:
    await world.broker.changes.make(lambda: events)


def put_keys(world: World, *keys: ClusterKey) -> None:
    replace_file(world.disk, KEY_FILE, format_keys(keys))
    world.broker.keys.load()


def add_users(world: World, count: int = 1) -> None:
    assert result(world, world.broker.cluster_key.ready()) is None
    events: list[Event] = []
    for number in range(count):
        user = User(name=f"u{number}", incarnation="1")
        sealed = world.broker.keys.seal(b"signs %d" % number, signing_secret_context(user))
        events.append(UserChanged(user=msgspec.structs.replace(user, signing_secret=sealed)))
    propose(world, *events)


def secrets(world: World) -> list[bytes]:
    keys = world.broker.keys
    return [keys.unseal(each.secret, each.context) for each in sealed_secrets(world.broker.image)]


def key_ids(world: World) -> set[str]:
    return {each.secret.key_id for each in sealed_secrets(world.broker.image)}


def is_directory(world: World, path: str) -> bool:
    try:
        world.disk.names(path)
    except NotADirectoryError:
        return False
    return True


def files_with(world: World, word: bytes, directory: str = "") -> list[str]:
    """Files with a word, except for the journal, whose files are overwritten when used again."""
    found = []
    for name in world.disk.names(directory):
        path = f"{directory}/{name}" if directory else name
        if is_directory(world, path):
            found += files_with(world, word, path)
        elif not path.startswith("journal/") and word in read_whole(world.disk, path):
            found.append(path)
    return found


# ---- the first key


def test_a_node_alone_makes_its_key_with_the_first_secret() -> None:
    world = World()
    assert not world.disk.exists(KEY_FILE)
    add_users(world)
    assert world.disk.exists(KEY_FILE)
    current = world.broker.image.cluster_key
    assert current is not None
    assert list(world.broker.keys.held) == [current.key_id]
    again = world.reopened(kill=True)
    assert secrets(again) == [b"signs 0"]


def test_a_cluster_stores_no_secret_before_every_node_has_the_key() -> None:
    pair = Pair()
    error = result(pair.one, pair.one.broker.cluster_key.ready())
    assert isinstance(error, SecretError)
    assert "dragoman security key new" in str(error)
    put_keys(pair.one, NEW)
    error = result(pair.one, pair.one.broker.cluster_key.ready())
    assert "node 2: its key file has no key" in str(error)
    put_keys(pair.two, ClusterKey(NEW.key_id, OLD.material))
    error = result(pair.one, pair.one.broker.cluster_key.ready())
    assert f"node 2: it has another key of the id {NEW.key_id}" in str(error)
    assert pair.one.broker.image.cluster_key is None
    put_keys(pair.two, OLD, NEW)
    add_users(pair.one)
    assert secrets(pair.two) == [b"signs 0"]
    # The first key of the other node's file makes no difference.
    add_users(pair.two, 2)
    assert key_ids(pair.one) == {NEW.key_id}


def test_a_node_that_cannot_be_asked_counts_as_without_the_key() -> None:
    pair = Pair()
    put_keys(pair.one, NEW)
    pair.lines[1].is_cut = True
    error = result(pair.one, pair.one.broker.cluster_key.ready())
    assert isinstance(error, SecretError)
    assert "node 2 is not connected" in str(error)


def test_a_node_with_another_key_does_not_start() -> None:
    world = World()
    add_users(world)
    key_id = next(iter(world.broker.keys.held))
    for keys, why in (
        ((OLD,), "start with cluster.key.lost=true"),
        ((ClusterKey(key_id, OLD.material),), "not the cluster's key of that id"),
    ):
        world.store.abandon()
        replace_file(world.disk, KEY_FILE, format_keys(keys))
        again = world = World(disk=world.disk, start=False)
        error = result(again, again.broker.start())
        assert isinstance(error, SecretError)
        assert why in str(error)


def test_a_lost_key_is_replaced() -> None:
    world = World()
    add_users(world)
    lost = next(iter(world.broker.keys.held))
    world.broker.stop()
    world.store.close()
    replace_file(world.disk, KEY_FILE, format_keys([NEW]))
    again = World(Settings(cluster_key_lost=True), disk=world.disk)
    error = result(again, again.broker.cluster_key.rotate())
    assert isinstance(error, SecretError)
    assert lost in str(error)
    # Secrets that are set again are sealed with the new key; the old ones stay closed.
    add_users(again)
    assert key_ids(again) == {NEW.key_id}
    later = again.reopened(Settings())
    assert secrets(later) == [b"signs 0"]


def test_a_damaged_key_file_prevents_the_start() -> None:
    disk = MemoryDisk()
    replace_file(disk, KEY_FILE, format_keys([OLD])[:-5])
    with pytest.raises(SecretError, match="cut short"):
        World(disk=disk)


# ---- rotation


def test_a_rotation_seals_every_secret_anew() -> None:
    world = World()
    put_keys(world, OLD)
    count = 2 * SECRETS_SEALED_AT_ONCE_MAX + 1
    add_users(world, count)
    before = secrets(world)
    put_keys(world, NEW, OLD)
    assert key_ids(world) == {OLD.key_id}
    status = result(world, world.broker.cluster_key.rotate())
    assert status.current == NEW.key_id
    assert status.sealed == {NEW.key_id: count}
    assert secrets(world) == before
    put_keys(world, NEW)
    assert secrets(world) == before


def test_a_rotation_without_a_new_key_is_refused() -> None:
    world = World()
    put_keys(world, OLD)
    add_users(world)
    error = result(world, world.broker.cluster_key.rotate())
    assert isinstance(error, SecretError)
    assert "is current already" in str(error)


def test_a_rotation_waits_for_every_node_to_have_the_key() -> None:
    pair = Pair()
    for world in (pair.one, pair.two):
        put_keys(world, OLD)
    add_users(pair.one)
    put_keys(pair.one, NEW, OLD)
    error = result(pair.one, pair.one.broker.cluster_key.rotate())
    assert isinstance(error, SecretError)
    assert f"node 2: its key file has {OLD.key_id}" in str(error)
    # The other node reads its file again when it is asked.
    replace_file(pair.two.disk, KEY_FILE, format_keys([NEW, OLD]))
    assert result(pair.one, pair.one.broker.cluster_key.rotate()).sealed == {NEW.key_id: 1}
    assert secrets(pair.two) == [b"signs 0"]


@pytest.mark.parametrize("kill", [True, False])
def test_an_interrupted_rotation_continues_after_a_restart(kill: bool) -> None:
    world = World()
    put_keys(world, OLD)
    add_users(world, 5)
    put_keys(world, NEW, OLD)
    # Only the first step of a rotation was committed.
    world.broker.cluster_key.stop()
    propose(world, ClusterKeyChanged(key_id=NEW.key_id, check=NEW.check))
    assert key_ids(world) == {OLD.key_id}
    again = world.reopened(kill=kill)
    again.advance(10)
    assert key_ids(again) == {NEW.key_id}
    assert len(secrets(again)) == 5


def test_a_secret_that_was_sealed_with_the_old_key_meanwhile_is_sealed_anew() -> None:
    world = World()
    put_keys(world, OLD)
    add_users(world)
    user = world.broker.image.users["u0"]
    late = world.broker.keys.seal(b"late", signing_secret_context(user))
    put_keys(world, NEW, OLD)
    result(world, world.broker.cluster_key.rotate())
    propose(world, UserChanged(user=msgspec.structs.replace(user, signing_secret=late)))
    world.advance(10)
    assert key_ids(world) == {NEW.key_id}
    assert secrets(world) == [b"late"]


def test_a_secret_that_cannot_be_opened_does_not_hold_up_the_others() -> None:
    world = World()
    put_keys(world, OLD)
    add_users(world, 3)
    moved = msgspec.structs.replace(world.broker.image.users["u1"], incarnation="2")
    propose(world, UserChanged(user=moved))
    put_keys(world, NEW, OLD)
    error = result(world, world.broker.cluster_key.rotate())
    assert isinstance(error, SecretError)
    assert "signing-secret/2/u1" in str(error)
    sealed = [each.secret.key_id for each in sealed_secrets(world.broker.image)]
    assert sorted(sealed) == sorted([NEW.key_id, NEW.key_id, OLD.key_id])


def test_after_a_rotation_no_file_has_a_secret_sealed_with_the_old_key() -> None:
    world = World()
    put_keys(world, OLD)
    add_users(world, 5)
    put_keys(world, NEW, OLD)
    result(world, world.broker.cluster_key.rotate())
    world.advance(60)
    world.store.checkpoint_now()
    assert files_with(world, OLD.key_id.encode()) == [KEY_FILE]
    assert files_with(world, NEW.key_id.encode()) != [KEY_FILE]
    again = world.reopened(kill=True)
    assert len(secrets(again)) == 5


# ---- secrets of earlier releases


def upgraded(world: World) -> None:
    """All nodes know the level of this release."""
    propose(world, FeatureLevelChanged(feature=LEVEL_IN_FORCE, level=5))


def old_world() -> World:
    """A node of an earlier release with a capture in clear text."""
    world = World()
    world.broker.cluster_key.stop()
    propose(world, CLEAR)
    return world


def test_addresses_in_clear_text_are_sealed_after_the_upgrade() -> None:
    world = old_world()
    world.store.checkpoint_now()
    assert files_with(world, PASSWORD)
    again = world.reopened()
    again.advance(30)
    capture = again.broker.image.captures["shop"]
    assert isinstance(capture, CaptureChanged)
    assert PASSWORD not in capture.definition
    assert capture.incarnation == CLEAR.incarnation
    assert opened(capture, again.broker.keys).dsn == DSN
    again.store.checkpoint_now()
    assert files_with(again, PASSWORD) == []


def test_a_cluster_without_a_key_keeps_them_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = Pair()
    pair.one.broker.cluster_key.start()
    pair.propose(CLEAR)
    pair.one.advance(100)
    assert isinstance(pair.one.broker.image.captures["shop"], CaptureDefined)
    warnings = [each for each in caplog.messages if "in clear text" in each]
    # Once on each node.
    assert len(warnings) == 2
    assert "hunter2" not in caplog.text
    status = result(pair.one, pair.one.broker.cluster_key.status())
    assert status.clear == 1


def test_an_older_node_prevents_secrets_from_being_stored() -> None:
    world = World()
    propose(
        world,
        NodeRegistered(node_id=2, incarnation=1, feature_level=4),
        FeatureLevelChanged(feature=LEVEL_IN_FORCE, level=4),
    )
    error: DragomanError = result(world, world.broker.cluster_key.ready())
    assert isinstance(error, ClusterError)
    assert "upgrade node 2 first" in str(error)


# ---- power cuts


class Cut:
    """A node on a simulated disk, whose power fails after a number of operations of the disk."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(Random(seed))
        self.world = self.started()

    def started(self) -> World:
        self.world = World(disk=self.disk, seed=3)
        return self.world

    def run(self, work: Callable[[World], object], operations: int) -> bool:
        """Whether the work was done before the power failed. The node is started again."""
        self.disk.crash_at(operations)
        try:
            work(self.world)
        except PowerCut:
            is_done = False
        else:
            is_done = True
        self.disk = self.disk.crash()
        self.started()
        return is_done


def rotated(world: World) -> None:
    start(attempt(world.broker.cluster_key.rotate())).then(ignore)
    world.settle()
    world.advance(10)


def test_a_power_cut_at_any_point_of_a_rotation_loses_no_secret() -> None:
    operations, is_done = 1, False
    while not is_done:
        cut = Cut(seed=operations)
        put_keys(cut.world, OLD)
        add_users(cut.world, 3)
        before = secrets(cut.world)
        put_keys(cut.world, NEW, OLD)
        is_done = cut.run(rotated, operations)
        assert secrets(cut.world) == before
        cut.world.advance(30)
        current = cut.world.broker.image.cluster_key
        assert current is not None
        # Begun and committed, a rotation ends; otherwise nothing has changed.
        assert key_ids(cut.world) == {current.key_id}
        assert secrets(cut.world) == before
        rotated(cut.world)
        assert key_ids(cut.world) == {NEW.key_id}
        assert secrets(cut.world) == before
        operations += 1
    assert operations > 5


def test_a_power_cut_while_the_first_key_is_made_leaves_a_key_that_opens_what_is_sealed() -> None:
    operations, is_done = 1, False
    while not is_done:
        cut = Cut(seed=operations)
        is_done = cut.run(add_users, operations)
        found = secrets(cut.world)
        assert found in ([], [b"signs 0"])
        assert found or not is_done
        add_users(cut.world, 2)
        assert secrets(cut.world) == [b"signs 0", b"signs 1"]
        operations += 1
    assert operations > 5
