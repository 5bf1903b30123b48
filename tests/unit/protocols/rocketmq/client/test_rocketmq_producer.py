"""Goal: producers send what they are given where it belongs, again when it may be lost.

Method: a scripted name server and broker on a real socket.
"""

from __future__ import annotations

import asyncio
import random
import zlib

import pytest

from dragoman.client_core.errors import ClientClosedError, RequestTimeoutError, UnreachableError
from dragoman.errors import ConfigError, EncodeError
from dragoman.protocols.rocketmq.bodies import HeartbeatData, MessageQueue, decode
from dragoman.protocols.rocketmq.client.client import RocketmqClient
from dragoman.protocols.rocketmq.client.errors import (
    MessageIllegalError,
    RocketmqError,
    TopicNotFoundError,
)
from dragoman.protocols.rocketmq.client.messages import (
    Message,
    ReceivedMessage,
    SendStatus,
    received,
)
from dragoman.protocols.rocketmq.client.producer import TransactionState
from dragoman.protocols.rocketmq.client.remoting import ClientSettings
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Property, Request, Response, Serialization
from dragoman.protocols.rocketmq.messages import Message as StoredMessage
from dragoman.protocols.rocketmq.messages import decode_batch, decode_properties, encode_message
from dragoman.protocols.rocketmq.signatures import SIGNATURE, signature
from protocols.scripted_rocketmq import CLOSE, ScriptedRocketmq, ok, refused

QUICK = ClientSettings(backoff_first_s=0.001, backoff_max_s=0.001, request_timeout_s=20.0)


def client_of(server: ScriptedRocketmq, settings: ClientSettings = QUICK) -> RocketmqClient:
    return RocketmqClient(server.address, settings=settings, random=random.Random(5))


async def test_a_message_is_stored_with_what_it_has() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        async with client.producer("g") as producer:
            message = Message(
                topic="T",
                body=b"hello",
                tags="TagA",
                keys=["k1", "k2"],
                properties={"a": "1"},
                flag=9,
                delay_level=3,
            )
            sent = await producer.send(message)
        (stored,) = server.stored["T", 0]
        assert (stored.body, stored.flag, stored.sys_flag) == (b"hello", 9, 0)
        assert stored.properties == {
            "a": "1",
            Property.TAGS: "TagA",
            Property.KEYS: "k1 k2",
            Property.DELAY: "3",
            Property.WAIT: "true",
            Property.UNIQUE_KEY: sent.unique_id,
        }
        assert sent.status is SendStatus.OK
        assert sent.message_id == stored.message_id
        assert sent.queue == MessageQueue(topic="T", broker_name="b", queue_id=0)
        assert sent.queue_offset == 0
        assert len(sent.unique_id) == 32
        assert sent.unique_id.startswith("7F000001")


async def test_brokers_hear_of_the_producer_and_of_its_end() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        async with client.producer("g") as producer:
            await producer.send(Message(topic="T"))
            await producer.send(Message(topic="T"))
            (beat,) = server.asked(Request.HEART_BEAT)
            heard = decode(beat.body, HeartbeatData)
            assert heard.client_id == client.client_id
            assert heard.client_id.startswith("127.0.0.1@")
            assert [each.group_name for each in heard.producer_data_set] == ["g"]
            with pytest.raises(ConfigError):
                await client.producer("g").start()
        (left,) = server.asked(Request.UNREGISTER_CLIENT)
        assert left.fields == {"clientID": client.client_id, "producerGroup": "g"}
        with pytest.raises(ClientClosedError):
            await producer.send(Message(topic="T"))


async def test_nothing_joins_a_client_that_is_closed() -> None:
    async with ScriptedRocketmq() as server:
        client = client_of(server)
        late = (client.producer("g"), client.pull_consumer("g"))
        await client.close()
        for member in late:
            # The refused member has left no trace: the next try is refused for the same reason.
            for _ in range(2):
                with pytest.raises(ClientClosedError, match="the client is closed"):
                    await member.start()
        assert server.asked(Request.HEART_BEAT) == []


async def test_queues_take_turns_and_keys_stay_together() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 4
        producer = client.producer("g")
        for _ in range(8):
            await producer.send(Message(topic="T"))
        assert [len(server.stored["T", number]) for number in range(4)] == [2, 2, 2, 2]
        keyed = {
            (await producer.send(Message(topic="T", sharding_key="k"))).queue for _ in range(5)
        }
        assert len(keyed) == 1
        picked = await producer.send(Message(topic="T"), select=lambda queues: queues[3])
        assert picked.queue.queue_id == 3
        named = MessageQueue(topic="T", broker_name="b", queue_id=2)
        assert (await producer.send(Message(topic="T"), queue=named)).queue == named


async def test_a_topic_that_does_not_exist_is_sent_where_the_template_is() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        with pytest.raises(RocketmqError) as raised:
            await client.producer("other").send(Message(topic="new"))
        assert raised.value.number == Response.TOPIC_NOT_EXIST
        server.topics["TBW102"] = 8
        producer = client.producer("g", queue_count=2)
        assert len(await producer.queues("new")) == 2
        await producer.send(Message(topic="new"))
        (asked,) = server.asked(Request.SEND_MESSAGE_V2)
        assert (asked.fields["b"], asked.fields["c"], asked.fields["d"]) == ("new", "TBW102", "2")
        # Now it has a route of its own.
        server.topics["new"] = 3
        assert len(await producer.queues("new")) == 3


async def test_where_a_topic_is_created_is_no_route_for_consumers() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["TBW102"] = 8
        assert len(await client.producer("g").queues("new")) == 4
        with pytest.raises(TopicNotFoundError):
            await client.routes.route("new")


async def test_large_bodies_are_compressed_and_too_large_ones_refused() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        producer = client.producer("g")
        await producer.send(Message(topic="T", body=b"x" * 4096))
        await producer.send(Message(topic="T", body=b"x" * 4097))
        small, large = server.stored["T", 0]
        assert (small.sys_flag, small.body) == (0, b"x" * 4096)
        assert (large.sys_flag, zlib.decompress(large.body)) == (1, b"x" * 4097)
        with pytest.raises(EncodeError):
            await client.producer("h", compress_over_bytes=None).send(
                Message(topic="T", body=bytes((4 << 20) + 1))
            )


async def test_batches_are_one_request() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        server.answers[Request.SEND_BATCH_MESSAGE] = lambda _: ok(
            msgId="A,B", queueId=0, queueOffset=7
        )
        producer = client.producer("g")
        batch = [Message(topic="T", body=b"a", tags="x"), Message(topic="T", body=b"bc")]
        sent = await producer.send_batch(batch)
        assert (sent.queue_offset, sent.message_id) == (7, "A,B")
        (asked,) = server.asked(Request.SEND_BATCH_MESSAGE)
        assert asked.fields["m"] == "true"
        parts = decode_batch(asked.body)
        assert [each.body for each in parts] == [b"a", b"bc"]
        properties = [decode_properties(each.properties.decode()) for each in parts]
        assert properties[0][Property.TAGS] == "x"
        assert sent.unique_id == ",".join(each[Property.UNIQUE_KEY] for each in properties)
        with pytest.raises(EncodeError):
            await producer.send_batch([Message(topic="T"), Message(topic="U")])
        with pytest.raises(EncodeError):
            await producer.send_batch([Message(topic="T", delay_level=1)])


async def test_one_way_messages_are_not_answered() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        await client.producer("g").send_one_way(Message(topic="T", body=b"x"))
        (asked,) = await server.until_asked(Request.SEND_MESSAGE_V2)
        assert asked.is_one_way
        assert [each.body for each in server.stored["T", 0]] == [b"x"]


async def test_another_broker_is_tried_with_the_same_unique_id() -> None:
    async with ScriptedRocketmq("a") as bad, ScriptedRocketmq("b") as good:
        bad.topics["T"] = 1
        bad.brokers["b"] = good.address
        bad.answers[Request.SEND_MESSAGE_V2] = lambda _: refused(Response.SYSTEM_BUSY)
        async with client_of(bad) as client:
            producer = client.producer("g")
            for _ in range(4):
                assert (await producer.send(Message(topic="T"))).queue.broker_name == "b"
        tried = [each.fields["i"] for each in bad.asked(Request.SEND_MESSAGE_V2)]
        taken = [each.fields["i"] for each in good.asked(Request.SEND_MESSAGE_V2)]
        assert tried
        assert set(tried) <= set(taken)


async def test_a_lost_connection_is_made_again() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        append = server.answers[Request.SEND_MESSAGE_V2]
        cut = [True]
        server.answers[Request.SEND_MESSAGE_V2] = lambda asked: (
            CLOSE if cut and cut.pop() else append(asked)
        )
        assert (await client.producer("g").send(Message(topic="T"))).queue_offset == 0


async def test_what_no_broker_would_take_is_not_repeated() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        server.answers[Request.SEND_MESSAGE_V2] = lambda _: refused(Response.MESSAGE_ILLEGAL, "bad")
        with pytest.raises(MessageIllegalError, match="bad"):
            await client.producer("g").send(Message(topic="T"))
        assert len(server.asked(Request.SEND_MESSAGE_V2)) == 1
        server.answers[Request.SEND_MESSAGE_V2] = lambda _: refused(Response.SYSTEM_ERROR)
        with pytest.raises(RocketmqError):
            await client.producer("h", retries=4).send(Message(topic="T"))
        assert len(server.asked(Request.SEND_MESSAGE_V2)) == 6


async def test_a_time_out_at_the_broker_counts_as_stored() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1

        def late(_: Command) -> Command:
            answer = ok(msgId="A", queueId=0, queueOffset=1)
            answer.code = Response.FLUSH_DISK_TIMEOUT
            return answer

        server.answers[Request.SEND_MESSAGE_V2] = late
        sent = await client.producer("g").send(Message(topic="T"))
        assert sent.status is SendStatus.FLUSH_DISK_TIMEOUT


async def test_requests_are_signed_when_there_is_a_key() -> None:
    settings = ClientSettings(access_key="me", secret_key="secret", security_token="st")
    async with ScriptedRocketmq() as server, client_of(server, settings) as client:
        server.topics["T"] = 1
        await client.producer("g").send(Message(topic="T", body=b"x"))
        assert server.seen
        for each in server.seen:
            assert each.fields["AccessKey"] == "me"
            assert each.fields["SecurityToken"] == "st"
            assert each.fields[SIGNATURE] == signature(b"secret", each.fields, each.body)


async def test_headers_may_be_binary() -> None:
    settings = ClientSettings(serialization=Serialization.BINARY)
    async with ScriptedRocketmq() as server, client_of(server, settings) as client:
        server.topics["T"] = 1
        await client.producer("g").send(Message(topic="T", body=b"x"))
        assert {each.serialization for each in server.seen} == {Serialization.BINARY}


async def test_the_vip_channel_is_two_ports_below() -> None:
    settings = ClientSettings(vip_channel=True)
    async with ScriptedRocketmq() as server, client_of(server, settings) as client:
        server.topics["T"] = 1
        server.brokers["b"] = f"127.0.0.1:{server.port + 2}"
        await client.producer("g").send(Message(topic="T"))
        assert len(server.stored["T", 0]) == 1


async def test_the_next_name_server_is_asked_when_one_is_gone() -> None:
    async with ScriptedRocketmq() as gone:
        pass
    async with ScriptedRocketmq() as server:
        server.topics["T"] = 1
        async with RocketmqClient(f"{gone.address};{server.address}", settings=QUICK) as client:
            assert len((await client.routes.route("T")).write_queues) == 1
    settings = ClientSettings(operation_timeout_s=0.001)
    async with RocketmqClient(gone.address, settings=settings) as client:
        with pytest.raises(UnreachableError):
            await client.routes.route("T")


# ---- transactions


@pytest.mark.parametrize("state", list(TransactionState))
async def test_a_transaction_ends_as_it_is_decided(state: TransactionState) -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        async with client.transaction_producer("g", lambda _: state) as producer:

            async def local(message: Message) -> TransactionState:
                assert message.body == b"x"
                return state

            sent, got = await producer.send_in_transaction(Message(topic="T", body=b"x"), local)
            assert got is state
            (half,) = server.stored["T", 0]
            assert half.sys_flag == 4
            assert half.properties[Property.TRANSACTION_PREPARED] == "true"
            assert half.properties[Property.PRODUCER_GROUP] == "g"
            (end,) = await server.until_asked(Request.END_TRANSACTION)
            assert end.is_one_way
            assert end.fields["commitOrRollback"] == str(int(state))
            assert end.fields["commitLogOffset"] == str(half.physical_offset)
            assert end.fields["tranStateTableOffset"] == "0"
            assert end.fields["msgId"] == sent.unique_id
            assert end.fields["fromTransactionCheck"] == "false"


async def test_a_local_transaction_that_raises_is_left_to_the_check() -> None:
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT

    def local(_: Message) -> TransactionState:
        raise RuntimeError("no database")

    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        async with client.transaction_producer("g", check) as producer:
            _, state = await producer.send_in_transaction(Message(topic="T", body=b"x"), local)
            assert state is TransactionState.UNKNOWN
            await server.until_asked(Request.END_TRANSACTION)
            half = server.stored["T", 0][0]
            fields = {"tranStateTableOffset": "5", "commitLogOffset": "77", "msgId": "U"}
            other = StoredMessage(topic="T", properties={Property.PRODUCER_GROUP: "other"})
            for each in (other, half):
                await server.ask_client(
                    Request.CHECK_TRANSACTION_STATE, fields, encode_message(each), is_one_way=True
                )
            _, end = await server.until_asked(Request.END_TRANSACTION, 2)
        assert [each.body for each in asked] == [b"x"]
        assert end.fields["fromTransactionCheck"] == "true"
        assert end.fields["commitOrRollback"] == "8"
        assert (end.fields["tranStateTableOffset"], end.fields["commitLogOffset"]) == ("5", "77")


async def test_a_delayed_message_has_no_place_in_a_transaction() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        producer = client.transaction_producer("g", lambda _: TransactionState.COMMIT)
        with pytest.raises(EncodeError):
            await producer.send_in_transaction(
                Message(topic="T", delay_level=1), lambda _: TransactionState.COMMIT
            )


# ---- requests and replies


async def test_a_request_waits_for_its_reply() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics |= {"T": 1, "c_REPLY_TOPIC": 1}
        producer = client.producer("g")
        asking = asyncio.create_task(producer.request(Message(topic="T", body=b"?")))
        await server.until_asked(Request.SEND_MESSAGE_V2)
        (asked,) = server.stored["T", 0]
        assert asked.properties[Property.REPLY_TO_CLIENT] == client.client_id
        assert asked.properties["TTL"] == "5000"
        asked.properties[Property.CLUSTER] = "c"
        (question,) = received(encode_message(asked))
        server.answers[Request.SEND_REPLY_MESSAGE_V2] = lambda _: ok(
            msgId="A", queueId=0, queueOffset=0
        )
        await producer.reply(question, b"!")
        (reply,) = server.asked(Request.SEND_REPLY_MESSAGE_V2)
        assert reply.fields["b"] == "c_REPLY_TOPIC"
        properties = decode_properties(reply.fields["i"])
        assert properties["MSG_TYPE"] == "reply"
        assert properties[Property.REPLY_TO_CLIENT] == client.client_id
        fields = {"topic": "c_REPLY_TOPIC", "properties": reply.fields["i"]}
        for code in (Response.SUCCESS, Response.SYSTEM_ERROR):
            answer = await server.ask_client(326, fields, bytes(reply.body))
            assert answer is not None
            assert answer.code == code
        assert (await asking).body == b"!"
        with pytest.raises(EncodeError):
            await producer.reply(ReceivedMessage(topic="T"), b"!")
        with pytest.raises(RequestTimeoutError):
            await producer.request(Message(topic="T"), timeout_s=0.001)


async def test_a_named_queue_is_found_again_after_a_failure() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
        producer = client.producer("g")
        stored = server.answers[Request.SEND_MESSAGE_V2]

        def busy_once(_: Command) -> object:
            server.answers[Request.SEND_MESSAGE_V2] = stored
            return refused(Response.SYSTEM_BUSY)

        await producer.send(Message(topic="T"), queue=queue)
        server.answers[Request.SEND_MESSAGE_V2] = busy_once
        await producer.send(Message(topic="T"), queue=queue)
        # Brokers that no route names are forgotten with the next look.
        await client.routes.refresh()
        await producer.send(Message(topic="T"), queue=queue)
        assert len(server.stored["T", 0]) == 3


async def test_the_time_for_a_message_includes_finding_its_queue() -> None:
    async with RocketmqClient("127.0.0.1:1", settings=QUICK) as client:
        with pytest.raises(RequestTimeoutError, match="no route of topic T in time"):
            await client.producer("g").send(Message(topic="T"), timeout_s=0.05)


def test_secrets_are_not_shown() -> None:
    assert "geheim" not in repr(ClientSettings(access_key="a", secret_key="geheim"))
