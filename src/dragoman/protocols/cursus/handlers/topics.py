"""CREATE, DELETE, LIST, METADATA, DESCRIBE and LIST_OFFSETS."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from dragoman.broker.administration import Actor
from dragoman.broker.errors import TopicExists, UnknownTopic
from dragoman.broker.readers import Ends
from dragoman.broker.topics import DEFAULT, NewTopic
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import ClusterError, DragomanError
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import (
    check_name,
    config_from,
    is_expressible,
    policy_fields,
    policy_of,
    policy_text,
)
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.security.access import CLUSTER_NAME, Operation, Resource

_INVALID_PARTITIONS = 'invalid_partitions reason="must be a positive integer"'


async def handle_create(call: Call) -> None:
    """Create a topic; or add partitions to an existing one and change its settings."""
    expected = quoted("CREATE topic=<name> [partitions=<N>]")
    name = call.require("topic", f"missing_topic expected={expected}")
    check_name(name)
    if not call.session.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
        call.authorize(Operation.CREATE, Resource.TOPIC, name)
    broker = call.service.broker
    default = broker.settings.cursus_num_partitions
    count = call.number("partitions", default, refusal=_INVALID_PARTITIONS)
    factor = call.number("replication_factor", 0)
    if not count:
        raise Refusal(_INVALID_PARTITIONS)
    new = NewTopic(
        name=name,
        partition_count=count,
        # As in the original, having fewer nodes than the requested factor is not an error.
        replication_factor=min(factor, len(broker.image.nodes)) if factor else DEFAULT,
        config=_config(call, {}),
    )
    if name in broker.image.topics:
        # The reply describes it.
        call.authorize(Operation.DESCRIBE, Resource.TOPIC, name)
    try:
        # Another client may concurrently create it with other settings.
        with suppress(TopicExists):
            await broker.topics.ensure(new)
        await _change(call, name, count)
    except (Refusal, ClusterError):
        # Clients may retry after a `ClusterError`, as its code says.
        raise
    except DragomanError as error:
        raise _not_created(name, str(error)) from None
    topic = broker.image.topics.get(name)
    if topic is None:
        raise _not_created(name, "deleted in the meantime")
    call.ok(f"topic={name} partitions={len(topic.partitions)} {policy_text(topic)}")


def _config(call: Call, present: dict[str, str]) -> dict[str, str]:
    hours, size = call.number("retention_hours", 0), call.number("retention_bytes", 0)
    return config_from(call.command.arguments, hours, size, present)


async def _change(call: Call, name: str, count: int) -> None:
    """Change partitions and settings of an existing topic as requested."""
    topic = call.service.topic(name)
    present = len(topic.partitions)
    if topic.is_internal:
        raise Refusal(f"internal_topic_write_forbidden topic={name}")
    if "partitions" not in call.command.arguments:
        count = present
    if count < present:
        reason = f"cannot decrease partition count for topic '{name}': {present} -> {count}"
        raise _not_created(name, reason)
    if count > present and policy_of(topic).is_event_sourced:
        raise _not_created(name, "event streams would move to other partitions")
    topics, config = call.service.broker.topics, _config(call, topic.config)
    if count > present:
        call.authorize(Operation.ALTER, Resource.TOPIC, name)
        await topics.add_partitions(name, count, (), _actor(call))
    if config != topic.config:
        call.authorize(Operation.ALTER_CONFIGS, Resource.TOPIC, name)
        await topics.change_config(name, config, _actor(call))


def _actor(call: Call) -> Actor:
    return Actor(call.session.caller, "cursus")


def _not_created(name: str, reason: str) -> Refusal:
    return Refusal(f"create_topic_failed topic={name} reason={quoted(reason)}")


async def handle_delete(call: Call) -> None:
    name = call.require("topic")
    call.authorize(Operation.DELETE, Resource.TOPIC, name)
    service = call.service
    if service.topic(name).is_internal:
        raise Refusal(f"internal_topic_write_forbidden topic={name}")
    try:
        await service.broker.topics.delete(name, _actor(call))
    except UnknownTopic:
        raise Refusal(f"topic_not_found topic={name}") from None
    service.forget_topic(name)
    call.ok(f"topic={name} deleted=true")


def handle_list(call: Call) -> None:
    """List the topics. If a topic is named, as by the Java producer, return its number of
    partitions.
    """
    if call.get("topic"):
        topic = _described(call)
        call.ok(f"count=1 topics={topic.name} partitions={len(topic.partitions)}")
        return
    topics = call.service.broker.image.topics
    names = sorted(filter(is_expressible, call.session.describable(Resource.TOPIC, topics)))
    call.ok(f"count={len(names)} topics={','.join(names)}")


def _described(call: Call) -> TopicMetadata:
    name = call.require("topic")
    call.authorize(Operation.DESCRIBE, Resource.TOPIC, name)
    return call.service.topic(name)


def handle_metadata(call: Call) -> None:
    topic = _described(call)
    leaders = ",".join(call.address_of(each.leader) for each in topic.partitions)
    epochs = ",".join(str(each.leader_epoch) for each in topic.partitions)
    call.ok(
        f"topic={topic.name} partitions={len(topic.partitions)} leaders={leaders} "
        f"epochs={epochs} {policy_text(topic)}"
    )


async def handle_describe(call: Call) -> None:
    topic = _described(call)
    fields = policy_fields(topic)
    shown = ("cleanup_policy", "partitioner", "auth_policy")
    rest = ("retention_hours", "retention_bytes", "read_acl", "write_acl")
    policy = {name: fields[name] for name in (*shown, *rest) if name in shown or fields[name]}
    # A topic may grow while its partitions are looked up.
    partitions = list(topic.partitions)
    # This node queries the leaders for the client.
    ends = await call.service.broker.readers.all_ends(partitions)
    described = {
        "status": "OK",
        "topic": topic.name,
        "partitions": [
            _described_partition(call, *each) for each in zip(partitions, ends, strict=True)
        ],
        "policy": policy,
    }
    call.json(msgspec.json.format(msgspec.json.encode(described), indent=2))


def _described_partition(call: Call, partition: PartitionMetadata, ends: Ends) -> dict[str, object]:
    broker = call.service.broker
    # A single broker of the original names neither leader nor replicas.
    leader, replicas, in_sync = "", None, None
    if len(broker.image.nodes) > 1:
        leader = call.address_of(partition.leader)
        replicas = list(map(call.address_of, partition.replicas))
        in_sync = list(map(call.address_of, partition.in_sync))
    return {
        "id": partition.index,
        "leader": leader,
        "replicas": replicas,
        "isr": in_sync,
        "leo": ends.log_end_offset,
        "hwm": ends.high_watermark,
    }


async def handle_list_offsets(call: Call) -> None:
    topic = _described(call)
    # The topic may grow while its partitions are looked up.
    wanted = list(topic.partitions)
    if "partition" in call.command.arguments:
        wanted = [call.service.partition(topic, call.number("partition"))]
    ends = await call.service.broker.readers.all_ends(wanted)
    shown = ",".join(
        f"P{partition.index}:earliest={each.log_start_offset}:latest={each.last_stable_offset}"
        f":leo={each.log_end_offset}:hwm={each.high_watermark}"
        for partition, each in zip(wanted, ends, strict=True)
    )
    call.ok(f"topic={topic.name} partitions={len(topic.partitions)} offsets={shown}")
