"""Goal: each of Cursus's commands needs exactly the rights in the table below.

Method: as for Kafka's requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.handlers.service import REQUESTS
from dragoman.protocols.cursus.messages import Batch
from dragoman.security.access import CLUSTER_NAME, Resource
from worlds.broker import World
from worlds.cursus import CursusPipe, framed, messages
from worlds.rights import Guard, Need, Right, need, others
from worlds.stacks import no_stack_left

RESOURCES: Final = (
    (Resource.TOPIC, "t"),
    (Resource.TOPIC, "e"),
    (Resource.TOPIC, "fresh"),
    (Resource.TOPIC, "bystander"),
    (Resource.GROUP, "g"),
    (Resource.GROUP, "bystander"),
    (Resource.TRANSACTIONAL_ID, "x"),
    (Resource.CLUSTER, CLUSTER_NAME),
)


class Stage:
    def __init__(self) -> None:
        self.world = World()
        self.pipe = CursusPipe(self.world)
        self.ask("CREATE topic=t partitions=1")
        self.ask("CREATE topic=bystander partitions=1")
        self.ask("CREATE topic=e partitions=1 event_sourcing=true")
        self.ask("PUBLISH topic=t producerId=p message=m")
        self.ask("REGISTER_GROUP topic=t group=g")
        self.ask("INIT_PRODUCER_ID transactional_id=x")
        self.guard = Guard(self.world)

    def ask(self, command: str) -> str:
        self.pipe.feed(framed(command))
        self.world.settle()
        frames = [each.decode("utf-8", "replace") for each in self.pipe.frames()]
        if command.startswith("STREAM"):
            # The connection only pushes from now on.
            self.pipe.lose()
            self.pipe = CursusPipe(self.world)
        return " ".join(frames)

    def without_fresh(self) -> None:
        if "fresh" in self.world.broker.image.topics:
            self.ask("DELETE topic=fresh")

    def with_fresh(self) -> None:
        if "fresh" not in self.world.broker.image.topics:
            self.ask("CREATE topic=fresh partitions=1")


def _nothing(_: Stage) -> None:
    return None


Sees = Callable[[str], bool]


def is_refusal(reply: str) -> bool:
    return "NOT_AUTHORIZED_FOR_" in reply


def lacks(text: str) -> Sees:
    return lambda reply: is_refusal(reply) or text not in reply


class Row(NamedTuple):
    command: str
    needs: str = ""
    sees: Sees = is_refusal
    prepare: Callable[[Stage], None] = _nothing

    @property
    def all_needs(self) -> list[Need]:
        return [need(each) for each in self.needs.split(",") if each]


_TXN = "transactional_id=x producerId=txn-0000000000000001 epoch=0"
_MEMBER = "member=m generation=1"
ROWS: Final[dict[str, list[Row]]] = {
    "CREATE": [
        Row(
            "CREATE topic=fresh partitions=1",
            "create topic fresh|create cluster",
            prepare=Stage.without_fresh,
        ),
        Row("CREATE topic=t", "create topic t|create cluster,describe topic t"),
    ],
    "DELETE": [Row("DELETE topic=fresh", "delete topic fresh", prepare=Stage.with_fresh)],
    "LIST": [
        Row("LIST topic=t", "describe topic t"),
        Row("LIST", "describe topic t", lambda reply: ",t" not in reply),
    ],
    "METADATA": [Row("METADATA topic=t", "describe topic t")],
    "DESCRIBE": [Row("DESCRIBE topic=t", "describe topic t")],
    "LIST_OFFSETS": [Row("LIST_OFFSETS topic=t", "describe topic t")],
    "PUBLISH": [Row("PUBLISH topic=t producerId=p message=m", "write topic t")],
    "CONSUME": [
        Row(
            "CONSUME topic=t partition=0 offset=0 member=m group=g",
            "read topic t,read group g",
        ),
        # A pattern matches only what may be read.
        Row(
            "CONSUME topic=?????nder partition=0 offset=0 member=m group=g",
            "read group g,read topic bystander",
            lambda reply: is_refusal(reply) or "does not exist" in reply,
        ),
    ],
    "STREAM": [Row("STREAM topic=t partition=0 group=g", "read topic t,read group g")],
    "SUBSCRIBE": [Row("SUBSCRIBE topic=t group=g", "read group g,read topic t")],
    "REGISTER_GROUP": [Row("REGISTER_GROUP topic=t group=g", "read group g,read topic t")],
    "FIND_COORDINATOR": [
        Row("FIND_COORDINATOR group=g", "describe group g"),
        Row("FIND_COORDINATOR transactional_id=x", "describe transactional_id x"),
    ],
    "JOIN_GROUP": [Row(f"JOIN_GROUP topic=t group=g {_MEMBER}", "read group g,read topic t")],
    "SYNC_GROUP": [Row(f"SYNC_GROUP topic=t group=g {_MEMBER}", "read group g,read topic t")],
    "LEAVE_GROUP": [Row(f"LEAVE_GROUP topic=t group=g {_MEMBER}", "read group g,read topic t")],
    "HEARTBEAT": [Row(f"HEARTBEAT topic=t group=g {_MEMBER}", "read group g,read topic t")],
    "GROUP_STATUS": [Row("GROUP_STATUS group=g", "describe group g")],
    "LIST_GROUPS": [Row("LIST_GROUPS", "describe group g", lambda reply: "=g" not in reply)],
    "FETCH_OFFSET": [
        Row("FETCH_OFFSET topic=t group=g partition=0", "read group g,describe topic t")
    ],
    "COMMIT": [Row("COMMIT topic=t group=g partition=0 offset=0", "read group g,read topic t")],
    "COMMIT_OFFSET": [
        Row(
            f"COMMIT_OFFSET topic=t group=g partition=0 offset=0 {_MEMBER}",
            "read group g,read topic t",
        )
    ],
    "BATCH_COMMIT": [
        Row(f"BATCH_COMMIT topic=t group=g {_MEMBER} P0:0", "read group g,read topic t")
    ],
    "INIT_PRODUCER_ID": [Row("INIT_PRODUCER_ID transactional_id=x", "write transactional_id x")],
    "BEGIN_TXN": [Row(f"BEGIN_TXN {_TXN}", "write transactional_id x")],
    "TXN_PUBLISH": [
        Row(
            f"TXN_PUBLISH {_TXN} topic=t seqNum=1 message=m",
            "write transactional_id x,write topic t",
        )
    ],
    "SEND_OFFSETS_TO_TXN": [
        Row(
            f"SEND_OFFSETS_TO_TXN {_TXN} topic=t group=g {_MEMBER} P0:1",
            "write transactional_id x,read group g,read topic t",
        )
    ],
    "END_TXN": [Row(f"END_TXN {_TXN}", "write transactional_id x")],
    "TXN_STATUS": [Row(f"TXN_STATUS {_TXN}", "write transactional_id x")],
    "APPEND_STREAM": [Row("APPEND_STREAM topic=e key=k version=77 message=m", "write topic e")],
    "STREAM_VERSION": [Row("STREAM_VERSION topic=e key=k", "read topic e")],
    "READ_STREAM": [Row("READ_STREAM topic=e key=k", "read topic e")],
    "SAVE_SNAPSHOT": [Row("SAVE_SNAPSHOT topic=e key=k version=0 message=m", "write topic e")],
    "READ_SNAPSHOT": [Row("READ_SNAPSHOT topic=e key=k", "read topic e")],
    "HELP": [Row("HELP")],
    "PROTOCOL_INFO": [Row("PROTOCOL_INFO")],
    "NEGOTIATE": [Row("NEGOTIATE version=1")],
    "AUTH": [Row("AUTH principal=p token=t")],
    "LIST_CLUSTER": [Row("LIST_CLUSTER", "describe cluster")],
    "CLUSTER_STATUS": [Row("CLUSTER_STATUS", "describe cluster")],
    "ELECT_LEADER": [Row("ELECT_LEADER topic=t partition=0 broker=1", "alter cluster")],
}


def test_every_command_has_a_row() -> None:
    assert sorted(ROWS) == sorted(REQUESTS)


CASES: Final = [(word, index) for word, rows in ROWS.items() for index in range(len(rows))]


@pytest.mark.parametrize(("word", "index"), CASES)
def test_command_needs_exactly_these_rights(word: str, index: int) -> None:
    stage, case = Stage(), ROWS[word][index]

    def is_refused(*denied: Right) -> bool:
        case.prepare(stage)
        with stage.guard.without(denied):
            reply = stage.ask(case.command)
            if "NOT_AUTHORIZED_FOR_OPERATION" in reply:
                assert f"command={word} " in reply
            return case.sees(reply)

    for each in case.all_needs:
        assert is_refused(*each), each
        with no_stack_left():
            is_refused(*each)
        if len(each) > 1:
            assert not any(map(is_refused, each)), "one of these rights suffices"
    refused = [each for each in others(RESOURCES, case.all_needs) if is_refused(each)]
    assert refused == []


def test_batch_needs_the_right_to_write() -> None:
    stage = Stage()
    batch = codec.encode_batch(
        Batch(topic="t", partition=0, messages=messages("m"), acks="1", seq_start=1, seq_end=1)
    )

    def is_refused(*denied: Right) -> bool:
        with stage.guard.without(denied):
            return is_refusal(stage.pipe.ask_raw(batch).decode())

    wanted = need("write topic t")
    assert is_refused(*wanted)
    assert [each for each in others(RESOURCES, [wanted]) if is_refused(each)] == []


def test_changes_of_a_topic_need_more_than_the_right_to_create() -> None:
    stage = Stage()
    grow, configure = "CREATE topic=t partitions=2", "CREATE topic=t retention_hours=1"
    for command, words in ((grow, "alter topic t"), (configure, "alter_configs topic t")):
        with stage.guard.without(need(words)):
            assert stage.ask(command) == (
                "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=CREATE permission=admin"
            )
    assert len(stage.world.broker.image.topics["t"].partitions) == 1
    assert stage.ask(grow).startswith("OK")
    assert stage.ask(configure).startswith("OK")


@pytest.mark.parametrize("words", ["read topic t", "read group g"])
def test_waiting_consume_ends_with_the_right(words: str) -> None:
    stage = Stage()
    stage.pipe.feed(framed("CONSUME topic=t partition=0 offset=1 member=m group=g wait_ms=5000"))
    stage.world.settle()
    assert stage.pipe.frames() == []
    with stage.guard.without(need("read topic bystander")):
        assert stage.pipe.frames() == []
    with stage.guard.without(need(words)):
        (reply,) = stage.pipe.frames()
    assert is_refusal(reply.decode())
    assert len(stage.world.broker.grants) == 0
    # The connection serves the next command.
    assert stage.ask("LIST_OFFSETS topic=t").startswith("OK")


@pytest.mark.parametrize("words", ["read topic t", "read group g"])
def test_stream_ends_with_the_right(words: str) -> None:
    stage = Stage()
    stage.pipe.feed(framed("STREAM topic=t partition=0 group=g offset=1"))
    stage.world.settle()
    stage.pipe.frames()
    with stage.guard.without(need(words)):
        (last,) = stage.pipe.frames()
    assert b"type=CLOSE reason=error offset=1" in last
    assert stage.pipe.is_closed
    assert len(stage.world.broker.grants) == 0


def test_patterns_of_groups_reveal_no_topic() -> None:
    """A client finds no names of topics, letter by letter, that it may not read."""
    stage = Stage()
    stage.with_fresh()
    command = "JOIN_GROUP topic={} group=probe member=m"
    unknown = "ERROR: topic_not_found topic={}"
    with stage.guard.without(need("read topic fresh")):
        for pattern in ("nothing*", "fre*", "f?esh"):
            assert stage.ask(command.format(pattern)) == unknown.format(pattern)
        assert stage.ask(command.format("bystand*")).startswith("OK")


def test_group_of_another_topic_does_not_reveal_it() -> None:
    stage = Stage()
    command = "JOIN_GROUP topic=bystander group=g member=m"
    assert stage.ask(command) == ("ERROR: topic_not_assigned_to_group expected=t actual=bystander")
    with stage.guard.without(need("describe topic t")):
        assert stage.ask(command) == "ERROR: topic_not_assigned_to_group actual=bystander"


def test_frame_that_is_no_request_leaves_no_stack() -> None:
    stage = Stage()
    for _ in range(2):
        with no_stack_left():
            assert "decode_failed" in stage.ask("NONSENSE x=1")
