"""Goal: an administrator locks a cluster with the command line, and tests what rules mean.

Method: the commands in this process, against a broker with a data directory, its HTTP listener and
its administrator's socket.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.testing.ephemeral import EphemeralBroker


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def rows(self) -> list[list[str]]:
        """The rows of a table, without its head."""
        return [line.split() for line in self.out.splitlines() if line.strip(" ─━")][1:]


Dragoman = Callable[..., Ran]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EphemeralBroker]:
    with EphemeralBroker(storage="directory") as broker:
        yield broker


@pytest.fixture
def dragoman(broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]) -> Dragoman:
    def run(*arguments: str, server: str = broker.http_url) -> Ran:
        status = main([*arguments, "--server", server])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture
def operator(broker: EphemeralBroker) -> str:
    return f"unix:{broker.data_directory}"


def secret_file(tmp_path: Path, text: str = "s3cret") -> str:
    path = tmp_path / "secret"
    path.write_text(f"{text}\n")
    return f"file:{path}"


def test_user_is_created_changed_listed_and_deleted(dragoman: Dragoman, tmp_path: Path) -> None:
    secret = secret_file(tmp_path)
    created = dragoman("user", "create", "alice", "--new-password", secret)
    assert (created.status, created.out, created.err) == (0, "", "created user 'alice'\n")
    again = dragoman("user", "create", "alice", "--new-password", secret)
    assert (again.status, "user_exists" in again.err) == (1, True)
    assert dragoman("user", "create", "bot", "--no-password").status == 0
    assert dragoman("user", "disable", "bot").status == 0
    assert dragoman("user", "list").rows == [
        ["alice", "yes", "SCRAM-SHA-256,", "SCRAM-SHA-512", "no", "0"],
        ["bot", "no", "no", "no", "0"],
    ]
    assert dragoman("user", "enable", "bot").status == 0
    assert dragoman("user", "password", "bot", "--new-password", secret).status == 0
    assert dragoman("user", "password", "alice", "--remove").status == 0
    listed = json.loads(dragoman("user", "list", "--output", "json").out)
    assert [(each["name"], len(each["mechanisms"])) for each in listed] == [
        ("alice", 0),
        ("bot", 2),
    ]
    deleted = dragoman("user", "delete", "alice", "bot")
    assert deleted.err == "deleted user 'alice'\ndeleted user 'bot'\n"
    assert dragoman("user", "list").rows == []
    missing = dragoman("user", "delete", "alice")
    assert (missing.status, "unknown_user" in missing.err) == (1, True)


def test_passwords_are_no_arguments(
    dragoman: Dragoman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = dragoman("user", "create", "alice", "--new-password", "s3cret")
    assert refused.status == 2
    assert "s3cret" not in refused.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from standard input\n")))
    assert dragoman("user", "create", "alice", "--new-password", "stdin").status == 0
    monkeypatch.setenv("NEW_PASSWORD", "from the environment")
    assert dragoman("user", "password", "alice", "--new-password", "env:NEW_PASSWORD").status == 0
    for reference in ("", "env:NO_SUCH", "file:/no/such", "file:", "env:", "other:x", "stdin"):
        refused = dragoman("user", "password", "alice", "--new-password", reference)
        assert refused.status == 2, reference
        assert len(refused.err.splitlines()) == 1
    weak = dragoman("user", "create", "x", "--new-password", secret_file(tmp_path, "a\u00adb"))
    assert (weak.status, "invalid_password" in weak.err) == (1, True)


def test_wrong_names_of_users_are_refused(dragoman: Dragoman) -> None:
    for name in ("*", "ANONYMOUS", "a\nb", "x" * 256, "e\u0301"):
        refused = dragoman("user", "create", name, "--no-password")
        assert (refused.status, refused.out) == (1, "")
    assert dragoman("user", "list").rows == []


def test_token_is_printed_once_and_revoked(dragoman: Dragoman) -> None:
    dragoman("user", "create", "bot", "--no-password")
    made = dragoman("user", "token", "create", "bot", "--label", "ci", "--days", "2", "--read-only")
    (token,) = made.out.splitlines()
    assert token.startswith("dragoman_")
    shown = json.loads(dragoman("user", "describe", "bot", "--output", "json").out)
    (described,) = shown["tokens"]
    assert token not in json.dumps(shown)
    assert (described["label"], described["read_only"]) == ("ci", True)
    assert described["expires_ms"] - described["created_ms"] == 2 * 86_400_000
    assert described["token_id"] in dragoman("user", "describe", "bot").out
    assert dragoman("user", "token", "revoke", "bot", described["token_id"]).status == 0
    assert dragoman("user", "token", "revoke", "bot", described["token_id"]).status == 1
    assert dragoman("user", "token", "create", "bot", "--days", "0").status == 2


def test_signing_secret_is_set_and_removed(dragoman: Dragoman, tmp_path: Path) -> None:
    dragoman("user", "create", "rocket", "--no-password")
    secret = secret_file(tmp_path)
    assert dragoman("user", "signing-secret", "rocket", "--new-secret", secret).status == 0
    shown = dragoman("user", "describe", "rocket")
    assert ["signing", "secret", "yes"] in [line.split() for line in shown.out.splitlines()]
    assert "s3cret" not in shown.out
    assert dragoman("user", "signing-secret", "rocket", "--remove").status == 0


def test_rules_are_added_listed_tested_and_removed(dragoman: Dragoman) -> None:
    added = dragoman("acl", "add", "alice", "read,describe", "topic:orders-", "--prefixed")
    assert (added.status, added.out) == (0, "")
    assert added.err.splitlines() == [
        "added: allow User:alice read topic prefix 'orders-'",
        "added: allow User:alice describe topic prefix 'orders-'",
    ]
    assert dragoman("acl", "add", "*", "all", "topic:*", "--deny", "--host", "10.0.0.1").status == 0
    assert dragoman("acl", "add", "Group:x", "alter-configs", "cluster").status == 0
    assert dragoman("acl", "list").rows == [
        ["allow", "User:alice", "*", "read", "topic", "prefixed", "orders-"],
        ["allow", "User:alice", "*", "describe", "topic", "prefixed", "orders-"],
        ["deny", "User:*", "10.0.0.1", "all", "topic", "literal", "*"],
        ["allow", "Group:x", "*", "alter_configs", "cluster", "literal", "kafka-cluster"],
    ]
    matching = dragoman("acl", "list", "--resource", "topic:orders-1", "--pattern", "match")
    assert len(matching.rows) == 3
    assert dragoman("acl", "list", "--resource", "topic:orders-1").rows == []
    assert len(dragoman("acl", "list", "--resource", "topic:").rows) == 3
    allowed = dragoman("acl", "test", "alice", "read", "topic:orders-1")
    assert allowed.status == 0
    assert allowed.out == "allowed, rule: allow User:alice read topic prefix 'orders-'\n"
    assert allowed.err == "the mode is open: nothing is refused\n"
    denied = dragoman("acl", "test", "alice", "read", "topic:orders-1", "--host", "10.0.0.1")
    assert denied.status == 1
    assert denied.out == "denied, rule: deny User:* from 10.0.0.1 all topic '*'\n"
    unmatched = dragoman("acl", "test", "alice", "read", "group:g")
    assert (unmatched.status, unmatched.out) == (1, "denied, no rule matches the resource\n")
    answer = json.loads(
        dragoman("acl", "test", "bob", "read", "topic:orders-1", "--output", "json").out
    )
    assert answer == {
        "allowed": False,
        "mode": "open",
        "reason": "no rule for the resource allows it",
        "rule": None,
    }
    assert dragoman("acl", "remove").status == 2
    removed = dragoman("acl", "remove", "--principal", "alice", "--operation", "read")
    assert removed.err.splitlines()[-1] == "removed rules: 1"
    assert dragoman("acl", "remove", "--principal", "alice", "--all").status == 2
    everything = json.loads(dragoman("acl", "remove", "--all", "--output", "json").out)
    assert everything["count"] == 3
    assert dragoman("acl", "list").rows == []


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("", "read", "topic:t"), 2),
        (("alice", "reed", "topic:t"), 2),
        (("alice", "", "topic:t"), 2),
        (("alice", "read", "topic"), 2),
        (("alice", "read", "topic:"), 2),
        (("alice", "read", "table:t"), 2),
        (("alice", "read", "cluster:other"), 1),
        (("alice", "read", "topic:t", "--host", "db.example"), 1),
        (("User:", "read", "topic:t"), 1),
        (("alice", "read", "topic:" + "é" * 600), 1),
    ],
)
def test_wrong_rules_are_refused(
    dragoman: Dragoman, arguments: tuple[str, ...], status: int
) -> None:
    refused = dragoman("acl", "add", *arguments)
    assert (refused.status, refused.out) == (status, "")
    assert len(refused.err.splitlines()) == 1
    assert dragoman("acl", "list").rows == []


def test_listing_of_many_rules_is_followed_to_its_end(dragoman: Dragoman) -> None:
    for number in range(3):
        operations = ",".join(["read", "write"] * 10)
        assert dragoman("acl", "add", "alice", operations, f"topic:{number}").status == 0
    assert len(dragoman("acl", "list").rows) == 6


def test_mode_is_changed_by_an_administrator_only(
    dragoman: Dragoman, operator: str, tmp_path: Path
) -> None:
    anonymous = dragoman("security", "mode", "enforce")
    assert (anonymous.status, "log in" in anonymous.err) == (1, True)
    locked_out = dragoman("security", "mode", "enforce", server=operator)
    assert (locked_out.status, "security_mode_refused" in locked_out.err) == (1, True)
    dragoman("user", "create", "root", "--new-password", secret_file(tmp_path), server=operator)
    dragoman("acl", "add", "root", "all", "cluster", server=operator)
    assert dragoman("security", "mode", "enforce", server=operator).status == 0
    # Everything is refused to anonymous callers now, and nothing to the operator.
    for command in (("user", "list"), ("acl", "list"), ("security", "status"), ("topic", "list")):
        refused = dragoman(*command)
        assert refused.status == 1 or refused.rows == [], command
        assert dragoman(*command, server=operator).status == 0
    status = json.loads(dragoman("security", "status", "--output", "json", server=operator).out)
    assert (status["mode"], status["users"], status["rules"]) == ("enforce", 1, 1)
    assert status["has_administrator"]
    assert dragoman("security", "status", server=operator).status == 0
    assert dragoman("security", "mode", "open").status == 1
    assert dragoman("security", "mode", "open", server=operator).status == 0
    assert dragoman("acl", "list").status == 0


# ---- quotas


def test_quotas_are_set_listed_tested_and_removed(dragoman: Dragoman) -> None:
    checked = dragoman("quota", "set", "producer_byte_rate=1048576", "--for-user", "a", "--dry-run")
    assert (checked.status, checked.err) == (0, "nothing was changed\n")
    assert checked.rows == [["a", "-", "-", "producer_byte_rate", "-", "1048576"]]
    assert dragoman("quota", "list").rows == []
    both = ("--for-user", "a", "--default-client-id")
    values = ("request_percentage=12.5", "producer_byte_rate=2048")
    assert dragoman("quota", "set", *values, *both).status == 0
    assert dragoman("quota", "set", "producer_byte_rate=9", "--client-id", "c").status == 0
    address = ("--address", "10.0.0.7")
    assert dragoman("quota", "set", "connection_creation_rate=5", *address).status == 0
    assert dragoman("quota", "list", "--for-user", "a").rows == [
        ["a", "<default>", "-", "producer_byte_rate", "2048"],
        ["a", "<default>", "-", "request_percentage", "12.5"],
    ]
    assert len(dragoman("quota", "list").rows) == 4
    tested = dragoman("quota", "test", "--for-user", "a", "--client-id", "c", *address)
    assert tested.rows[0] == (
        ["producer_byte_rate", "2048", "user", "a,", "client", "id", "<default>"]
    )
    assert tested.rows[1] == ["consumer_byte_rate", "unlimited", "-"]
    assert tested.rows[4] == ["connection_creation_rate", "5", "address", "10.0.0.7"]
    removed = dragoman("quota", "remove", "producer_byte_rate", *both)
    assert removed.rows == [["a", "<default>", "-", "producer_byte_rate", "2048", "-"]]
    gone = json.loads(dragoman("quota", "remove", "--all", *both, "--output", "json").out)
    assert gone == {
        "entity": {"user": "a", "default_client_id": True},
        "before": {"request_percentage": 12.5},
        "after": {},
    }
    lines = dragoman("quota", "list", "--output", "csv").out.splitlines()
    assert lines == [
        "entity,quotas",
        '"{""client_id"":""c""}","{""producer_byte_rate"":9.0}"',
        '"{""address"":""10.0.0.7""}","{""connection_creation_rate"":5.0}"',
    ]
    assert dragoman("quota", "usage").rows == []


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (("set", "--for-user", "a"), 2, "at least one KEY=VALUE"),
        (("set", "producer_byte_rate", "--for-user", "a"), 2, "expected KEY=VALUE"),
        (("set", "producer_byte_rate=x", "--for-user", "a"), 2, "expected a number"),
        (("set", "producer_byte_rate=nan", "--for-user", "a"), 2, "expected a number"),
        (("set", "producer_byte_rate=0", "--for-user", "a"), 1, "invalid_quota"),
        (("set", "speed=1", "--for-user", "a"), 1, "'speed' is not one of producer_byte_rate"),
        (("set", "producer_byte_rate=1"), 2, "give whose quotas they are"),
        (("set", "producer_byte_rate=1", "--address", "::1"), 1, "invalid_quota"),
        (("set", "producer_byte_rate=1", "--for-user", "a", "--default-user"), 1, "exclude"),
        (("remove", "--for-user", "a"), 2, "or --all"),
        (("remove", "producer_byte_rate", "--all", "--for-user", "a"), 2, "or --all"),
        (("remove", "--all", "--for-user", "a"), 1, "there are no quotas of user a"),
        (("list", "--for-user", "a", "--default-user"), 1, "exclude"),
    ],
)
def test_quota_that_makes_no_sense_is_refused(
    dragoman: Dragoman, arguments: tuple[str, ...], status: int, reason: str
) -> None:
    refused = dragoman("quota", *arguments)
    assert (refused.status, refused.out) == (status, "")
    assert reason in refused.err
    assert dragoman("quota", "list").rows == []
