"""Goal: the process of a capture logs in with a password that ends with the capture, its owner and
the cluster's key, and that no user and no other capture has.
"""

from __future__ import annotations

import random

import msgspec
import pytest
from scramp import ScramClient

from captures.runner import defined
from dragoman.captures.control import KafkaLogin
from dragoman.captures.logins import CaptureLogins
from dragoman.cluster.events import (
    CaptureChanged,
    CaptureRemoved,
    LoginSecretSet,
    UserChanged,
    UserRemoved,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.config.settings import Settings
from dragoman.errors import AuthenticationFailedError
from dragoman.outcome import Outcome, attempt, start
from dragoman.security.access import Caller, Principal
from dragoman.security.key_file import format_keys, new_key
from dragoman.security.logins import Logins
from dragoman.security.passwords import Mechanism
from dragoman.security.secrets import KEY_FILE, ClusterKeys
from dragoman.security.users import User
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from dragoman.world import DiskSecrets, replace_file

OLD = new_key(bytes(36))
NEW = new_key(bytes(range(36)))
SHOP = CaptureChanged(
    name="shop",
    definition=msgspec.json.encode(defined()),
    principal="User:alice",
    user="1",
    incarnation="i",
)
PROCESS = Caller(Principal("Capture", "shop"), "10.0.0.1", is_proven=True)


class Node:
    """The logins of a node with a key file of its own."""

    def __init__(self, image: MetadataImage, seed: int, *, has_key: bool = True) -> None:
        self.scheduler = SimScheduler()
        disk = MemoryDisk()
        if has_key:
            replace_file(disk, KEY_FILE, format_keys([OLD, NEW]))
        self.keys = ClusterKeys(DiskSecrets(disk), "", random.Random(seed))
        self.keys.load()
        if has_key:
            self.keys.use(OLD.key_id)
        self.captures = CaptureLogins(image, self.keys, random.Random(seed))
        self.logins = Logins(
            image,
            Settings,
            self.scheduler,
            SimClock(self.scheduler),
            random.Random(seed),
        )
        self.logins.processes = self.captures

    def log_in(self, login: KafkaLogin, mechanism: Mechanism = Mechanism.SHA_256) -> Caller:
        """By SCRAM. Raises `AuthenticationFailedError`."""
        server = self.logins.scram_server(mechanism, "10.0.0.1", "kafka")
        client = ScramClient([mechanism.value], login.name, login.password)
        reply = self._receive(server, client.get_client_first())
        client.set_server_first(reply)
        client.set_server_final(self._receive(server, client.get_client_final()))
        assert server.caller is not None
        return server.caller

    def _receive(self, server, text: str) -> str:  # type: ignore[no-untyped-def]
        found: list[bytes | Exception] = []
        start(attempt(server.receive(text.encode()))).then(found.append)
        self.scheduler.advance(100)
        [reply] = found
        if isinstance(reply, Exception):
            raise reply
        return reply.decode()


@pytest.fixture
def image() -> MetadataImage:
    image = MetadataImage()
    image.apply(UserChanged(user=User(name="alice", incarnation="1")))
    image.apply(SHOP)
    return image


def login_of(node: Node) -> KafkaLogin:
    found = node.captures.credentials("shop")
    assert found is not None
    return found


@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_process_logs_in_to_every_node_with_the_key(
    image: MetadataImage, mechanism: Mechanism
) -> None:
    one, two = Node(image, 1), Node(image, 2)
    assert two.log_in(login_of(one), mechanism) == PROCESS
    assert one.log_in(login_of(one), mechanism) == PROCESS
    assert login_of(one).password not in repr(login_of(one))


def test_without_a_key_a_process_logs_in_to_its_own_node_only(image: MetadataImage) -> None:
    one, two = Node(image, 1, has_key=False), Node(image, 2, has_key=False)
    assert one.log_in(login_of(one)) == PROCESS
    with pytest.raises(AuthenticationFailedError):
        two.log_in(login_of(one))


@pytest.mark.parametrize(
    "events",
    [
        [CaptureRemoved(name="shop")],
        [msgspec.structs.replace(SHOP, incarnation="j")],
        [msgspec.structs.replace(SHOP, principal="User:bob")],
        [msgspec.structs.replace(SHOP, user="2")],
    ],
)
def test_a_login_ends_with_the_capture_and_its_owner(image: MetadataImage, events: list) -> None:  # type: ignore[type-arg]
    node = Node(image, 1)
    login = login_of(node)
    assert node.log_in(login) == PROCESS
    for event in events:
        image.apply(event)
    with pytest.raises(AuthenticationFailedError):
        node.log_in(login)


def test_a_login_ends_with_the_key(image: MetadataImage) -> None:
    node = Node(image, 1)
    login = login_of(node)
    node.keys.use(NEW.key_id)
    with pytest.raises(AuthenticationFailedError):
        node.log_in(login)
    assert node.log_in(login_of(node)) == PROCESS


def test_a_wrong_password_is_refused_like_any_other(image: MetadataImage) -> None:
    node = Node(image, 1)
    with pytest.raises(AuthenticationFailedError, match="unknown user or wrong credentials"):
        node.log_in(KafkaLogin("__capture.shop", "0" * 64))
    with pytest.raises(AuthenticationFailedError, match="unknown user or wrong credentials"):
        node.log_in(KafkaLogin("__capture.none", "0" * 64))


def test_a_user_with_the_name_of_a_process_is_not_the_process(image: MetadataImage) -> None:
    image.apply(UserChanged(user=User(name="__capture.shop", incarnation="1")))
    node = Node(image, 1)
    assert node.log_in(login_of(node)) == PROCESS
    image.apply(UserRemoved(name="__capture.shop"))
    assert node.log_in(login_of(node)) == PROCESS


@pytest.mark.parametrize("has_key", [True, False])
def test_a_capture_looks_like_an_unknown_user_on_every_node_and_after_a_restart(
    image: MetadataImage, has_key: bool
) -> None:
    image.apply(LoginSecretSet(secret=b"of the cluster"))

    def shown(node: Node) -> str:
        server = node.logins.scram_server(Mechanism.SHA_256, "10.0.0.1")
        return node._receive(server, "n,,n=__capture.shop,r=nonce").partition(",")[2]

    nodes = [Node(image, seed, has_key=has_key) for seed in range(3)]
    with_capture = {shown(each) for each in nodes}
    image.apply(CaptureRemoved(name="shop"))
    assert len(with_capture | {shown(each) for each in nodes}) == 1


def test_the_password_of_a_capture_is_hashed_beside_the_loop(image: MetadataImage) -> None:
    node = Node(image, 1)
    waiting: list[Outcome[bytes]] = []

    class Hasher:
        def derive(self, *given: object) -> Outcome[bytes]:
            waiting.append(Outcome())
            return waiting[-1]

    node.logins.hasher = Hasher()
    server = node.logins.scram_server(Mechanism.SHA_256, "10.0.0.1")
    replies: list[object] = []
    start(server.receive(b"n,,n=__capture.shop,r=nonce")).then(replies.append)
    assert replies == []
    waiting[0].settle(bytes(32))
    assert len(replies) == 1
    start(
        node.logins.scram_server(Mechanism.SHA_256, "h").receive(b"n,,n=__capture.shop,r=nonce")
    ).then(replies.append)
    assert (len(replies), len(waiting)) == (2, 1), "the verifier is kept"


def test_captures_have_different_passwords(image: MetadataImage) -> None:
    image.apply(msgspec.structs.replace(SHOP, name="other"))
    node = Node(image, 1)
    other = node.captures.credentials("other")
    assert other is not None
    with pytest.raises(AuthenticationFailedError):
        node.log_in(KafkaLogin("__capture.shop", other.password))
    assert node.captures.credentials("none") is None


class Connection:
    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.ended: list[str] = []

    def is_renamed(self) -> bool:
        return False

    def login_ended(self, reason: str) -> None:
        self.ended.append(reason)


@pytest.mark.parametrize(
    "event",
    [
        UserRemoved(name="alice"),
        UserChanged(user=User(name="alice", incarnation="1", is_enabled=False)),
        UserChanged(user=User(name="alice", incarnation="2")),
    ],
)
def test_connections_of_a_process_end_with_the_owner_of_its_capture(
    image: MetadataImage, event: UserRemoved | UserChanged
) -> None:
    node = Node(image, 1)
    login = login_of(node)
    connection = Connection(node.log_in(login))
    node.logins.opened(connection)
    image.apply(UserChanged(user=User(name="bob", incarnation="1")))
    node.logins.user_changed("bob")
    assert connection.ended == []
    image.apply(event)
    node.logins.user_changed("alice")
    assert connection.ended == ["Capture:shop is gone, or what it runs as"]
    with pytest.raises(AuthenticationFailedError):
        node.log_in(login)


def test_snapshot_ends_connections_of_processes_that_it_does_not_have(
    image: MetadataImage,
) -> None:
    node = Node(image, 1)
    connection = Connection(node.log_in(login_of(node)))
    node.logins.opened(connection)
    node.logins.all_changed()
    assert connection.ended == []
    image.apply(CaptureRemoved(name="shop"))
    node.logins.all_changed()
    assert len(connection.ended) == 1


def test_user_with_the_name_of_a_capture_is_another_principal(image: MetadataImage) -> None:
    node = Node(image, 1)
    connection = Connection(node.log_in(login_of(node)))
    node.logins.opened(connection)
    image.apply(UserChanged(user=User(name="shop", incarnation="1", is_enabled=False)))
    node.logins.user_changed("shop")
    assert connection.ended == []
