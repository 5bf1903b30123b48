"""Goal: the audit log has a line for every act of administration and a bounded number for frequent
events, and neither a full queue nor a failing disk grows memory or goes unmentioned.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest

from dragoman.limits import (
    AUDIT_LIKE_EVENTS_MAX,
    AUDIT_QUEUED_BYTES_MAX,
    AUDIT_SAMPLE_INTERVAL_S,
    AUDIT_SAMPLE_KINDS_MAX,
    AUDIT_TEXT_CHARS_MAX,
    AUDIT_WRITE_INTERVAL_S,
)
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.audit import (
    AuditEvent,
    AuditFile,
    AuditLog,
    administration,
    denial,
    login,
    noticed,
)
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from dragoman.world import read_whole

ALICE = Caller(Principal("User", "alice"), "10.0.0.1")


class Place:
    """An audit log on virtual time and a simulated disk."""

    def __init__(self, file_bytes: int = 1 << 20, files: int = 3) -> None:
        self.scheduler = SimScheduler()
        self.disk = SimDisk(random.Random(1))
        self.file = AuditFile(disk=self.disk, path="audit.log", file_bytes=file_bytes, files=files)
        self.log = self.opened()

    def opened(self) -> AuditLog:
        log = AuditLog(self.file, 7, self.scheduler, SimClock(self.scheduler))
        log.is_on = lambda: True
        return log

    def after(self, seconds: float = AUDIT_WRITE_INTERVAL_S) -> None:
        self.scheduler.advance(seconds)

    def lines(self, path: str = "audit.log") -> list[dict[str, object]]:
        if not self.disk.exists(path):
            return []
        return [msgspec.json.decode(each) for each in read_whole(self.disk, path).splitlines()]


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.log.close()


def test_every_kind_of_event_is_a_line_of_json(place: Place) -> None:
    place.log.record(login("scram-sha-256", ALICE, "kafka", succeeded=True))
    place.log.record(login("plain", ALICE, "http", succeeded=False, reason="wrong password"))
    place.log.record(administration("user.delete", ALICE, "http", resource="user:bob"))
    place.log.record(denial(ALICE, Operation.READ, Resource.TOPIC, "orders", is_enforced=True))
    place.log.record(noticed("certificate.reload", failure="the key does not match"))
    assert place.lines() == []
    place.after()
    lines = place.lines()
    assert [each.pop("kind") for each in lines] == [
        "login",
        "login",
        "administration",
        "denial",
        "security",
    ]
    assert {each.pop("node") for each in lines} == {7}
    assert all(str(each.pop("time")).endswith("Z") for each in lines)
    assert lines[0] == {
        "action": "scram-sha-256",
        "result": "succeeded",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "protocol": "kafka",
    }
    assert lines[1]["detail"] == "wrong password"
    assert lines[2]["resource"] == "user:bob"
    assert lines[3] == {
        "action": "read",
        "result": "denied",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "resource": "topic:orders",
    }
    assert lines[4] == {
        "action": "certificate.reload",
        "result": "failed",
        "detail": "the key does not match",
    }


def test_nothing_is_written_while_it_is_off(place: Place) -> None:
    place.log.is_on = lambda: False
    place.log.record(noticed("start"))
    place.after()
    assert not place.disk.exists("audit.log")


def test_what_a_client_chose_stays_on_its_line_and_is_cut(place: Place) -> None:
    name = 'x"\n{"kind":"administration"}\x00\ud800' + "y" * 10_000
    caller = Caller(Principal("User", name), "::1")
    place.log.record(login("plain", caller, "kafka", succeeded=False))
    place.after()
    [line] = place.lines()
    assert len(str(line["principal"])) <= AUDIT_TEXT_CHARS_MAX + 5
    assert str(line["principal"]).startswith('User:x"\n')
    assert read_whole(place.disk, "audit.log").count(b"\n") == 1


def test_frequent_logins_are_counted(place: Place) -> None:
    for _ in range(1_000):
        place.log.record(login("plain", ALICE, "kafka", succeeded=False))
    place.after(AUDIT_SAMPLE_INTERVAL_S)
    place.after()
    lines = place.lines()
    assert len(lines) == AUDIT_LIKE_EVENTS_MAX + 1
    assert lines[-1]["count"] == 1_000 - AUDIT_LIKE_EVENTS_MAX
    assert lines[-1]["principal"] == "User:alice"
    # The next interval begins anew.
    place.log.record(login("plain", ALICE, "kafka", succeeded=False))
    place.after()
    assert "count" not in place.lines()[-1]


def test_an_attacker_who_varies_names_gets_a_bounded_number_of_lines(place: Place) -> None:
    for number in range(20_000):
        caller = Caller(Principal("User", f"u{number}"), "10.0.0.9")
        place.log.record(login("plain", caller, "kafka", succeeded=False))
    place.after(AUDIT_SAMPLE_INTERVAL_S)
    place.after()
    lines = place.lines()
    assert len(lines) <= AUDIT_SAMPLE_KINDS_MAX + AUDIT_LIKE_EVENTS_MAX + 1
    assert sum(int(str(each.get("count", 1))) for each in lines) == 20_000


def test_administration_is_never_sampled(place: Place) -> None:
    for _ in range(500):
        place.log.record(administration("acl.add", ALICE, "http"))
    place.after()
    assert len(place.lines()) == 500


def test_a_full_queue_drops_lines_and_says_how_many(place: Place) -> None:
    for _ in range(5_000):
        place.log.record(administration("acl.add", ALICE, "http", detail="d" * 200))
    place.after()
    lines = place.lines()
    size = len(read_whole(place.disk, "audit.log"))
    assert size <= AUDIT_QUEUED_BYTES_MAX + 1_000
    assert lines[-1]["action"] == "audit.lost"
    assert lines[-1]["count"] == 5_000 - (len(lines) - 1) == place.log.dropped


def test_files_are_bounded_in_size_and_number() -> None:
    place = Place(file_bytes=2_000, files=3)
    for number in range(100):
        place.log.record(administration("acl.add", ALICE, "http", detail=str(number)))
        place.after()
    place.log.close()
    assert place.disk.names("") == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = [*place.lines("audit.log.2"), *place.lines("audit.log.1"), *place.lines()]
    numbers = [int(str(each["detail"])) for each in kept]
    assert numbers == list(range(numbers[0], 100))
    for name in place.disk.names(""):
        assert len(read_whole(place.disk, name)) <= 2_000


def test_one_file_is_replaced_by_an_empty_one() -> None:
    place = Place(file_bytes=1_000, files=1)
    for number in range(50):
        place.log.record(administration("acl.add", ALICE, "http", detail=str(number)))
        place.after()
    place.log.close()
    assert place.disk.names("") == ["audit.log"]
    assert place.lines()[-1]["detail"] == "49"


def test_a_file_that_an_operator_removed_is_made_again(place: Place) -> None:
    place.log.record(noticed("one"))
    place.after()
    place.disk.rename("audit.log", "moved")
    place.disk.remove("moved")
    place.log.record(noticed("two"))
    place.after()
    assert [each["action"] for each in place.lines()] == ["two"]


def test_a_restart_continues_the_file(place: Place) -> None:
    place.log.record(noticed("one"))
    place.log.close()
    place.log = place.opened()
    place.log.record(noticed("two"))
    place.after()
    assert [each["action"] for each in place.lines()] == ["one", "two"]


def test_a_stop_writes_what_waits(place: Place) -> None:
    for _ in range(AUDIT_LIKE_EVENTS_MAX + 5):
        place.log.record(login("plain", ALICE, "kafka", succeeded=False))
    place.log.close()
    assert place.lines()[-1]["count"] == 5


def test_a_disk_that_fails_loses_lines_and_memory_stays_bounded(place: Place) -> None:
    place.log.record(noticed("before"))
    place.after()
    place.disk.capacity_bytes = 500
    for _ in range(20):
        for _ in range(100):
            place.log.record(administration("acl.add", ALICE, "http", detail="d" * 100))
        place.after()
    assert place.log.dropped == 2_000
    place.disk.capacity_bytes = 1 << 30
    place.log.record(noticed("after"))
    place.after()
    lines = place.lines()
    assert [lines[0]["action"], lines[-2]["action"]] == ["before", "after"]
    assert len(lines) == 3
    assert lines[-1]["action"] == "audit.lost"
    assert lines[-1]["count"] == 2_000


def test_a_record_never_raises_for_any_event(place: Place) -> None:
    event = AuditEvent(kind="security", action="\udfff", result="failed", detail="\x00" * 3)
    place.log.record(event)
    place.after()
    assert len(place.lines()) == 1
