"""CREATE, DELETE, LIST, METADATA, DESCRIBE and LIST_OFFSETS."""

from __future__ import annotations

import msgspec

from dragoman.broker.errors import TopicExists, UnknownTopic
from dragoman.broker.topics import DEFAULT, NewTopic
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
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
from dragoman.protocols.cursus.handlers.service import authorize
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

_INVALID_PARTITIONS = 'invalid_partitions reason="must be a positive integer"'


def handle_create(call: Call) -> None:
    """Makes a topic, or grows the one there is; settings that are named are changed."""
    expected = quoted("CREATE topic=<name> [partitions=<N>]")
    name = call.require("topic", f"missing_topic expected={expected}")
    check_name(name)
    authorize(call, Operation.CREATE, Resource.TOPIC, name)
    broker = call.service.broker
    count = call.number(
        "partitions", broker.settings.cursus_num_partitions, refusal=_INVALID_PARTITIONS
    )
    factor = call.number("replication_factor", 0)
    if not count:
        raise Refusal(_INVALID_PARTITIONS)
    topic = broker.image.topics.get(name)
    config = config_from(call, {} if topic is None else topic.config)

    def done(error: DragomanError | None) -> None:
        if isinstance(error, TopicExists):
            _change(call, broker.image.topics[name], count, config)
        elif error is not None:
            call.refuse(_failed(name, error))
        else:
            made = broker.image.topics[name]
            call.ok(f"topic={name} partitions={len(made.partitions)} {policy_text(made)}")

    if topic is not None:
        _change(call, topic, count, config)
        return
    new = NewTopic(
        name=name,
        partition_count=count,
        # On fewer nodes than asked for the original is content, too.
        replication_factor=min(factor, len(broker.image.nodes)) if factor else DEFAULT,
        config=config,
    )
    broker.topics.create(new, done)


def _change(call: Call, topic: TopicMetadata, count: int, config: dict[str, str]) -> None:
    name, present = topic.name, len(topic.partitions)
    if topic.is_internal:
        raise Refusal(f"internal_topic_write_forbidden topic={name}")
    if count < present and "partitions" in call.command.arguments:
        reason = f"cannot decrease partition count for topic '{name}': {present} -> {count}"
        raise Refusal(f"create_topic_failed topic={name} reason={quoted(reason)}")
    grows = count > present and "partitions" in call.command.arguments
    if grows and policy_of(topic).is_event_sourced:
        reason = quoted("event streams would move to other partitions")
        raise Refusal(f"create_topic_failed topic={name} reason={reason}")
    topics = call.service.broker.topics

    def grown(error: DragomanError | None) -> None:
        if error is not None or config == topic.config:
            answer(error)
        else:
            topics.change_config(name, config, answer)

    def answer(error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(_failed(name, error))
        else:
            call.ok(f"topic={name} partitions={len(topic.partitions)} {policy_text(topic)}")

    if grows:
        topics.add_partitions(name, count, (), grown)
    else:
        grown(None)


def _failed(name: str, error: DragomanError) -> Refusal:
    return Refusal(f"create_topic_failed topic={name} reason={quoted(str(error))}")


def handle_delete(call: Call) -> None:
    name = call.require("topic", "missing_topic command=DELETE")
    authorize(call, Operation.DELETE, Resource.TOPIC, name)
    service = call.service
    if service.topic(name).is_internal:
        raise Refusal(f"internal_topic_write_forbidden topic={name}")

    def done(error: DragomanError | None) -> None:
        if isinstance(error, UnknownTopic):
            call.refuse(Refusal(f"topic_not_found topic={name}"))
        elif error is not None:
            call.refuse(error)
        else:
            service.forget_topic(name)
            call.ok(f"topic={name} deleted=true")

    service.broker.topics.delete(name, done)


def handle_list(call: Call) -> None:
    """With a topic, which the Java producer names, its partition count."""
    name = call.get("topic")
    if name:
        topic = _described(call, name)
        call.ok(f"count=1 topics={name} partitions={len(topic.partitions)}")
        return
    broker = call.service.broker
    names = sorted(filter(is_expressible, broker.image.topics))
    allowed = [
        each
        for each in names
        if broker.authorizer.is_allowed(
            call.session.principal, Operation.DESCRIBE, Resource.TOPIC, each
        )
    ]
    call.ok(f"count={len(allowed)} topics={','.join(allowed)}")


def _described(call: Call, name: str) -> TopicMetadata:
    authorize(call, Operation.DESCRIBE, Resource.TOPIC, name)
    return call.service.topic(name)


def handle_metadata(call: Call) -> None:
    topic = _described(call, call.require("topic", "missing_topic command=METADATA"))
    leaders = ",".join(_address(call, each.leader) for each in topic.partitions)
    epochs = ",".join(str(each.leader_epoch) for each in topic.partitions)
    call.ok(
        f"topic={topic.name} partitions={len(topic.partitions)} leaders={leaders} "
        f"epochs={epochs} {policy_text(topic)}"
    )


def _address(call: Call, node: int) -> str:
    service = call.service
    own = node == service.broker.node_id
    address = call.session.address() if own else service.address_of(node)
    return "" if address is None else f"{address[0]}:{address[1]}"


def handle_describe(call: Call) -> None:
    topic = _described(call, call.require("topic", "missing_topic command=DESCRIBE"))
    image = call.service.broker.image
    alone = len(image.nodes) == 1
    partitions = []
    for each in topic.partitions:
        log = call.service.broker.replica(each).log
        partitions.append(
            {
                "id": each.index,
                # A single broker of the original names neither leader nor replicas.
                "leader": "" if alone else _address(call, each.leader),
                "replicas": None if alone else [_address(call, node) for node in each.replicas],
                "isr": None if alone else [_address(call, node) for node in each.in_sync],
                "leo": log.log_end_offset,
                "hwm": log.high_watermark,
            }
        )
    always = ("cleanup_policy", "partitioner", "auth_policy")
    fields = policy_fields(topic)
    policy = {name: fields[name] for name in always}
    rest = ("retention_hours", "retention_bytes", "read_acl", "write_acl")
    policy |= {name: fields[name] for name in rest if fields[name]}
    described = {
        "status": "OK",
        "topic": topic.name,
        "partitions": partitions,
        "policy": policy,
    }
    call.json(msgspec.json.format(msgspec.json.encode(described), indent=2))


def handle_list_offsets(call: Call) -> None:
    topic = _described(call, call.require("topic", "missing_topic command=LIST_OFFSETS"))
    wanted = range(len(topic.partitions))
    if "partition" in call.command.arguments:
        index = call.number("partition")
        call.service.replica(topic, index)
        wanted = range(index, index + 1)
    shown = []
    for index in wanted:
        log = call.service.replica(topic, index).log
        shown.append(
            f"P{index}:earliest={log.log_start_offset}:latest={log.last_stable_offset}"
            f":leo={log.log_end_offset}:hwm={log.high_watermark}"
        )
    call.ok(f"topic={topic.name} partitions={len(topic.partitions)} offsets={','.join(shown)}")
