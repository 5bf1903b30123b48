"""Goal: every text command answers as the original does, refusals in the original's words.

Method: commands go into a world's session one by one; replies are compared whole. What was captured
from the original is compared as captured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from dragoman.broker.groups.direct import DirectRules
from dragoman.broker.readers import Ends, Readers
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.config.settings import Settings
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.handlers.groups import share
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from dragoman.types import GroupId
from worlds.broker import World
from worlds.cursus import CursusPipe, batch, framed, payloads

POLICY = (
    "cleanup_policy=delete partitioner=hash_key auth_policy=open read_acl= write_acl= "
    "retention_hours=0 retention_bytes=0"
)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> CursusPipe:
    opened = CursusPipe(world)
    opened.ask("CREATE topic=orders partitions=2")
    return opened


# ---- topics


def test_create_grows_a_topic_and_never_shrinks_it(pipe: CursusPipe) -> None:
    assert pipe.ask("CREATE topic=orders partitions=2") == f"OK topic=orders partitions=2 {POLICY}"
    assert pipe.ask("create topic=orders partitions=3") == f"OK topic=orders partitions=3 {POLICY}"
    assert pipe.ask("CREATE topic=orders partitions=1") == (
        "ERROR: create_topic_failed topic=orders "
        "reason=\"cannot decrease partition count for topic 'orders': 3 -> 1\""
    )


@pytest.mark.parametrize("command", ["DESCRIBE topic=orders", "LIST_OFFSETS topic=orders"])
def test_a_topic_may_grow_while_its_partitions_are_looked_up(
    pipe: CursusPipe, world: World, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, other = world.broker.readers, CursusPipe(world)

    async def grow_first(partitions: Sequence[PartitionMetadata]) -> list[Ends]:
        found = await Readers.all_ends(readers, partitions)
        other.ask("CREATE topic=orders partitions=3")
        return found

    monkeypatch.setattr(readers, "all_ends", grow_first)
    reply = pipe.ask(command)
    assert '"status": "OK"' in reply or reply.startswith("OK topic=orders partitions=3 ")
    assert "P1" in reply or '"id": 1' in reply
    assert "P2" not in reply
    assert '"id": 2' not in reply


def test_create_without_a_number_makes_four_partitions(pipe: CursusPipe) -> None:
    assert pipe.ask("CREATE topic=t").startswith("OK topic=t partitions=4 ")
    assert pipe.ask("CREATE seed 3").startswith("OK topic=seed partitions=3 ")
    other = CursusPipe(World(Settings(cursus_num_partitions=7)))
    assert other.ask("CREATE topic=t").startswith("OK topic=t partitions=7 ")


def test_settings_of_a_topic_are_kept_and_shown(pipe: CursusPipe, world: World) -> None:
    shown = (
        "cleanup_policy=delete,compact partitioner=round_robin auth_policy=acl read_acl=a,b "
        "write_acl=c retention_hours=2 retention_bytes=1000"
    )
    assert pipe.ask(f"CREATE topic=t partitions=1 {shown}") == f"OK topic=t partitions=1 {shown}"
    assert world.broker.image.topics["t"].config["retention.ms"] == "7200000"
    reopened = CursusPipe(world.reopened(kill=True))
    leaders = "leaders=localhost:9000 epochs=0"
    assert reopened.ask("METADATA topic=t") == f"OK topic=t partitions=1 {leaders} {shown}"
    assert reopened.ask("CREATE topic=t partitions=1 auth_policy=open").split()[5] == (
        "auth_policy=open"
    )


def test_list_describe_offsets_and_delete(pipe: CursusPipe) -> None:
    pipe.publish(batch("a", "b", "c"))
    assert pipe.ask("LIST") == "OK count=1 topics=orders"
    assert pipe.ask("LIST topic=orders") == "OK count=1 topics=orders partitions=2"
    offsets = "P0:earliest=0:latest=3:leo=3:hwm=3,P1:earliest=0:latest=0:leo=0:hwm=0"
    assert (
        pipe.ask("LIST_OFFSETS topic=orders") == f"OK topic=orders partitions=2 offsets={offsets}"
    )
    one = offsets.split(",")[1]
    assert pipe.ask("LIST_OFFSETS topic=orders partition=1") == (
        f"OK topic=orders partitions=2 offsets={one}"
    )
    described = pipe.ask("DESCRIBE topic=orders")
    assert described.startswith('{\n  "status": "OK",\n  "topic": "orders",\n  "partitions": [\n')
    assert json.loads(described)["partitions"][0] == {
        "id": 0,
        "leader": "",
        "replicas": None,
        "isr": None,
        "leo": 3,
        "hwm": 3,
    }
    assert pipe.ask("DELETE topic=orders") == "OK topic=orders deleted=true"
    assert pipe.ask("DELETE topic=orders") == "ERROR: topic_not_found topic=orders"


def test_names_that_cursus_cannot_express_are_hidden(pipe: CursusPipe, world: World) -> None:
    world.create("%RETRY%g")
    assert pipe.ask("LIST") == "OK count=1 topics=orders"
    assert pipe.ask("METADATA topic=%RETRY%g") == "ERROR: topic_not_found topic=%RETRY%g"


def test_topics_made_at_the_same_time_are_there_for_all(world: World) -> None:
    pipes = [CursusPipe(world) for _ in range(4)]
    for pipe, count in zip(pipes, (2, 2, 3, 1), strict=True):
        pipe.feed(framed(f"CREATE topic=t partitions={count}"))
    world.settle()
    replies = [pipe.frames()[0].decode() for pipe in pipes]
    made, same, grown, refused = (each.split(" cleanup")[0] for each in replies)
    assert (made, same) == ("OK topic=t partitions=2", "OK topic=t partitions=2")
    assert grown == "OK topic=t partitions=3"
    assert refused.startswith('ERROR: create_topic_failed topic=t reason="cannot decrease')


# ---- what is refused


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("CREATE", 'unknown_command command="CREATE"'),
        (
            "CREATE partitions=2",
            'missing_topic expected="CREATE topic=<name> [partitions=<N>]"',
        ),
        (
            "CREATE topic=bad/name partitions=1",
            'invalid_topic_name topic="bad/name" '
            'reason="topic name \\"bad/name\\" contains unsupported characters"',
        ),
        (
            "CREATE topic=t partitions=0",
            'invalid_partitions reason="must be a positive integer"',
        ),
        (
            "CREATE topic=t partitions=-1",
            'invalid_partitions reason="must be a positive integer"',
        ),
        ("CREATE topic=t cleanup_policy=burn", 'invalid_cleanup_policy value="burn"'),
        ("METADATA topic=nope", "topic_not_found topic=nope"),
        ("DELETE topic=nope", "topic_not_found topic=nope"),
        ("PUBLISH producerId=p message=m", "missing_topic command=PUBLISH"),
        ("PUBLISH topic=orders producerId=p", "missing_message command=PUBLISH"),
        ("PUBLISH topic=orders message=m", "missing_producer_id command=PUBLISH"),
        ("PUBLISH topic=orders producerId=p acks=5 message=m", "invalid_acks value=5"),
        ("PUBLISH topic=nope producerId=p message=m", "topic_not_found topic=nope"),
        (
            "PUBLISH topic=orders producerId=p partition=9 message=m",
            "partition_not_found partition=9",
        ),
        ("CONSUME topic=orders partition=0 offset=0", "invalid_consume_syntax"),
        ("CONSUME topic=orders partition=x offset=0 member=m", "invalid_consume_syntax"),
        (
            "CONSUME topic=nope partition=0 offset=0 member=m",
            "command_failed reason=\"topic 'nope' does not exist\"",
        ),
        (
            "CONSUME topic=orders partition=9 offset=0 member=m",
            "command_failed reason=\"partition 9 out of range for topic 'orders' (0-1)\"",
        ),
        (
            "CONSUME topic=orders partition=0 offset=0 member=m isolation=bogus",
            "invalid_isolation isolation=bogus",
        ),
        ("STREAM topic=orders partition=0", "invalid_stream_syntax"),
        (
            "STREAM topic=nope partition=0 group=g",
            "command_failed reason=\"topic 'nope' does not exist\"",
        ),
        ("FIND_COORDINATOR", "missing_coordinator_key command=FIND_COORDINATOR"),
        ("FETCH_OFFSET topic=orders partition=0 group=G", "group_not_found group=G"),
        ("HEARTBEAT topic=orders group=G member=m generation=1", "group_not_found group=G"),
        ("GROUP_STATUS group=G", "group_status_failed reason=\"group 'G' not found\""),
        ("JOIN_GROUP topic=nope group=g member=m", "topic_not_found topic=nope"),
        ("AUTH principal=p", "invalid_auth command=AUTH"),
        ("AUTH principal=p token=t", "authentication_failed mechanism=PLAIN"),
        ("LIST_CLUSTER", "distribution_not_enabled"),
        ("CLUSTER_STATUS", "distribution_required command=CLUSTER_STATUS"),
        (
            "ELECT_LEADER topic=orders partition=0 broker=1",
            "distribution_required command=ELECT_LEADER",
        ),
        (
            "RAFT_APPLY internal_token=x",
            "internal_command_unauthorized command=RAFT_APPLY",
        ),
        ("STREAM_VERSION topic=orders key=k", "event_sourcing_not_enabled topic=orders"),
        (
            "END_TXN transactional_id=zz producerId=txn-1 epoch=0 result=commit",
            'transaction_not_found reason="transaction zz not found"',
        ),
    ],
)
def test_refusals(pipe: CursusPipe, command: str, reply: str) -> None:
    assert pipe.ask(command) == f"ERROR: {reply}"
    assert pipe.ask("LIST") == "OK count=1 topics=orders", "the connection lives on"


def test_a_refusal_does_not_repeat_all_of_a_long_command(pipe: CursusPipe) -> None:
    refused = pipe.ask("CREATE topic=/" + "x" * (200 << 10))
    assert refused.startswith('ERROR: invalid_topic_name topic="/xxx')
    assert len(refused) < 5000
    assert pipe.ask("LIST") == "OK count=1 topics=orders"


def test_internal_topics_are_not_written(pipe: CursusPipe) -> None:
    pipe.ask("COMMIT orders g 0 0")
    assert pipe.ask("LIST") == "OK count=2 topics=__consumer_offsets,orders"
    refused = "ERROR: internal_topic_write_forbidden topic=__consumer_offsets"
    publish = "PUBLISH topic=__consumer_offsets producerId=p message=m"
    assert pipe.ask(publish) == refused
    assert pipe.ask("DELETE topic=__consumer_offsets") == refused


def test_policies_of_topics_hold(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=silent partitions=1 auth_policy=deny_write")
    pipe.ask("CREATE topic=secret partitions=1 auth_policy=deny_read")
    pipe.ask("CREATE topic=ours partitions=1 auth_policy=acl read_acl=ANONYMOUS write_acl=bob")
    denied = "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation={} topic={}"
    consume = "CONSUME topic={} partition=0 offset=0 member=m"
    for topic in ("silent", "ours"):
        refused = pipe.ask(f"PUBLISH topic={topic} producerId=p message=m")
        assert refused == denied.format("write", topic)
        assert pipe.ask_raw(b"\0\0" + consume.format(topic).encode())[:2] == b"\xba\x7c"
    assert pipe.ask(consume.format("secret")) == denied.format("read", "secret")


class _Nobody(AllowAll):
    def is_allowed(self, caller: Caller, operation: Operation, kind: Resource, name: str) -> bool:
        return operation is Operation.CREATE


def test_the_authorizer_is_asked() -> None:
    pipe = CursusPipe(World(authorizer=_Nobody()))
    pipe.ask("CREATE topic=orders partitions=1")
    assert pipe.ask("PUBLISH topic=orders producerId=p message=m") == (
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=write topic=orders"
    )
    assert pipe.ask("DELETE topic=orders") == (
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=DELETE permission=admin"
    )
    assert pipe.ask("JOIN_GROUP topic=orders group=g member=m") == (
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=JOIN_GROUP permission=group"
    )
    assert pipe.ask("LIST") == "OK count=0 topics="


# ---- negotiation


def test_protocol_info_and_negotiation(pipe: CursusPipe) -> None:
    features = (
        "event_sourcing_v1,idempotent_producer_v1,offset_resume_v1,stream_control_v1,"
        "structured_errors_v1,topic_compaction_v1"
    )
    classes = "authorization,availability,conflict,fencing,internal,not_found,routing,validation"
    assert pipe.ask("PROTOCOL_INFO") == (
        "OK protocol=cursus min_version=1 max_version=1 default_version=1 "
        f"features={features} error_classes={classes}"
    )
    assert pipe.ask("NEGOTIATE version=2") == (
        "ERROR: UNSUPPORTED_PROTOCOL_VERSION class=validation retryable=false "
        "requested=2 min=1 max=1"
    )
    assert pipe.ask("NEGOTIATE") == (
        "ERROR: missing_protocol_version class=validation retryable=false command=NEGOTIATE"
    )
    assert pipe.ask("NEGOTIATE version=1 features=foo require_features=true") == (
        "ERROR: UNSUPPORTED_FEATURE class=validation retryable=false features=foo"
    )
    assert pipe.ask("NEGOTIATE version=1 features=structured_errors_v1,foo") == (
        "OK protocol_version=1 enabled=structured_errors_v1 unsupported=foo"
    )
    assert pipe.ask("FETCH_OFFSET topic=orders partition=0 group=nogroup") == (
        "ERROR: group_not_found class=not_found retryable=false group=nogroup"
    )
    assert pipe.ask("NEGOTIATE version=1 features=*") == (
        f"OK protocol_version=1 enabled={features} unsupported="
    )
    assert pipe.ask("HELP").startswith("OK commands=CREATE,DELETE,LIST,")


@pytest.mark.parametrize("features", ["", "structured_errors_v1", "*"])
def test_errors_of_the_negotiation_say_their_class_once(pipe: CursusPipe, features: str) -> None:
    """Also on a connection that has negotiated structured errors already."""
    assert pipe.ask(f"NEGOTIATE version=1 features={features}").startswith("OK ")
    assert pipe.ask("NEGOTIATE version=2") == (
        "ERROR: UNSUPPORTED_PROTOCOL_VERSION class=validation retryable=false "
        "requested=2 min=1 max=1"
    )
    assert pipe.ask("NEGOTIATE version=1 features=foo require_features=TRUE") == (
        "ERROR: UNSUPPORTED_FEATURE class=validation retryable=false features=foo"
    )
    assert pipe.ask("NEGOTIATE features=foo") == (
        "ERROR: missing_protocol_version class=validation retryable=false command=NEGOTIATE"
    )


@pytest.mark.parametrize("true", ["true", "True", "TRUE"])
def test_flags_of_create_are_compared_without_case(pipe: CursusPipe, true: str) -> None:
    created = pipe.ask(f"CREATE topic=es partitions=1 event_sourcing={true} idempotent={true}")
    assert created.startswith("OK topic=es partitions=1 ")
    assert pipe.ask("APPEND_STREAM topic=es key=k version=1 message=m") == (
        "OK version=1 offset=0 partition=0"
    )
    gap = batch("late", topic="es", first=5)
    assert pipe.publish(gap).error == "sequence_gap producer=p1 got=5"
    assert pipe.ask("CREATE topic=plain partitions=1 event_sourcing=False").startswith("OK ")
    assert pipe.ask("CREATE topic=bad event_sourcing=maybe") == (
        'ERROR: invalid_event_sourcing value="maybe"'
    )


def test_the_state_of_a_group_is_said_in_the_words_of_the_original(pipe: CursusPipe) -> None:
    pipe.ask("REGISTER_GROUP topic=orders group=g")
    status = json.loads(pipe.ask("GROUP_STATUS group=g"))
    assert (status["state"], status["member_count"], status["members"]) == ("Dead", 0, [])
    joined = pipe.ask("JOIN_GROUP topic=orders group=g member=c").split()[2]
    assert json.loads(pipe.ask("GROUP_STATUS group=g"))["state"] == "Stable"
    pipe.ask(f"LEAVE_GROUP topic=orders group=g {joined}")
    assert json.loads(pipe.ask("GROUP_STATUS group=g"))["state"] == "Dead"


# ---- publishing and consuming


def test_publish_is_answered_with_the_offset(pipe: CursusPipe) -> None:
    publish = "PUBLISH topic=orders producerId=c1 partition=1 message=hello = world "
    ack = '{"status":"OK","last_offset":0,"producer_epoch":0,"producer_id":"c1",'
    assert pipe.ask(publish) == ack + '"seq_start":0,"seq_end":0}'
    assert pipe.ask(publish.replace(" message", " acks=0 message")) == "OK"
    read = pipe.ask_batch("CONSUME topic=orders partition=1 offset=0 member=m")
    assert payloads(read) == ["hello = world", "hello = world"]


def test_acks_of_all_ask_for_enough_replicas(pipe: CursusPipe, world: World) -> None:
    world.create("few", 1, {"min.insync.replicas": "2"})
    refused = "ERROR: cluster_not_available reason="
    for acks, is_taken in (("0", True), ("1", True), ("-1", False), ("all", False)):
        published = pipe.ask(f"PUBLISH topic=few producerId=p acks={acks} message=m")
        assert published.startswith(refused) is not is_taken
        sent = codec.encode_batch(batch("m", topic="few", acks=acks))
        assert pipe.ask_raw(sent).decode().startswith(refused) is not is_taken


def test_messages_that_share_all_but_the_payload(pipe: CursusPipe) -> None:
    head = b"\0\0PUBLISH topic=orders producerId=p partition=0 key=k message="
    plain = b"PUBLISH topic=orders producerId=p partition=0 key=k message="
    sent = [head + b" a\0 \n", head + b"b", plain + b"c\0 ", plain + b"d", head + b"message=e"]
    for each in sent:
        assert pipe.ask_raw(each).startswith(b'{"status":"OK"')
    assert pipe.ask_raw(head + b"\0 ") == b"ERROR: missing_message command=PUBLISH"
    read = pipe.ask_batch("CONSUME topic=orders partition=0 offset=0 member=m")
    assert payloads(read) == ["a", "b", "c\0", "d", "message=e"]
    assert {each.key for each in read.messages} == {b"k"}
    pipe.ask("CREATE topic=orders auth_policy=deny_write")
    assert pipe.ask_raw(head + b"f").startswith(b"ERROR: NOT_AUTHORIZED_FOR_TOPIC")
    pipe.ask("DELETE topic=orders")
    assert pipe.ask_raw(head + b"g") == b"ERROR: topic_not_found topic=orders"


def test_keys_are_routed_by_the_64_bit_hash_and_others_in_turn(pipe: CursusPipe) -> None:
    for _ in range(3):
        pipe.ask("PUBLISH topic=orders producerId=p key=k1 message=keyed")
    for number in range(4):
        pipe.ask(f"PUBLISH topic=orders producerId=p message=m{number}")
    found = [
        payloads(pipe.ask_batch(f"CONSUME topic=orders partition={each} offset=0 member=m"))
        for each in (0, 1)
    ]
    assert found == [["m0", "m2"], ["keyed", "keyed", "keyed", "m1", "m3"]]


@pytest.mark.parametrize(
    ("change", "reply"),
    [
        ({"topic": "nope"}, "topic_not_found topic=nope"),
        ({"partition": 9}, "partition_not_found partition=9"),
        ({"partition": -1}, "partition_not_found partition=-1"),
        ({"acks": "7"}, "invalid_acks value=7"),
        ({"messages": []}, 'broker_error reason="empty batch messages"'),
    ],
)
def test_batches_that_are_refused(pipe: CursusPipe, change: dict[str, object], reply: str) -> None:
    import msgspec

    sent = msgspec.structs.replace(batch("a"), **change)
    assert pipe.ask_raw(codec.encode_batch(sent)).decode() == f"ERROR: {reply}"


def test_a_batch_larger_than_the_log_takes_goes_in_as_several(pipe: CursusPipe) -> None:
    sent = batch(*["x" * 200_000] * 12)
    assert pipe.publish(sent).last_offset == 11
    read = pipe.ask_batch("CONSUME topic=orders partition=0 offset=0 member=m")
    assert {len(each.payload) for each in read.messages} == {200_000}


def test_a_message_that_is_too_large_keeps_those_before_it(pipe: CursusPipe) -> None:
    ack = pipe.publish(batch("a" * 1000, "b" * 1_200_000))
    assert (ack.status, ack.last_offset, ack.seq_end) == ("PARTIAL", 0, 1)
    assert "max.message.bytes" in ack.error


def test_order_holds_between_text_and_batches_of_one_turn(pipe: CursusPipe) -> None:
    one = framed("PUBLISH topic=orders producerId=p partition=0 message=1")
    two = framed(codec.encode_batch(batch("2")))
    three = framed("PUBLISH topic=orders producerId=p partition=0 message=3")
    pipe.feed(one + two + three)
    pipe.world.settle()
    assert [codec.decode_ack(each.decode()).last_offset for each in pipe.frames()] == [0, 1, 2]
    read = pipe.ask_batch("CONSUME topic=orders partition=0 offset=0 member=m")
    assert payloads(read) == ["1", "2", "3"]


def test_commands_in_one_piece_are_taken_one_after_the_other(pipe: CursusPipe) -> None:
    pipe.feed(
        framed("CREATE topic=new partitions=1")
        + framed("PUBLISH topic=new producerId=p message=m")
        + framed("CONSUME topic=new partition=0 offset=0 member=m")
    )
    pipe.world.settle()
    created, published, read = pipe.frames()
    assert created.startswith(b"OK topic=new")
    assert published.startswith(b'{"status":"OK"')
    assert read[:2] == b"\xba\x7c"
    assert b"m" in read


def test_consume_goes_on_where_the_connection_left_off(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch("a", "b", "c", "d"))
    consume = "CONSUME topic=orders partition=0 offset={} member=m batch=2"
    assert payloads(pipe.ask_batch(consume.format(0))) == ["a", "b"]
    assert payloads(pipe.ask_batch(consume.format(99))) == ["c", "d"]
    fresh = CursusPipe(world)
    assert payloads(fresh.ask_batch("CONSUME orders 0 1")) == ["b", "c", "d"]
    assert payloads(pipe.ask_batch(consume.format(0))) == []


def test_the_committed_offset_wins_over_the_one_asked_for(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch("a", "b", "c"))
    assert pipe.ask("COMMIT orders g 0 2") == "OK"
    consume = "CONSUME topic=orders partition=0 offset=0 member=m group=g"
    assert payloads(CursusPipe(world).ask_batch(consume)) == ["c"]


def test_a_new_topic_of_the_same_name_is_read_from_its_start(pipe: CursusPipe) -> None:
    consume = "CONSUME topic=orders partition=0 offset=0 member=m"
    pipe.publish(batch("a", "b", "c"))
    assert payloads(pipe.ask_batch(consume)) == ["a", "b", "c"]
    pipe.ask("DELETE topic=orders")
    pipe.ask("CREATE topic=orders partitions=1")
    pipe.publish(batch("new"))
    assert payloads(pipe.ask_batch(consume)) == ["new"]


def test_an_offset_that_was_deleted_is_reset_when_asked(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch("a", "b", "c"))
    world.broker.partitions.find("orders", 0).delete_below(2)
    consume = "CONSUME topic=orders partition=0 offset=1 member=m"
    assert pipe.ask(consume) == "ERROR: OFFSET_OUT_OF_RANGE requested=1 earliest=2 latest=3"
    assert payloads(pipe.ask_batch(consume + " autoOffsetReset=latest")) == []
    assert payloads(pipe.ask_batch(consume + " autoOffsetReset=earliest")) == ["c"]


@pytest.mark.parametrize("reset", ["", " autoOffsetReset=earliest", " autoOffsetReset=latest"])
def test_a_read_past_the_end_is_empty_and_waits(pipe: CursusPipe, world: World, reset: str) -> None:
    pipe.publish(batch("a"))
    consume = f"CONSUME topic=orders partition=0 offset=2 member=m{reset}"
    assert payloads(pipe.ask_batch(consume)) == []
    pipe.feed(framed(consume + " wait_ms=1000"))
    other = CursusPipe(world)
    other.publish(batch("b", first=2))
    assert pipe.frames() == [], "offset 1 is not the one that was asked for"
    other.publish(batch("c", first=3))
    (found,) = pipe.frames()
    assert payloads(codec.decode_batch(found)) == ["c"]


def test_a_commit_past_the_end_is_waited_for(pipe: CursusPipe, world: World) -> None:
    """The topic was made again under its name, say: the group continues where it was."""
    joined = pipe.ask("JOIN_GROUP topic=orders group=g member=m").split()[2]
    commit = f"COMMIT_OFFSET topic=orders partition=0 group=g offset=1 generation=1 {joined}"
    assert pipe.ask(commit) == "OK"
    consume = "CONSUME topic=orders partition=0 offset=0 member=m group=g"
    assert payloads(pipe.ask_batch(consume)) == []
    pipe.publish(batch("a", "b"))
    assert payloads(CursusPipe(world).ask_batch(consume)) == ["b"]


def test_consume_waits_for_data_and_no_longer_than_asked(pipe: CursusPipe, world: World) -> None:
    reader = CursusPipe(world)
    reader.feed(framed("CONSUME topic=orders partition=0 offset=0 member=m wait_ms=1000"))
    world.advance(0.5)
    assert reader.frames() == []
    pipe.publish(batch("a"))
    (found,) = reader.frames()
    assert b"a" in found
    reader.feed(framed("CONSUME topic=orders partition=0 offset=0 member=m wait_ms=1000"))
    world.advance(1.0)
    (found,) = reader.frames()
    assert b"orders" in found
    reader.feed(framed("CONSUME topic=orders partition=0 offset=0 member=m wait_ms=1000"))
    reader.lose()
    world.advance(2.0)


def test_a_reply_is_no_larger_than_there_is_memory_for(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch(*("x" * 1000 for _ in range(9))))
    world.budget.take(world.budget.room - 8000)
    few = payloads(pipe.ask_batch("CONSUME topic=orders partition=0 offset=0 member=m"))
    assert 0 < len(few) < 9
    world.budget.take(world.budget.room)
    # One record comes whatever is left.
    assert len(payloads(pipe.ask_batch("CONSUME topic=orders partition=0 offset=0 member=m"))) == 1


def test_patterns_read_all_topics_that_match(pipe: CursusPipe) -> None:
    for name in ("log-b", "log-a", "other"):
        pipe.ask(f"CREATE topic={name} partitions=1")
        pipe.ask(f"PUBLISH topic={name} producerId=p message={name}")
    read = pipe.ask_batch("CONSUME topic=log-* partition=0 offset=0 member=m")
    assert (read.topic, payloads(read)) == ("log-*", ["log-a", "log-b"])
    read = pipe.ask_batch("CONSUME topic=othe? partition=0 offset=0 member=m")
    assert payloads(read) == ["other"]
    for nothing in ("[lo]*", "*" + "a*" * 120, "*" * 3000):
        reply = pipe.ask(f"CONSUME topic={nothing} partition=0 offset=0 member=m")
        assert reply.startswith("ERROR: command_failed")


def test_what_the_layout_has_no_room_for_is_refused_and_stays(
    pipe: CursusPipe, world: World
) -> None:
    from dragoman.log.batch import Record

    replica = world.broker.partitions.find("orders", 0)
    record = Record(key=b"k" * 70_000, value=b"v", timestamp=1)
    world.broker.accumulator.add(replica, record, lambda _offset, _error: None)
    world.settle()
    consume = "CONSUME topic=orders partition=0 offset=0 member=m"
    for _ in range(2):
        assert pipe.ask(consume).startswith("ERROR: command_failed reason=")


# ---- groups


def join(pipe: CursusPipe, member: str, topic: str = "orders", group: str = "g1") -> str:
    reply = pipe.ask(f"JOIN_GROUP topic={topic} group={group} member={member}")
    assert reply.startswith("OK generation="), reply
    return reply.split()[2].removeprefix("member=")


def test_members_are_assigned_ranges_in_order_of_their_ids(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=five partitions=5")
    first = join(pipe, "b", "five")
    assert first[:2] == "b-"
    assert len(first) == 6
    second = join(pipe, "a", "five")
    sync = f"SYNC_GROUP topic=five group=g1 member={first} generation=2"
    assert pipe.ask(sync) == f"OK generation=2 member={first} assignments=[3 4]"
    sync = f"SYNC_GROUP five g1 {second} 2"
    assert pipe.ask(sync) == f"OK generation=2 member={second} assignments=[0 1 2]"
    assert pipe.ask("LIST_GROUPS") == "OK count=1 groups=g1"


def test_a_member_that_comes_back_is_the_same_member(pipe: CursusPipe) -> None:
    first = join(pipe, "c1")
    second = join(pipe, "c2")
    resume = f"JOIN_GROUP topic=orders group=g1 member={first}"
    assert pipe.ask(resume) == f"OK generation=2 member={first} assignments=[0]"
    assert pipe.ask(resume + " generation=1") == (
        f"OK generation=2 member={first} assignments=[0] resumed=true"
    )
    assert pipe.ask("JOIN_GROUP topic=orders group=g1 member=gone-0001 generation=1") == (
        "ERROR: member_not_found member=gone-0001 group=g1"
    )
    assert pipe.ask(f"LEAVE_GROUP topic=orders group=g1 member={second} generation=2") == (
        f"OK group=g1 member={second} left=true"
    )


def test_heartbeats_tell_of_a_new_generation(pipe: CursusPipe) -> None:
    first = join(pipe, "c1")
    beat = f"HEARTBEAT topic=orders group=g1 member={first} generation="
    assert pipe.ask(beat + "1") == f"OK member={first} generation=1"
    join(pipe, "c2")
    assert pipe.ask(beat + "1") == (
        f"ERROR: GEN_MISMATCH current=2 requested=1 group=g1 member={first}"
    )
    assert pipe.ask(f"HEARTBEAT orders g1 c1 {first} 1") == (
        f"ERROR: REBALANCE_REQUIRED generation=2 group=g1 member={first}"
    )
    assert pipe.ask(f"HEARTBEAT orders g1 c1 {first} 2") == f"OK member={first} generation=2"
    assert pipe.ask("HEARTBEAT topic=orders group=g1 member=zz generation=2") == (
        "ERROR: member_not_found member=zz group=g1"
    )
    assert pipe.ask(f"HEARTBEAT topic=orders group=g1 member={first}") == (
        "ERROR: missing_generation command=HEARTBEAT"
    )


def test_leaving_needs_no_generation_and_no_suffix_in_the_first_form(pipe: CursusPipe) -> None:
    first, second = join(pipe, "c1"), join(pipe, "c2")
    assert pipe.ask(f"LEAVE_GROUP topic=orders group=g1 member={first}").endswith("left=true")
    assert pipe.ask("LEAVE_GROUP orders g1 c2") == f"OK group=g1 member={second} left=true"
    assert pipe.ask("LEAVE_GROUP orders g1 c2") == "ERROR: member_not_found member=c2 group=g1"


def test_a_silent_member_is_removed_after_ten_seconds(pipe: CursusPipe, world: World) -> None:
    silent, alive = join(pipe, "a"), join(pipe, "b")
    for _ in range(4):
        world.advance(4.9)
        pipe.ask(f"HEARTBEAT topic=orders group=g1 member={alive} generation=2")
    sync = f"SYNC_GROUP topic=orders group=g1 member={alive} generation=3"
    assert pipe.ask(sync) == f"OK generation=3 member={alive} assignments=[0 1]"
    beat = f"HEARTBEAT topic=orders group=g1 member={silent} generation=3"
    assert pipe.ask(beat) == f"ERROR: member_not_found member={silent} group=g1"


def test_times_of_members_are_settings() -> None:
    times = Settings(cursus_session_timeout_ms=1000, cursus_session_check_interval_ms=100)
    world = World(times)
    pipe = CursusPipe(world)
    pipe.ask("CREATE topic=orders partitions=1")
    member = join(pipe, "a")
    beat = f"HEARTBEAT topic=orders group=g1 member={member} generation=1"
    world.advance(0.9)
    assert pipe.ask(beat).startswith("OK ")
    world.advance(1.2)
    assert pipe.ask(beat).startswith("ERROR: member_not_found")


def test_a_group_reads_one_topic(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=other partitions=1")
    assert pipe.ask("REGISTER_GROUP topic=orders group=rg") == (
        "OK group=rg topic=orders registered=true"
    )
    assert pipe.ask("SUBSCRIBE orders rg") == "OK group=rg topic=orders registered=true"
    assert pipe.ask("JOIN_GROUP topic=other group=rg member=m") == (
        "ERROR: topic_not_assigned_to_group expected=orders actual=other"
    )
    assert pipe.ask("FETCH_OFFSET topic=orders partition=0 group=rg") == "OK offset=0"


def test_a_registered_group_and_its_topic_outlive_a_restart(pipe: CursusPipe, world: World) -> None:
    pipe.ask("CREATE topic=other partitions=1")
    pipe.ask("REGISTER_GROUP topic=orders group=rg")
    join(pipe, "c1")
    pipe.ask("COMMIT orders simple 0 0")
    world.advance(3600)
    reopened = CursusPipe(world.reopened(kill=True))
    assert reopened.ask("LIST_GROUPS") == "OK count=3 groups=g1,rg,simple"
    status = json.loads(reopened.ask("GROUP_STATUS group=rg"))
    assert (status["topic_name"], status["partition_count"]) == ("orders", 2)
    for group in ("g1", "rg", "simple"):
        assert reopened.ask(f"JOIN_GROUP topic=other group={group} member=m") == (
            "ERROR: topic_not_assigned_to_group expected=orders actual=other"
        )
    joined = reopened.ask("JOIN_GROUP topic=orders group=g1 member=c1")
    assert joined.split()[1] == "generation=3", "joined and silent before: generations continue"


def test_a_registered_group_goes_when_offsets_would() -> None:
    world = World(Settings(offsets_retention_minutes=60))
    pipe = CursusPipe(world)
    pipe.ask("CREATE topic=orders partitions=1")
    pipe.ask("REGISTER_GROUP topic=orders group=rg")
    world.advance(45 * 60)
    assert CursusPipe(world).ask("LIST_GROUPS") == "OK count=1 groups=rg"
    world.advance(30 * 60)
    assert CursusPipe(world).ask("LIST_GROUPS") == "OK count=0 groups="
    assert CursusPipe(world.reopened()).ask("LIST_GROUPS") == "OK count=0 groups="


def test_a_name_that_is_taken_gets_more_digits(world: World, pipe: CursusPipe) -> None:
    class Always:
        def randrange(self, _end: int) -> int:
            return 7

    world.broker.random = Always()  # type: ignore[assignment]
    joined = [join(pipe, "c") for _ in range(3)]
    assert joined == ["c-0007", "c-00007", "c-000007"]
    assert pipe.ask("LEAVE_GROUP orders g1 c").startswith("ERROR: member_not_found"), "which one?"


def test_groups_whose_names_a_list_cannot_hold_are_left_out(pipe: CursusPipe) -> None:
    claim = pipe.world.broker.coordination.groups.direct
    count = pipe.world.broker.coordination.groups.partition_count
    for name in ("a b", "a,b", "plain"):
        claim(GroupId(name), "minibroker", DirectRules(share, 1, 1, count))
    assert pipe.ask("LIST_GROUPS") == "OK count=1 groups=plain"


def test_a_group_may_read_a_pattern(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=orders-eu partitions=3")
    assert pipe.ask("JOIN_GROUP topic=orders* group=g1 member=m").endswith("assignments=[0 1 2]")


def test_a_pattern_takes_in_topics_that_are_made_later(pipe: CursusPipe) -> None:
    member = pipe.ask("JOIN_GROUP topic=orders* group=g1 member=m").split()[2]
    pipe.ask("CREATE topic=orders-small partitions=1")
    pipe.ask("CREATE topic=unlike partitions=9")
    who = f"topic=orders* group=g1 {member}"
    assert pipe.ask(f"HEARTBEAT {who} generation=1").startswith("OK "), "nothing more to share"
    pipe.ask("CREATE topic=orders-eu partitions=3")
    assert pipe.ask(f"HEARTBEAT {who} generation=1").startswith("ERROR: GEN_MISMATCH current=2 ")
    assert pipe.ask(f"SYNC_GROUP {who} generation=2").endswith("assignments=[0 1 2]")


def test_more_partitions_are_shared_out_at_once(pipe: CursusPipe) -> None:
    member = join(pipe, "c1")
    pipe.ask("CREATE topic=orders partitions=4")
    sync = f"SYNC_GROUP topic=orders group=g1 member={member} generation=2"
    assert pipe.ask(sync).endswith("assignments=[0 1 2 3]")


def test_the_coordinator_is_this_node(pipe: CursusPipe) -> None:
    found = "OK coordinator_id=standalone coordinator_type={} host=localhost port=9000"
    assert pipe.ask("FIND_COORDINATOR group=g") == found.format("group")
    assert pipe.ask("FIND_COORDINATOR transactional_id=t") == found.format("transaction")


# ---- offsets


def test_commits_are_the_owners_and_never_go_back(pipe: CursusPipe, world: World) -> None:
    first, second = join(pipe, "c1"), join(pipe, "c2")
    commit = "COMMIT_OFFSET topic=orders group=g1 partition={} offset={} generation={} member={}"
    assert pipe.ask(commit.format(0, 1, 2, first)) == "OK"
    assert pipe.ask(commit.format(0, 0, 2, first)) == (
        'ERROR: offset_regression reason="offset regression group=g1 topic=orders partition=0 '
        'current=1 got=0"'
    )
    assert pipe.ask(commit.format(1, 1, 2, first)) == (
        f"ERROR: NOT_OWNER partition=1 member={first} group=g1 generation=2"
    )
    assert pipe.ask(commit.format(1, 1, 1, second)) == (
        f"ERROR: GEN_MISMATCH current=2 requested=1 group=g1 member={second}"
    )
    assert pipe.ask(commit.format(0, 1, 2, "zz")) == "ERROR: member_not_found member=zz group=g1"
    assert pipe.ask("FETCH_OFFSET topic=orders partition=0 group=g1") == "OK offset=1"
    reopened = CursusPipe(world.reopened(kill=True))
    assert reopened.ask("FETCH_OFFSET topic=orders partition=0 group=g1") == "OK offset=1"
    assert reopened.ask(commit.format(0, 2, 2, first)) == (
        f"ERROR: member_not_found member={first} group=g1"
    )


def test_commits_that_are_under_way_count(pipe: CursusPipe, world: World) -> None:
    other = CursusPipe(world)
    pipe.ask("COMMIT orders g 0 0")
    pipe.feed(framed("COMMIT orders g 0 5"))
    other.feed(framed("COMMIT orders g 0 3"))
    world.settle()
    assert pipe.frames() == [b"OK"]
    assert other.frames()[0].startswith(b"ERROR: offset_regression")
    assert pipe.ask("FETCH_OFFSET topic=orders partition=0 group=g") == "OK offset=5"


@pytest.mark.parametrize(
    ("offsets", "reply"),
    [
        ("P0:2,P1:1", "OK batched=2"),
        ("0:2", 'ERROR: invalid_partition entry="0:2"'),
        ("P0", 'ERROR: invalid_batch_commit_entry entry="P0"'),
        ("P0:x", 'ERROR: invalid_offset entry="P0:x"'),
        ("P0:1,P0:2", "ERROR: duplicate_partition partition=0 group=g1 topic=orders"),
        (",", "ERROR: no_valid_offsets"),
    ],
)
def test_batch_commit(pipe: CursusPipe, offsets: str, reply: str) -> None:
    member = join(pipe, "c1")
    command = f"BATCH_COMMIT topic=orders group=g1 member={member} generation=1 {offsets}"
    assert pipe.ask(command) == reply
    committed = pipe.ask("FETCH_OFFSET topic=orders partition=0 group=g1")
    assert committed == ("OK offset=2" if reply.startswith("OK") else "OK offset=0")


def test_batch_commit_in_the_first_form(pipe: CursusPipe) -> None:
    member = join(pipe, "c1")
    assert pipe.ask(f"BATCH_COMMIT orders g1 {member} 1 P0:2") == "OK batched=1"


def test_an_offset_beyond_63_bits_is_refused(pipe: CursusPipe) -> None:
    offset = (1 << 63) + 1
    assert pipe.ask(f"COMMIT orders g 0 {offset}") == f"ERROR: invalid_offset value={offset}"
