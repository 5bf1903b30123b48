"""Goal: event streams keep their versions, one writer at a time, also over restarts.

Method: commands against a world; the index is read anew after each reopening.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dragoman.errors import CorruptionError
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.messages import Message
from worlds.broker import World
from worlds.cursus import CursusPipe, framed


@pytest.fixture
def pipe() -> CursusPipe:
    opened = CursusPipe(World())
    opened.ask("CREATE topic=es partitions=2 event_sourcing=true")
    opened.ask("CREATE topic=plain partitions=1")
    return opened


def append(pipe: CursusPipe, key: str, version: int, payload: str = "e") -> str:
    return pipe.ask(f"APPEND_STREAM topic=es key={key} version={version} message={payload}")


def read(pipe: CursusPipe, more: str) -> tuple[dict[str, object], list[Message]]:
    pipe.feed(framed(f"READ_STREAM topic=es {more}"))
    pipe.world.settle()
    head, events = pipe.frames()
    return json.loads(head), list(codec.decode_batch(events).messages)


def test_versions_follow_each_other(pipe: CursusPipe) -> None:
    assert pipe.ask("STREAM_VERSION topic=es key=k") == "OK version=0"
    assert append(pipe, "k", 1).startswith("OK version=1 offset=0 partition=")
    assert append(pipe, "k", 1) == "ERROR: version_conflict current=1 expected=1"
    assert append(pipe, "k", 3) == "ERROR: version_conflict current=1 expected=3"
    assert append(pipe, "k", 2).startswith("OK version=2 ")
    assert append(pipe, "other", 1).startswith("OK version=1 ")
    assert pipe.ask("STREAM_VERSION topic=es key=k") == "OK version=2"


def test_of_two_writers_one_wins(pipe: CursusPipe) -> None:
    other = CursusPipe(pipe.world)
    for each, payload in ((pipe, "mine"), (other, "theirs")):
        each.feed(framed(f"APPEND_STREAM topic=es key=k version=1 message={payload}"))
    pipe.world.settle()
    assert pipe.frames()[0].startswith(b"OK version=1 ")
    assert other.frames() == [b"ERROR: version_conflict current=1 expected=1"]


def test_of_hundreds_of_writers_one_wins_and_the_next_version_follows(pipe: CursusPipe) -> None:
    """Refusals that follow each other at once must not nest."""
    others = [CursusPipe(pipe.world) for _ in range(600)]
    for each in (pipe, *others):
        each.feed(framed("APPEND_STREAM topic=es key=k version=1 message=m"))
    last = CursusPipe(pipe.world)
    last.feed(framed("APPEND_STREAM topic=es key=k version=2 message=m"))
    pipe.world.settle()
    assert pipe.frames()[0].startswith(b"OK version=1 ")
    assert {reply for each in others for reply in each.frames()} == {
        b"ERROR: version_conflict current=1 expected=1"
    }
    assert last.frames()[0].startswith(b"OK version=2 ")


@pytest.mark.parametrize("kill", [True, False])
def test_streams_and_snapshots_survive_a_restart(pipe: CursusPipe, kill: bool) -> None:
    for version in range(1, 1501):
        append(pipe, "k", version, f"e{version}")
    assert pipe.ask("SAVE_SNAPSHOT topic=es key=k version=1400 message=state  at 1400") == (
        f"OK version=1400 partition={codec.fnv1a_64(b'k') % 2}"
    )
    reopened = CursusPipe(pipe.world.reopened(kill=kill))
    assert append(reopened, "k", 7) == "ERROR: version_conflict current=1500 expected=7"
    assert reopened.ask("READ_SNAPSHOT topic=es key=k") == (
        'OK snapshot={"version":1400,"payload":"state  at 1400"}'
    )
    head, events = read(reopened, "key=k")
    assert head["snapshot"] == {"version": 1400, "payload": "state  at 1400"}
    assert [each.aggregate_version for each in events] == list(range(1401, 1501))
    head, events = read(reopened, "key=k from_version=1401")
    assert "snapshot" not in head
    assert (head["count"], events[0].payload) == (100, b"e1401")


def test_events_between_other_records_are_found(pipe: CursusPipe) -> None:
    partition = codec.fnv1a_64(b"k") % 2
    for version in range(1, 6):
        append(pipe, "k", version, f"e{version}")
        for _ in range(3):
            pipe.ask(f"PUBLISH topic=es producerId=p partition={partition} key=k message=noise")
    _, events = read(pipe, "key=k from_version=2")
    assert [each.payload for each in events] == [b"e2", b"e3", b"e4", b"e5"]
    assert read(pipe, "key=nobody")[1] == []


def test_deleted_events_are_left_out_and_versions_go_on(pipe: CursusPipe) -> None:
    for version in (1, 2, 3):
        append(pipe, "k", version)
    pipe.world.broker.partitions.find("es", codec.fnv1a_64(b"k") % 2).delete_below(2)
    assert [each.aggregate_version for each in read(pipe, "key=k")[1]] == [3]
    reopened = CursusPipe(pipe.world.reopened(kill=True))
    assert append(reopened, "k", 4).startswith("OK version=4 ")
    assert [each.aggregate_version for each in read(reopened, "key=k")[1]] == [3, 4]


def test_snapshots(pipe: CursusPipe) -> None:
    append(pipe, "k", 1)
    assert pipe.ask("READ_SNAPSHOT topic=es key=k") == "OK snapshot=null"
    assert pipe.ask("SAVE_SNAPSHOT topic=es key=k version=9 message=s") == (
        "ERROR: snapshot_version_exceeds_stream version=9 current=1"
    )
    pipe.ask("SAVE_SNAPSHOT topic=es key=k version=1 message=one")
    pipe.ask("SAVE_SNAPSHOT topic=es key=k version=1 message=two")
    assert pipe.ask("READ_SNAPSHOT topic=es key=k") == ('OK snapshot={"version":1,"payload":"two"}')
    refused = pipe.ask_raw(b"SAVE_SNAPSHOT topic=es key=k version=1 message=\xff\xfe")
    assert refused == b'ERROR: invalid_message reason="a snapshot is UTF-8 text"'


def test_snapshots_go_with_their_topic(pipe: CursusPipe) -> None:
    append(pipe, "k", 1)
    pipe.ask("SAVE_SNAPSHOT topic=es key=k version=1 message=old")
    pipe.ask("DELETE topic=es")
    pipe.ask("CREATE topic=es partitions=2 event_sourcing=true")
    assert pipe.ask("READ_SNAPSHOT topic=es key=k") == "OK snapshot=null"
    assert append(pipe, "k", 1).startswith("OK version=1 ")
    reopened = CursusPipe(pipe.world.reopened(kill=True))
    assert reopened.ask("READ_SNAPSHOT topic=es key=k") == "OK snapshot=null"
    assert not reopened.channel._session.service.state.snapshots


def test_a_log_that_cannot_be_read_is_an_answer(
    pipe: CursusPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(pipe, "k", 1)
    reopened = CursusPipe(pipe.world.reopened(kill=True))
    log = type(reopened.world.broker.partitions.find("es", 0).log)

    def damaged(*_: object) -> Iterator[object]:
        raise CorruptionError("segment", 7, "broken")
        yield

    with monkeypatch.context() as patched:
        patched.setattr(log, "iterate", damaged)
        for command in ("STREAM_VERSION topic=es key=k", "READ_STREAM topic=es key=k"):
            assert "segment at byte 7: broken" in reopened.ask(command)
    assert reopened.ask("STREAM_VERSION topic=es key=k") == "OK version=1"


def test_only_event_sourced_topics_have_streams(pipe: CursusPipe) -> None:
    refused = "event_sourcing_not_enabled topic=plain"
    assert pipe.ask("APPEND_STREAM topic=plain key=k version=1 message=m") == f"ERROR: {refused}"
    assert pipe.ask("READ_STREAM topic=plain key=k") == (
        f'{{"error":"{refused}","status":"ERROR"}}'
    )


def test_a_stream_larger_than_a_frame_is_refused_whole(pipe: CursusPipe) -> None:
    for version in range(1, 19):
        append(pipe, "k", version, "x" * 900_000)
    reply = pipe.ask("READ_STREAM topic=es key=k")
    assert reply == '{"error":"stream_too_large topic=es key=k","status":"ERROR"}'
    assert len(read(pipe, "key=k from_version=10")[1]) == 9


def test_a_topic_with_streams_does_not_grow(pipe: CursusPipe) -> None:
    assert pipe.ask("CREATE topic=es partitions=3") == (
        'ERROR: create_topic_failed topic=es reason="event streams would move to other partitions"'
    )
