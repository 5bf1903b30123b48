"""The other way round: Dragoman's RocketMQ client and administration against Apache RocketMQ."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import brokers
import rocketmq_operations
from client import SECONDS_MAX, Client, Operations, wait_until
from rocketmq_client import QUEUES, Delivery, Message
from rocketmq_operations import collect

from dragoman.client import rocketmq as own
from dragoman.protocols.rocketmq import bodies

set_up = brokers.set_up_original
BROKER, CLUSTER = "broker-a", "DefaultCluster"
_POLL_S = 0.2
_BODIES = [f"m{number}" for number in range(8)]


class Pushed:
    def __init__(self, servers: str, group: str, topic: str, options: Mapping[str, Any]) -> None:
        self._refused = options.get("refused", 0)
        self._attempts: Counter[str] = Counter()
        self._came: queue.Queue[Delivery] = queue.Queue()
        self.client = own.BlockingRocketmqClient(servers)
        language, expression = options.get("language", "TAG"), options.get("expression", "*")
        wanted = own.Filter(expression, own.SQL92) if language == "SQL92" else expression
        is_broadcast = options.get("model") == "broadcasting"
        self._consumer = self.client.push_consumer(
            group,
            {topic: wanted},
            self._received,
            start=own.ConsumeFrom.FIRST_OFFSET,
            model=own.MessageModel.BROADCASTING if is_broadcast else own.MessageModel.CLUSTERING,
            is_orderly=options.get("orderly", False),
            reconsume_times_max=options.get("attempts_max", 16),
        )
        self._consumer.start()

    def _received(self, message: own.ReceivedMessage) -> own.Later | None:
        delivery = _delivery(message)
        self._came.put(delivery)
        self._attempts[delivery.body] += 1
        is_refused = delivery.body.startswith("refuse")
        return (
            own.Later() if is_refused and self._attempts[delivery.body] <= self._refused else None
        )

    def poll(self) -> list[Delivery]:
        came = []
        with suppress(queue.Empty):
            came.append(self._came.get(timeout=_POLL_S))
            while True:
                came.append(self._came.get_nowait())
        return came

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self.client.close()


class Pulled:
    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._client = own.BlockingRocketmqClient(servers)
        self._consumer = self._client.pull_consumer(group)
        self._queues = self._consumer.queues(topic)

    def poll(self) -> list[Delivery]:
        pulled = [self._consumer.pull(each, wait_s=_POLL_S) for each in self._queues]
        return [_delivery(message) for each in pulled for message in each.messages]

    def close(self) -> None:
        self._client.close()


def _delivery(message: own.ReceivedMessage) -> Delivery:
    return Delivery(
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.body.decode(),
        message.tags,
        " ".join(message.keys),
        message.properties,
    )


class OwnClient(Client):
    name = "dragoman.client.rocketmq to RocketMQ"
    version = re.search(r"<rocketmq.version>(.+)<", (brokers.SOURCES / "pom.xml").read_text())[1]  # type: ignore[index]
    listeners = brokers.OriginalBroker.listeners
    has = frozenset({"sync", "properties", "queue", "attempts max"})

    @classmethod
    def open_broker(cls, settings: Mapping[str, str]) -> brokers.OriginalBroker:
        return brokers.OriginalBroker()

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._client = own.BlockingRocketmqClient(servers)
        self._producer = self._client.producer("interop")
        self.admin = own.BlockingRocketmqAdmin(servers)
        wait_until(self._is_ready, "the broker has registered at the name server")

    def _is_ready(self) -> bool:
        time.sleep(_POLL_S)
        return BROKER in self.admin.examine_broker_cluster_info().broker_addr_table

    def close(self) -> None:
        self._client.close()
        self.admin.close()

    def needs(self, *things: str) -> None:
        """It has everything."""

    # ---- what operations ask for

    def send(self, topic: str, messages: Sequence[Message], way: str = "sync") -> list[list[int]]:
        made = [_message(topic, each) for each in messages]
        if way == "batch":
            self._producer.send_batch(made)
            return []
        if way == "one-way":
            for each in made:
                self._producer.send_one_way(each)
            return []
        placed = []
        for each, (*_, chosen) in zip(made, messages, strict=True):
            place = self._producer.queues(topic)[chosen] if chosen >= 0 else None
            sent = self._producer.send(each, queue=place)
            placed.append([sent.queue.queue_id, sent.queue_offset])
        return placed

    def consumer(self, group: str, topic: str, **options: object) -> Pushed | Pulled:
        if options.get("style") == "pull":
            return Pulled(self.servers, group, topic)
        return Pushed(self.servers, group, topic, options)

    def transact(self, topic: str, message: Message, decision: str, by_question: bool) -> None:
        state = own.TransactionState
        chosen = state.COMMIT if decision == "commit" else state.ROLLBACK
        asked = threading.Event()

        def check(_: own.ReceivedMessage) -> own.TransactionState:
            asked.set()
            return chosen

        with own.BlockingRocketmqClient(self.servers) as client:
            transactor = client.transaction_producer(f"transacts-{topic}", check)
            first = state.UNKNOWN if by_question else chosen
            transactor.send_in_transaction(_message(topic, message), lambda _: first)
            assert not by_question or asked.wait(SECONDS_MAX), "the broker did not ask"

    def make_topic(self, topic: str, *_: str) -> None:
        config = own.TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        self.admin.create_topic(config, cluster=CLUSTER)
        wait_until(lambda: self.has_topic(topic), "the name server knows the topic")

    def make_group(self, topic: str, group: str, queues: int = QUEUES) -> None:
        """Its consumers begin at the first offset."""
        if topic.startswith("%DLQ%"):
            # The original has dead letters that may be written only, until an operator says more.
            config = own.TopicConfig(
                topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6
            )
            self.admin.create_topic(config, cluster=CLUSTER)

    def has_topic(self, topic: str) -> bool:
        try:
            self.admin.examine_topic_route_info(topic)
        except own.TopicNotFoundError:
            time.sleep(_POLL_S)
            return False
        return True

    # ---- for administration

    @property
    def at(self) -> str:
        """The broker's address."""
        address: str = self.broker.address("rocketmq-broker")
        return address

    def has_producers(self, group: str) -> bool:
        time.sleep(_POLL_S)
        return group in self.admin.get_all_producer_info(self.at)

    def prepare(self, topic: str) -> list[own.Sent]:
        self.make_topic(topic)
        messages = [
            own.Message(topic=topic, body=body.encode(), tags="a", keys=[f"key-{body}"])
            for body in _BODIES
        ]
        return [self._producer.send(each) for each in messages]

    def reader(self, topic: str) -> Pushed:
        """A member that has read everything, and said so."""
        consumer = Pushed(self.servers, topic, topic, {})
        collect(consumer, _BODIES)  # type: ignore[arg-type]
        consumer.commit()
        return consumer


def _message(topic: str, given: Message) -> own.Message:
    return own.Message(
        topic=topic,
        body=given.body.encode(),
        tags=given.tags,
        keys=given.keys.split(),
        properties=given.properties,
        delay_level=given.delay_level,
    )


# ---- administration


def names(client: OwnClient, topic: str) -> None:
    admin = client.admin
    client.make_topic(topic)
    info = admin.examine_broker_cluster_info()
    assert info.broker_addr_table[BROKER].broker_addrs == {"0": client.at}, info
    assert topic in admin.fetch_all_topic_list()
    assert topic in admin.fetch_topics_by_cluster(CLUSTER)
    assert admin.get_topic_cluster_list(topic) == {CLUSTER}
    admin.put_kv_config("n", "k", "v")
    assert admin.get_kv_config("n", "k") == "v"
    assert admin.get_kv_list_by_namespace("n") == {"k": "v"}
    admin.delete_kv_config("n", "k")
    assert admin.wipe_write_perm_of_broker(BROKER) > 0
    assert admin.add_write_perm_of_broker(BROKER) > 0
    assert "listenPort" in next(iter(admin.get_name_server_config().values()))


def topics(client: OwnClient, topic: str) -> None:
    admin = client.admin
    client.prepare(topic)
    stats = admin.examine_topic_stats(topic)
    assert sum(each.max_offset - each.min_offset for each in stats.values()) == len(_BODIES)
    assert admin.examine_topic_config(client.at, topic).read_queue_nums == QUEUES
    assert topic in admin.get_all_topic_config(client.at)
    assert "SCHEDULE_TOPIC_XXXX" in admin.get_system_topic_list_from_broker(client.at)
    admin.delete_topic(topic, cluster=CLUSTER)
    wait_until(lambda: not client.has_topic(topic), "the topic is gone")


def groups(client: OwnClient, topic: str) -> None:
    admin = client.admin
    config = own.SubscriptionGroupConfig(group_name=topic, retry_max_times=3)
    admin.create_subscription_group(config)
    assert admin.examine_subscription_group_config(client.at, topic).retry_max_times == 3
    assert topic in admin.get_all_subscription_group(client.at)
    client.prepare(topic)
    consumer = client.reader(topic)
    try:
        members = admin.examine_consumer_connection_info(topic)
        (member,) = (each.client_id for each in members.connection_set)
        assert members.subscription_table[topic].sub_string == "*"
        running = admin.get_consumer_running_info(topic, member)
        assert {each.topic for each in bodies.by_queue(running.mq_table)} >= {topic}
        assert admin.query_topics_by_consumer(topic) == [topic]
        assert admin.query_topic_consume_by_who(topic) == [topic]
        # The broker may have been started after the last heartbeat.
        wait_until(lambda: client.has_producers("interop"), "the broker knows the producers")
        assert admin.examine_producer_connection_info("interop", topic).connection_set
    finally:
        consumer.close()
    admin.delete_subscription_group(topic)
    assert topic not in admin.get_all_subscription_group(client.at)


def offsets(client: OwnClient, topic: str) -> None:
    admin = client.admin
    place = client.prepare(topic)[0].queue
    consumer = client.reader(topic)
    try:
        end = admin.max_offset(place)
        assert (admin.min_offset(place), admin.search_offset(place, 0)) == (0, 0)
        assert admin.earliest_message_store_time(place) > 0
        assert admin.query_consume_offset(place, topic) == end
        assert admin.examine_consume_stats(topic).lag == 0
        admin.reset_offset_by_timestamp(topic, topic, 0)
        collect(consumer, _BODIES)  # type: ignore[arg-type]
    finally:
        consumer.close()
    admin.update_consume_offset(place, topic, 1)
    assert admin.query_consume_offset(place, topic) == 1
    admin.clone_group_offset(topic, f"copy-{topic}", topic, is_offline=True)
    assert admin.query_consume_offset(place, f"copy-{topic}") == 1


def messages(client: OwnClient, topic: str) -> None:
    admin = client.admin
    sent = client.prepare(topic)[3]
    consumer = client.reader(topic)
    try:
        assert admin.query_message_by_id(sent.message_id).body == b"m3"
        for name in (sent.message_id, sent.unique_id):
            assert admin.view_message(topic, name).body == b"m3"
        assert [each.body for each in admin.query_message(topic, "key-m3")] == [b"m3"]
        assert admin.query_message_by_offset(sent.queue, sent.queue_offset).body == b"m3"
        found = admin.query_message_by_time(topic, 0, 1 << 60)
        assert sorted(each.body.decode() for each in found) == _BODIES
        view = admin.query_consume_queue(sent.queue, 0, 3, topic)
        assert view.min_queue_index == 0
        member = consumer.client._client.client_id
        done = admin.consume_message_directly(topic, member, topic, sent.unique_id)
        assert done.consume_result == "CR_SUCCESS", done
        (track,) = admin.message_track_detail(admin.query_message_by_id(sent.message_id))
        assert track.kind is own.TrackKind.CONSUMED, track
    finally:
        consumer.close()


def the_broker(client: OwnClient, _: str) -> None:
    admin = client.admin
    assert "putTps" in admin.fetch_broker_runtime_stats(client.at)
    admin.update_broker_config(client.at, {"traceOn": "false"})
    assert admin.get_broker_config(client.at)["traceOn"] == "false"
    admin.clean_expired_consumer_queue()
    admin.clean_unused_topic()
    admin.delete_expired_commit_log()


def dead_letters(client: OwnClient, topic: str) -> None:
    rocketmq_operations.dead_letter(client, topic)  # type: ignore[arg-type]
    group = f"dead-{topic}"
    (found,) = client.admin.list_dead_letters(group)
    assert found.message.body == b"refuse for good"
    consumer = client.consumer(group, topic)
    try:
        client.admin.resend_dead_letters([found])
        collect(consumer, ["refuse for good"])  # type: ignore[arg-type]
    finally:
        consumer.close()


ADMINISTRATION: Operations = {
    "name server": names,
    "topics": topics,
    "groups": groups,
    "offsets": offsets,
    "messages": messages,
    "broker": the_broker,
    "dead letters": dead_letters,
}
_SECTIONS = {
    **rocketmq_operations.SECTIONS,
    "RocketMQ: administration": ADMINISTRATION,
}
OwnClient.sections = {
    title.replace("RocketMQ", "Apache RocketMQ, used by Dragoman"): operations
    for title, operations in _SECTIONS.items()
}
