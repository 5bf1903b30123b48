"""Every operation of RocketMQ's administration client: its request, and its result on a node.

    python tests/protocols/rocketmq_admin.py        writes docs/reference/rocketmq-admin.md

A node has a topic of twenty messages, a consumer that has read them, a transaction that was checked
too often, and a dead letter. The operations run one after the other, in the order of the table;
those that delete something come last.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sized
from pathlib import Path
from typing import Any

import msgspec

from dragoman.client.rocketmq import (
    AclEntry,
    AclInfo,
    AclPolicy,
    ConsumeFrom,
    Message,
    MessageQueue,
    PlainAccess,
    ReceivedMessage,
    RequestMode,
    RocketmqAdmin,
    RocketmqClient,
    RocketmqError,
    Sent,
    SubscriptionGroupConfig,
    TopicConfig,
    UserInfo,
)
from dragoman.protocols.rocketmq.client import operations
from dragoman.protocols.rocketmq.client.operations import Servers, Upload
from dragoman.testing import EphemeralBroker

PAGE = Path(__file__).parents[2] / "docs/reference/rocketmq-admin.md"
COUNT = 20
#: Tables with more entries are settings and figures, whose number grows.
_MANY = 30
_HEAD = """# RocketMQ administration, operation by operation

For administrators of RocketMQ.
The request of each operation of `RocketmqAdmin`, and its result on a node of this release, in the
order in which they were run (`tests/protocols/rocketmq_admin.py`). Operations without a request of
their own combine others. Operations of RocketMQ's controller, broker containers, static topics,
cold data and RocksDB have no counterpart here: code 3, *not supported*. Users and rules are
those of the cluster.

| a request to | is retried |
|---|---|
{servers}

| operation | request | to | fields | body | answer | result |
|---|---|---|---|---|---|---|
"""


class Stage:
    """The client, and the messages that the operations are run on."""

    def __init__(self, client: RocketmqClient, broker: str) -> None:
        self.client = client
        self.admin: RocketmqAdmin = client.admin
        self.broker = broker
        self.sent: list[Sent] = []
        self.given: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    @property
    def queue(self) -> MessageQueue:
        return self.sent[0].queue

    @property
    def name(self) -> str:
        return self.queue.broker_name

    async def begin(self) -> None:
        config = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
        await self.admin.create_topic(config)
        producer = self.client.producer("writers")
        for number in range(COUNT):
            message = Message(topic="T", body=b"%d" % number, tags="a", keys=[f"k{number}"])
            self.sent.append(await producer.send(message))
        consumer = self.client.push_consumer(
            "g", {"T": "a"}, self.given.put_nowait, start=ConsumeFrom.FIRST_OFFSET
        )
        await consumer.start()
        for _ in range(COUNT):
            await self.given.get()
        while (await self.admin.examine_consume_stats("g", "T")).lag:
            await consumer.commit()
        await producer.send(Message(topic="%DLQ%g", body=b"dead", properties={"RETRY_TOPIC": "T"}))


Operation = Callable[[Stage], Awaitable[Any]]
_ENTRY = AclEntry(resource="Topic:T", actions=["Pub"])
_ACL = AclInfo(subject="User:u", policies=[AclPolicy(entries=[_ENTRY])])
_USER = UserInfo(username="u", password="p")


async def _track(stage: Stage) -> Any:
    message = await stage.admin.query_message_by_id(stage.sent[3].message_id)
    return await stage.admin.message_track_detail(message)


async def _read_queue(stage: Stage) -> Any:
    return [each async for each in stage.admin.read_queue(stage.queue)]


async def _resend(stage: Stage) -> Any:
    return await stage.admin.resend_dead_letters(await stage.admin.list_dead_letters("g"))


#: In the order in which they are run.
OPERATIONS: Mapping[str, Operation] = {
    # ---- the cluster
    "examine_broker_cluster_info": lambda s: s.admin.examine_broker_cluster_info(),
    "fetch_broker_runtime_stats": lambda s: s.admin.fetch_broker_runtime_stats(s.broker),
    "get_broker_config": lambda s: s.admin.get_broker_config(s.broker),
    "update_broker_config": lambda s: s.admin.update_broker_config(
        s.broker, {"held.record.check.max": "10"}
    ),
    "get_name_server_config": lambda s: s.admin.get_name_server_config(),
    "update_name_server_config": lambda s: s.admin.update_name_server_config(
        {"held.record.check.max": "11"}
    ),
    "view_broker_stats_data": lambda s: s.admin.view_broker_stats_data(
        s.broker, "TOPIC_PUT_NUMS", "T"
    ),
    "put_kv_config": lambda s: s.admin.put_kv_config("n", "k", "v"),
    "get_kv_config": lambda s: s.admin.get_kv_config("n", "k"),
    "get_kv_list_by_namespace": lambda s: s.admin.get_kv_list_by_namespace("n"),
    "delete_kv_config": lambda s: s.admin.delete_kv_config("n", "k"),
    "wipe_write_perm_of_broker": lambda s: s.admin.wipe_write_perm_of_broker(s.name),
    "add_write_perm_of_broker": lambda s: s.admin.add_write_perm_of_broker(s.name),
    # ---- topics
    "create_topic": lambda s: s.admin.create_topic(TopicConfig(topic_name="U")),
    "create_and_update_topic_config_list": lambda s: s.admin.create_and_update_topic_config_list(
        [TopicConfig(topic_name="V"), TopicConfig(topic_name="W"), TopicConfig(topic_name="X")]
    ),
    "create_or_update_order_conf": lambda s: s.admin.create_or_update_order_conf(
        "U", f"{s.name}:4"
    ),
    "fetch_all_topic_list": lambda s: s.admin.fetch_all_topic_list(),
    "fetch_topics_by_cluster": lambda s: s.admin.fetch_topics_by_cluster("DefaultCluster"),
    "fetch_system_topic_list": lambda s: s.admin.fetch_system_topic_list(),
    "get_system_topic_list_from_broker": lambda s: s.admin.get_system_topic_list_from_broker(
        s.broker
    ),
    "get_topic_cluster_list": lambda s: s.admin.get_topic_cluster_list("T"),
    "examine_topic_route_info": lambda s: s.admin.examine_topic_route_info("T"),
    "examine_topic_stats": lambda s: s.admin.examine_topic_stats("T"),
    "examine_topic_stats_concurrent": lambda s: s.admin.examine_topic_stats_concurrent("T"),
    "examine_topic_config": lambda s: s.admin.examine_topic_config(s.broker, "T"),
    "get_all_topic_config": lambda s: s.admin.get_all_topic_config(s.broker),
    "query_topic_consume_by_who": lambda s: s.admin.query_topic_consume_by_who("T"),
    # ---- groups
    "create_subscription_group": lambda s: s.admin.create_subscription_group(
        SubscriptionGroupConfig(group_name="h")
    ),
    "examine_subscription_group_config": lambda s: s.admin.examine_subscription_group_config(
        s.broker, "h"
    ),
    "get_all_subscription_group": lambda s: s.admin.get_all_subscription_group(s.broker),
    "get_user_subscription_group": lambda s: s.admin.get_user_subscription_group(s.broker),
    "list_groups": lambda s: s.admin.list_groups(),
    "update_and_get_group_read_forbidden": lambda s: s.admin.update_and_get_group_read_forbidden(
        s.broker, "h", "T", False
    ),
    "set_message_request_mode": lambda s: s.admin.set_message_request_mode(
        s.broker, RequestMode(topic="T", consumer_group="h", mode="PULL")
    ),
    "examine_consumer_connection_info": lambda s: s.admin.examine_consumer_connection_info("g"),
    "examine_producer_connection_info": lambda s: s.admin.examine_producer_connection_info(
        "writers", "T"
    ),
    "get_all_producer_info": lambda s: s.admin.get_all_producer_info(s.broker),
    "get_consumer_running_info": lambda s: s.admin.get_consumer_running_info(
        "g", s.client.client_id
    ),
    "query_topics_by_consumer": lambda s: s.admin.query_topics_by_consumer("g"),
    "query_subscription": lambda s: s.admin.query_subscription("g", "T"),
    # ---- offsets
    "min_offset": lambda s: s.admin.min_offset(s.queue),
    "max_offset": lambda s: s.admin.max_offset(s.queue),
    "search_offset": lambda s: s.admin.search_offset(s.queue, 0),
    "earliest_message_store_time": lambda s: s.admin.earliest_message_store_time(s.queue),
    "query_consume_offset": lambda s: s.admin.query_consume_offset(s.queue, "g"),
    "update_consume_offset": lambda s: s.admin.update_consume_offset(s.queue, "h", 2),
    "examine_consume_stats": lambda s: s.admin.examine_consume_stats("g", "T"),
    "examine_consume_stats_by_topic": lambda s: s.admin.examine_consume_stats_by_topic("g", "T"),
    "examine_consume_stats_concurrent": lambda s: s.admin.examine_consume_stats_concurrent(
        "g", "T"
    ),
    "fetch_consume_stats_in_broker": lambda s: s.admin.fetch_consume_stats_in_broker(s.broker),
    "query_consume_time_span": lambda s: s.admin.query_consume_time_span("T", "g"),
    "get_consume_status": lambda s: s.admin.get_consume_status("T", "g"),
    "clone_group_offset": lambda s: s.admin.clone_group_offset("g", "copy", "T"),
    "reset_offset_by_timestamp": lambda s: s.admin.reset_offset_by_timestamp("T", "copy", 0),
    # ---- messages
    "query_message_by_id": lambda s: s.admin.query_message_by_id(s.sent[3].message_id),
    "query_message_by_unique_key": lambda s: s.admin.query_message_by_unique_key(
        "T", s.sent[3].unique_id
    ),
    "query_message": lambda s: s.admin.query_message("T", "k3"),
    "query_message_by_offset": lambda s: s.admin.query_message_by_offset(s.queue, 0),
    "query_message_by_time": lambda s: s.admin.query_message_by_time("T", 0, 1 << 60),
    "view_message": lambda s: s.admin.view_message("T", s.sent[3].unique_id),
    "pull_message": lambda s: s.admin.pull_message(s.queue, 0),
    "read_queue": _read_queue,
    "query_consume_queue": lambda s: s.admin.query_consume_queue(s.queue, 0, 3, "g"),
    "message_track_detail": _track,
    "consume_message_directly": lambda s: s.admin.consume_message_directly(
        "g", s.client.client_id, "T", s.sent[3].unique_id
    ),
    "list_dead_letters": lambda s: s.admin.list_dead_letters("g"),
    "resend_dead_letters": _resend,
    "resume_check_half_message": lambda s: s.admin.resume_check_half_message(
        "T", s.sent[3].message_id
    ),
    # ---- users and rules
    "create_user": lambda s: s.admin.create_user(s.broker, _USER),
    "update_user": lambda s: s.admin.update_user(s.broker, _USER),
    "get_user": lambda s: s.admin.get_user(s.broker, "u"),
    "list_users": lambda s: s.admin.list_users(s.broker),
    "create_acl": lambda s: s.admin.create_acl(s.broker, _ACL),
    "update_acl": lambda s: s.admin.update_acl(s.broker, _ACL),
    "get_acl": lambda s: s.admin.get_acl(s.broker, "User:u"),
    "list_acls": lambda s: s.admin.list_acls(s.broker),
    "delete_acl": lambda s: s.admin.delete_acl(s.broker, "User:u"),
    "delete_user": lambda s: s.admin.delete_user(s.broker, "u"),
    "examine_plain_access_version": lambda s: s.admin.examine_plain_access_version(s.broker),
    "create_and_update_plain_access": lambda s: s.admin.create_and_update_plain_access(
        s.broker, PlainAccess(access_key="access", secret_key="secret")
    ),
    "delete_plain_access": lambda s: s.admin.delete_plain_access(s.broker, "access"),
    "update_global_white_addresses": lambda s: s.admin.update_global_white_addresses(
        s.broker, ["127.0.0.1"]
    ),
    # ---- what has no counterpart
    "create_static_topic": lambda s: s.admin.create_static_topic(
        s.broker, TopicConfig(topic_name="S"), {}
    ),
    "add_broker_to_container": lambda s: s.admin.add_broker_to_container(s.broker, {}),
    "remove_broker_from_container": lambda s: s.admin.remove_broker_from_container(
        s.broker, "c", "b", 1
    ),
    "get_broker_ha_status": lambda s: s.admin.get_broker_ha_status(s.broker),
    "get_broker_epoch_cache": lambda s: s.admin.get_broker_epoch_cache(s.broker),
    "get_in_sync_state_data": lambda s: s.admin.get_in_sync_state_data(s.broker, [s.name]),
    "get_controller_metadata": lambda s: s.admin.get_controller_metadata(s.broker),
    "get_controller_config": lambda s: s.admin.get_controller_config(s.broker),
    "update_controller_config": lambda s: s.admin.update_controller_config(s.broker, {}),
    "elect_master": lambda s: s.admin.elect_master(s.broker, "c", "b", 1),
    "clean_controller_broker_data": lambda s: s.admin.clean_controller_broker_data(
        s.broker, "c", "b"
    ),
    "get_cold_data_flow_control": lambda s: s.admin.get_cold_data_flow_control(s.broker),
    "update_cold_data_flow_control": lambda s: s.admin.update_cold_data_flow_control(
        s.broker, {"g": "1"}
    ),
    "remove_cold_data_flow_control": lambda s: s.admin.remove_cold_data_flow_control(s.broker, "g"),
    "set_commit_log_read_ahead_mode": lambda s: s.admin.set_commit_log_read_ahead_mode(s.broker, 0),
    "export_rocksdb_config": lambda s: s.admin.export_rocksdb_config(s.broker, "topics"),
    "check_rocksdb_write_progress": lambda s: s.admin.check_rocksdb_write_progress(s.broker),
    # ---- what takes things away
    "clean_expired_consumer_queue": lambda s: s.admin.clean_expired_consumer_queue(),
    "delete_expired_commit_log": lambda s: s.admin.delete_expired_commit_log(),
    "clean_unused_topic": lambda s: s.admin.clean_unused_topic(),
    "delete_subscription_group": lambda s: s.admin.delete_subscription_group("h"),
    "delete_topic": lambda s: s.admin.delete_topic("V"),
    "delete_topic_in_broker": lambda s: s.admin.delete_topic_in_broker(s.broker, "W"),
    "delete_topic_in_name_server": lambda s: s.admin.delete_topic_in_name_server("X"),
    "close": lambda s: s.admin.close(),
}


async def results() -> dict[str, str]:
    """What came of each, in words that are the same every time."""
    found: dict[str, str] = {}
    async with (
        asyncio.timeout(120),
        EphemeralBroker(listeners=("rocketmq", "rocketmq-broker")) as broker,
        RocketmqClient(broker.address("rocketmq")) as client,
    ):
        stage = Stage(client, broker.address("rocketmq-broker"))
        await stage.begin()
        for name, operation in OPERATIONS.items():
            try:
                outcome = await operation(stage)
                is_missing = outcome is None and name.startswith("get_")
                found[name] = "none" if is_missing else _words(outcome)
            except RocketmqError as error:
                reason = str(error).partition("): ")[2].replace(broker.address("rocketmq"), "…")
                found[name] = f"refused, {error.number}: {reason}"
    return found


def _words(value: object) -> str:
    match value:
        case None:
            return "done"
        case bool() | str():
            return f"`{value}`"
        case int():
            return "a time" if value > 1 << 32 else f"`{value}`"
        case msgspec.Struct():
            return type(value).__name__
        case Sized() if len(value) > _MANY:
            return "a table"
        case Sized():
            return f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"
        case _:
            return type(value).__name__


def rows() -> dict[str, operations.Operation[Any]]:
    """The rows of the client's table, by the name of their operation."""
    return {
        name.lower(): each
        for name, each in vars(operations).items()
        if isinstance(each, operations.Operation)
    }


def page(found: Mapping[str, str]) -> str:
    requests = rows()
    lines = (
        f"| {' | '.join((f'`{name}`', *_request(requests.get(name)), result.replace('|', '/')))} |"
        for name, result in found.items()
    )
    servers = "\n".join(f"| {each.value} | {each.retry.value} |" for each in Servers)
    return _HEAD.format(servers=servers) + "\n".join(lines) + "\n"


def _request(row: operations.Operation[Any] | None) -> tuple[str, ...]:
    """The columns about the request."""
    if row is None:
        return ("",) * 5
    fields = ", ".join(f"`{each}`" for each in row.fields)
    body = row.body.name if isinstance(row, Upload) else ""
    return f"{row.code:d}", row.to.value, fields, body, row.answer.name


if __name__ == "__main__":
    sys.exit(PAGE.write_text(page(asyncio.run(results()))) and 0)
