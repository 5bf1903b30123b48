"""Goal: a new cluster begins with the users and rules of a file, once, and with the mode that its
listeners call for; what exists already stays as it is.

Method: a broker on virtual time, stopped and started again; the file is on its simulated disk.
"""

from __future__ import annotations

import pytest

from dragoman import limits
from dragoman.config.settings import Settings
from dragoman.errors import AuthenticationFailedError, ConfigError, DragomanError
from dragoman.outcome import start
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Principal, Resource
from dragoman.security.authorizer import ENFORCE, OPEN
from dragoman.testing.memory import MemoryDisk
from worlds.broker import World

FILE = "first.toml"
SETTINGS = Settings(bootstrap_users_file=FILE)
REQUIRED = Settings(per_listener=(("listener.kafka.authentication", "required"),))
CONTENT = """
[[users]]
name = "admin"
password = "correct horse"

[[users]]
name = "reader"
password = "file:/reader"

[[rules]]
principal = "User:admin"
operation = "all"
resource = "cluster"

[[rules]]
principal = "User:reader"
operation = "read"
resource = "topic"
name = "public-"
pattern = "prefixed"
"""
ADMIN = Caller(Principal("User", "admin"), "10.0.0.1", is_proven=True)
READER = Caller(Principal("User", "reader"), "10.0.0.1", is_proven=True)


def disk_with(content: str | bytes) -> MemoryDisk:
    disk = MemoryDisk()
    data = content.encode() if isinstance(content, str) else content
    for path, text in ((FILE, data), ("reader", b"battery staple\n")):
        file = disk.open(path, "create")
        file.write([text], 0)
        file.close()
    return disk


def begin(disk: MemoryDisk, settings: Settings = SETTINGS) -> World:
    return World(settings, disk=disk)


def log_in(world: World, name: str, password: str) -> Caller | DragomanError:
    results: list[Caller | DragomanError] = []
    start(world.broker.logins.password(name, password, "10.0.0.1", protocol="kafka")).then(
        results.append
    )
    world.advance(60)
    return results[0]


def test_users_of_the_file_log_in_and_have_its_rules() -> None:
    world = begin(disk_with(CONTENT))
    assert log_in(world, "admin", "correct horse") == ADMIN
    assert log_in(world, "reader", "battery staple") == READER
    assert isinstance(log_in(world, "reader", "file:/reader"), AuthenticationFailedError)
    decide = world.broker.rule_authorizer.decide
    assert decide(ADMIN, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME).is_allowed
    assert decide(READER, Operation.READ, Resource.TOPIC, "public-news").is_allowed
    assert not decide(READER, Operation.WRITE, Resource.TOPIC, "public-news").is_allowed
    assert world.broker.image.security_mode == OPEN


def test_file_may_go_afterwards_and_counts_once() -> None:
    disk = disk_with(CONTENT)
    first = begin(disk)
    disk.remove(FILE)
    second = first.reopened()
    assert set(second.broker.image.users) == {"admin", "reader"}
    file = disk.open(FILE, "create")
    file.write([CONTENT.replace('"reader"', '"intruder"').encode()], 0)
    file.close()
    assert set(second.reopened().broker.image.users) == {"admin", "reader"}


def test_file_that_is_not_there_stops_no_node() -> None:
    world = begin(MemoryDisk())
    assert world.broker.is_ready
    assert not world.broker.image.users


def test_cluster_with_topics_is_not_new() -> None:
    disk = disk_with(CONTENT)
    first = begin(disk, Settings())
    first.create("t")
    again = first.reopened(SETTINGS)
    assert not again.broker.image.users
    assert not again.broker.image.rules
    assert again.reopened(REQUIRED).broker.image.security_mode == OPEN


def test_new_cluster_with_a_login_enforces_its_rules() -> None:
    assert begin(MemoryDisk(), REQUIRED).broker.image.security_mode == ENFORCE
    between_nodes = Settings(per_listener=(("listener.peer.authentication", "required"),))
    assert begin(MemoryDisk(), between_nodes).broker.image.security_mode == OPEN


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("users = 1", "users"),
        ("[[users]]\nname = 'a'", "password"),
        ("[[users]]\nname = 'a'\npassword = 'b'\nadmin = true", "admin"),
        ("[[users]]\nname = ''\npassword = 'secret b'", "empty"),
        ("[[users]]\nname = '*'\npassword = 'secret b'", "names no user"),
        ("[[users]]\nname = 'ANONYMOUS'\npassword = 'secret b'", "names no user"),
        ("[[users]]\nname = 'a\u200bb'\npassword = 'secret b'", "invisible"),
        (f"[[users]]\nname = '{'a' * 256}'\npassword = 'secret b'", "at most 255"),
        ("[[users]]\nname = 'a'\npassword = ''", "user 'a'"),
        ("[[users]]\nname = 'a'\npassword = 'file:/nowhere'", "user 'a': file:/nowhere"),
        ("[[users]]\nname = 'a'\npassword = 'env:NOT_SET'", "no variable NOT_SET"),
        ("[[users]]\nname = 'a'\npassword = 'x'\n" * 2, "the same name"),
        (
            "".join(
                f"[[users]]\nname = 'u{n}'\npassword = 'x'\n"
                for n in range(limits.BOOTSTRAP_USERS_MAX + 1)
            ),
            "at most",
        ),
        ("[[rules]]\nprincipal = 'a'\noperation = 'read'\nresource = 'topic'", "KIND:NAME"),
        ("[[rules]]\nprincipal = 'User:a'\noperation = 'fly'\nresource = 'topic'", "fly"),
        ("[[groups]]\nname = 'a'", "groups"),
        ("[[users", "first.toml"),
        (b"\xff\xfe", "UTF-8"),
        ("#" * (limits.BOOTSTRAP_FILE_BYTES_MAX + 1), "first.toml"),
    ],
)
def test_unusable_file_stops_the_start_and_changes_nothing(
    content: str | bytes, words: str
) -> None:
    world = World(SETTINGS, disk=disk_with(content), start=False)
    results: list[DragomanError | None] = []
    world.broker.recover()
    start(world.broker.start()).then(results.append)
    world.advance(60)
    (error,) = results
    assert isinstance(error, ConfigError)
    assert str(error).startswith(f"bootstrap.users.file: {FILE}")
    assert words in str(error)
    assert "battery" not in str(error)
    assert not world.broker.image.users
    assert not world.broker.image.rules
