"""Goal: fetch sessions say only what is new, and are refused in Kafka's form when out of step.

Method: whole requests over the codec, against a broker in virtual time.
"""

from __future__ import annotations

import pytest

from dragoman.config.settings import Settings
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers import fetch_sessions
from dragoman.protocols.kafka.handlers.session import KafkaSession
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.authorizer import AllowAll
from worlds.broker import Wire, World, fetch_request, only, values_in


def opened(world: World, wire: Wire, topic: str = "t") -> int:
    """The id of a new session on partition 0 of a topic."""
    response = wire.ask(fetch_request(topic, session_epoch=0), 12, m.FetchResponse)
    assert response.error_code == 0
    return response.session_id


def incremental(session_id: int, epoch: int, **changes: object) -> m.FetchRequest:
    return m.FetchRequest(
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        **changes,  # type: ignore[arg-type]
    )


def test_session_reads_its_partitions_without_naming_them_again(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    session_id = opened(world, wire)
    assert session_id > 0
    world.write(replica, b"a")
    response = wire.ask(incremental(session_id, 1), 12, m.FetchResponse)
    assert response.session_id == session_id
    assert values_in(only(response).records) == [b"a"]


def test_reply_names_only_what_is_new(world: World, wire: Wire) -> None:
    first, second = world.create("t", 2)
    world.write(first, b"a")
    request = fetch_request("t", 1, session_epoch=0)
    other = m.FetchRequestPartition(partition=1, partition_max_bytes=1000)
    topic = m.FetchRequestTopic("t", partitions=[*request.topics[0].partitions, other])
    full = m.FetchRequest(min_bytes=1, session_epoch=0, topics=[topic])
    response = wire.ask(full, 12, m.FetchResponse)
    assert len(response.responses[0].partitions) == 2
    session_id = response.session_id
    assert wire.ask(incremental(session_id, 1), 12, m.FetchResponse).responses == []
    world.write(second, b"b")
    response = wire.ask(incremental(session_id, 2), 12, m.FetchResponse)
    assert [each.partition_index for each in response.responses[0].partitions] == [1]


def test_moved_marks_are_news_without_data(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"a")
    world.write(replica, b"b")
    response = wire.ask(fetch_request("t", 2, session_epoch=0), 12, m.FetchResponse)
    session_id = response.session_id
    replica.log.move_log_start(1)
    part = only(wire.ask(incremental(session_id, 1), 12, m.FetchResponse))
    assert part.log_start_offset == 1


def test_changes_replace_and_forget_partitions(world: World, wire: Wire) -> None:
    first, second = world.create("t", 2)
    session_id = opened(world, wire)
    world.write(first, b"a")
    world.write(second, b"b")
    added = fetch_request("t", partition=1).topics
    gone = [m.FetchRequestForgottenTopic(topic="t", partitions=[0])]
    request = incremental(session_id, 1, topics=added, forgotten_topics_data=gone)
    response = wire.ask(request, 12, m.FetchResponse)
    assert values_in(only(response).records) == [b"b"]


def test_error_is_repeated_until_it_is_gone(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    request = fetch_request("t", 1, session_epoch=0)
    session_id = wire.ask(request, 12, m.FetchResponse).session_id
    for epoch in (1, 2):
        part = only(wire.ask(incremental(session_id, epoch), 12, m.FetchResponse))
        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    world.write(replica, b"a")
    part = only(wire.ask(incremental(session_id, 3), 12, m.FetchResponse))
    assert part.error_code == 0


@pytest.mark.parametrize("epoch", [2, 7])
def test_epoch_out_of_step_is_refused(world: World, wire: Wire, epoch: int) -> None:
    world.create("t")
    session_id = opened(world, wire)
    response = wire.ask(incremental(session_id, epoch), 12, m.FetchResponse)
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (response.session_id, response.responses) == (0, [])


def test_closed_session_is_gone(world: World, wire: Wire) -> None:
    world.create("t")
    session_id = opened(world, wire)
    wire.ask(fetch_request("t", session_id=session_id, session_epoch=-1), 12, m.FetchResponse)
    response = wire.ask(incremental(session_id, 1), 12, m.FetchResponse)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_of_names_refuses_requests_by_id(world: World, wire: Wire) -> None:
    world.create("t")
    session_id = opened(world, wire)
    response = wire.ask(incremental(session_id, 1), 13, m.FetchResponse)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_deleted_topic_is_reported_in_the_session(world: World, wire: Wire) -> None:
    world.create("t")
    session_id = opened(world, wire)
    start(world.broker.topics.delete("t")).then(lambda _: None)
    world.settle()
    part = only(wire.ask(incremental(session_id, 1), 12, m.FetchResponse))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_made_anew_under_the_same_name_is_read_in_the_session(
    world: World, wire: Wire
) -> None:
    world.write(world.create("t")[0], b"old")
    session_id = opened(world, wire)
    start(world.broker.topics.delete("t")).then(lambda _: None)
    world.settle()
    world.write(world.create("t")[0], b"new")
    part = only(wire.ask(incremental(session_id, 1), 12, m.FetchResponse))
    assert values_in(part.records) == [b"new"]


def test_cache_is_bounded_and_idle_sessions_make_room() -> None:
    world = World(Settings(max_incremental_fetch_session_cache_slots=2))
    wire = Wire(world)
    world.create("t")
    assert opened(world, wire) > 0
    assert opened(world, wire) > 0
    assert opened(world, wire) == 0
    world.advance(121)
    assert opened(world, wire) > 0
    assert len(world.service.fetch_sessions) == 2


def test_no_slots_means_no_sessions() -> None:
    world = World(Settings(max_incremental_fetch_session_cache_slots=0))
    world.create("t")
    assert opened(world, Wire(world)) == 0


# ---- how much sessions may hold


def full(count: int, topic: str = "t") -> m.FetchRequest:
    partitions = [
        m.FetchRequestPartition(partition=at, partition_max_bytes=1000) for at in range(count)
    ]
    topics = [m.FetchRequestTopic(topic, partitions=partitions)]
    return m.FetchRequest(min_bytes=1, session_epoch=0, topics=topics)


def test_sessions_are_bounded_by_their_partitions_together(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSIONS_PARTITIONS_MAX", 25)
    world.create("t", 10)
    opened = [wire.ask(full(10), 12, m.FetchResponse).session_id for _ in range(4)]
    assert [bool(each) for each in opened] == [True, True, False, False]
    # A client that closes its session makes room, and so does one that is silent for long.
    closing = m.FetchRequest(session_id=opened[0], session_epoch=-1)
    wire.ask(closing, 12, m.FetchResponse)
    assert wire.ask(full(10), 12, m.FetchResponse).session_id
    assert not wire.ask(full(10), 12, m.FetchResponse).session_id
    world.advance(121)
    assert wire.ask(full(10), 12, m.FetchResponse).session_id


def test_session_that_grows_beyond_the_room_left_ends(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSIONS_PARTITIONS_MAX", 15)
    world.create("t", 20)
    session_id = wire.ask(full(10), 12, m.FetchResponse).session_id
    grown = incremental(session_id, 1, topics=full(16).topics)
    response = wire.ask(grown, 12, m.FetchResponse)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert wire.ask(full(15), 12, m.FetchResponse).session_id


def test_new_offsets_of_partitions_in_a_session_take_no_more_room(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSIONS_PARTITIONS_MAX", 15)
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSION_PARTITIONS_MAX", 12)
    world.create("t", 20)
    session_id = wire.ask(full(10), 12, m.FetchResponse).session_id
    for epoch in range(1, 4):
        again = incremental(session_id, epoch, topics=full(10).topics)
        assert wire.ask(again, 12, m.FetchResponse).error_code == 0


class Reader(AllowAll):
    """Lets one principal read, and everyone do everything else."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return operation is not Operation.READ or caller.name == self.name


def test_session_does_not_read_for_another_principal_what_its_own_may() -> None:
    world = World(authorizer=Reader("ANONYMOUS"))
    (replica,) = world.create("t")
    session_id = opened(world, Wire(world))
    world.write(replica, b"a")
    other = Wire(world)
    session = other.channel._session
    assert isinstance(session, KafkaSession)
    session.caller = Caller(Principal("User", "other"))
    part = only(other.ask(incremental(session_id, 1), 12, m.FetchResponse))
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not part.records
