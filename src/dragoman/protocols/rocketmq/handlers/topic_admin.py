"""Topics made, changed, deleted and described by operators (17, 18, 21, 202, 215, 305, 351).

A queue is a partition: a topic has as many as it has queues to read or to write, whichever are
more. Partitions do not go away; with fewer queues than partitions, the rest is not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dragoman.broker.errors import TopicExists, UnknownTopic
from dragoman.broker.reading import Ends
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import TOPIC_PARTITIONS_MAX
from dragoman.outcome import start
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import (
    CHECKED_TOO_OFTEN_TOPIC,
    DEFAULT_CLUSTER,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    READ_AND_WRITE,
    SCHEDULE_TOPIC,
    TEMPLATE_TOPIC,
    TOPIC_CONFIG,
    TRACE_TOPIC,
    Perm,
    Response,
)
from dragoman.protocols.rocketmq.handlers.attributes import (
    ATTRIBUTES_KEY,
    Attributes,
    attributes_of,
    read_queues,
    write_queues,
    written,
)
from dragoman.protocols.rocketmq.handlers.names import (
    check_topic_name,
    require_topic,
    spelling,
    topic_name,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.nameserver import visible_topics
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.tables import each_in_turn, queue_of, reply_table
from dragoman.protocols.rocketmq.handlers.times import offset_at, store_time_of
from dragoman.security.authorizer import Operation, Resource

_FILTERS: Final = ("SINGLE_TAG", "MULTI_TAG")
_PERM_MAX: Final = int(READ_AND_WRITE | Perm.INHERIT) | 8
_MINUTE_S: Final = 60
_SYSTEM_TOPICS: Final = (
    TEMPLATE_TOPIC,
    "SELF_TEST_TOPIC",
    "BenchmarkTest",
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    CHECKED_TOO_OFTEN_TOPIC,
    TRACE_TOPIC,
    "OFFSET_MOVED_EVENT",
    DEFAULT_CLUSTER,
    f"{DEFAULT_CLUSTER}_REPLY_TOPIC",
)


# ---- made and changed


def handle_update_and_create_topic(call: Call) -> None:
    wanted = bodies.TopicConfig(
        topic_name=call.text("topic"),
        read_queue_nums=call.number("readQueueNums"),
        write_queue_nums=call.number("writeQueueNums"),
        perm=call.number("perm"),
        topic_filter_type=call.fields.get("topicFilterType") or _FILTERS[0],
        topic_sys_flag=call.number("topicSysFlag", 0),
        order=call.flag("order"),
    )
    changes = call.fields.get("attributes", "")
    _set_topic(call, wanted, changes.split(",") if changes else [], call.done)


def handle_update_and_create_topic_list(call: Call) -> None:
    wanted = bodies.decode(call.body, bodies.TopicConfigList).topic_config_list
    if len(wanted) > TOPIC_PARTITIONS_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"{len(wanted)} topics at once")
    queues = sum(max(each.read_queue_nums, each.write_queue_nums, 0) for each in wanted)
    call.service.broker.topics.check_request(queues)

    def begin(each: bodies.TopicConfig, done: Callable[[bool | DragomanError], None]) -> None:
        # Written as they are, or with the sign of a change before them.
        signed = {
            name if name[:1] in ("+", "-") else f"+{name}": value
            for name, value in each.attributes.items()
        }
        changes = [name if name[0] == "-" else f"{name}={value}" for name, value in signed.items()]
        try:
            _set_topic(call, each, changes, lambda error: done(error or True))
        except DragomanError as error:
            done(error)

    def finished(outcome: list[bool] | DragomanError) -> None:
        call.done(outcome if isinstance(outcome, DragomanError) else None)

    each_in_turn(call.service.broker.scheduler, wanted, begin, finished)


def _set_topic(
    call: Call,
    wanted: bodies.TopicConfig,
    changes: list[str],
    done: Callable[[DragomanError | None], None],
) -> None:
    """Raises `DragomanError`."""
    _check(wanted)
    _changed_attributes("", changes)
    broker = call.service.broker
    name = topic_name(wanted.topic_name)
    queues = max(wanted.read_queue_nums, wanted.write_queue_nums)
    topic = broker.image.topics.get(name)
    if topic is not None and topic.is_internal:
        raise Refused(Response.INVALID_PARAMETER, f"{name} is the broker's own")
    if topic is None:
        call.session.authorize(Operation.CREATE, Resource.TOPIC, name)
        config = dict(TOPIC_CONFIG)
        text = _attributes(wanted, changes, Attributes(), queues)
        if text:
            config[ATTRIBUTES_KEY] = text
        new = NewTopic(name=name, partition_count=queues, config=config, led_by=broker.node_id)

        def created(error: DragomanError | None) -> None:
            # Tools ask every broker of the cluster, perhaps at the same time.
            done(None if isinstance(error, TopicExists) else error)

        start(broker.topics.create(new)).then(created)
        return
    call.session.authorize(Operation.ALTER, Resource.TOPIC, name)
    if queues <= len(topic.partitions):
        _alter(call, topic, wanted, changes, done)
        return

    def grown(error: DragomanError | None) -> None:
        if error is not None:
            done(error)
            return
        try:
            _alter(call, topic, wanted, changes, done)
        except DragomanError as raised:
            done(raised)

    # Where the others are: clients find the whole topic in one place.
    added = (topic.partitions[0].replicas,) * (queues - len(topic.partitions))
    start(broker.topics.add_partitions(name, queues, added)).then(grown)


def _check(wanted: bodies.TopicConfig) -> None:
    check_topic_name(wanted.topic_name)
    for count in (wanted.read_queue_nums, wanted.write_queue_nums):
        if not 1 <= count <= TOPIC_PARTITIONS_MAX:
            text = f"{count} queues; a topic has 1 to {TOPIC_PARTITIONS_MAX}"
            raise Refused(Response.INVALID_PARAMETER, text)
    if not 0 <= wanted.perm <= _PERM_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"perm {wanted.perm} is none")
    if wanted.topic_filter_type not in _FILTERS:
        text = f"topicFilterType {wanted.topic_filter_type!r} is none of {', '.join(_FILTERS)}"
        raise Refused(Response.INVALID_PARAMETER, text)


def _alter(
    call: Call,
    topic: TopicMetadata,
    wanted: bodies.TopicConfig,
    changes: list[str],
    done: Callable[[DragomanError | None], None],
) -> None:
    broker = call.service.broker

    def alter(present: dict[str, str]) -> dict[str, str]:
        now = broker.image.topics.get(topic.name)
        if now is None:
            raise UnknownTopic(f"there is no topic {topic.name!r}")
        config = dict(present)
        text = _attributes(wanted, changes, attributes_of(now), len(now.partitions))
        config.pop(ATTRIBUTES_KEY, None)
        return config | ({ATTRIBUTES_KEY: text} if text else {})

    if alter(dict(topic.config)) == topic.config:
        done(None)
    else:
        altered = broker.topics.alter_config(topic.name, lambda present: alter(dict(present)))
        start(altered).then(done)


def _attributes(
    wanted: bodies.TopicConfig, changes: list[str], present: Attributes, partitions: int
) -> str:
    """The entry of the topic's configuration. Raises `Refused`."""
    return written(
        Attributes(
            perm=wanted.perm,
            # As many as there are partitions, also when they become more, goes without saying.
            read=0 if wanted.read_queue_nums == partitions else wanted.read_queue_nums,
            write=0 if wanted.write_queue_nums == partitions else wanted.write_queue_nums,
            order="true" if wanted.order else "false",
            filter=wanted.topic_filter_type,
            sys_flag=wanted.topic_sys_flag,
            attributes=_changed_attributes(present.attributes, changes),
        )
    )


def _changed_attributes(present: str, changes: list[str]) -> str:
    found = dict(each.partition("=")[::2] for each in present.split(",") if each)
    for change in map(str.strip, changes):
        name, _, value = change[1:].partition("=")
        if change[:1] not in ("+", "-") or not name or change.split() != [change]:
            text = f"attributes: {change[:100]!r} is neither +name=value nor -name"
            raise Refused(Response.INVALID_PARAMETER, text)
        if change[0] == "+":
            found[name] = value
        else:
            found.pop(name, None)
    return ",".join(f"{name}={value}" for name, value in sorted(found.items()))


def handle_delete_topic_in_broker(call: Call) -> None:
    spelt = call.text("topic")
    check_topic_name(spelt)
    broker = call.service.broker
    topic = visible_topic(broker.image, spelt)
    call.session.authorize(Operation.DELETE, Resource.TOPIC, topic_name(spelt))
    if topic is None:
        # Tools ask every broker of the cluster, of which the first has done it.
        call.reply()
        return

    def deleted(error: DragomanError | None) -> None:
        call.done(None if isinstance(error, UnknownTopic) else error)

    start(broker.topics.delete(topic.name)).then(deleted)


# ---- described


def topic_config(topic: TopicMetadata) -> bodies.TopicConfig:
    attributes = attributes_of(topic)
    pairs = (each.partition("=")[::2] for each in attributes.attributes.split(",") if each)
    return bodies.TopicConfig(
        topic_name=spelling(topic.name),
        read_queue_nums=read_queues(topic),
        write_queue_nums=write_queues(topic),
        perm=attributes.perm,
        topic_filter_type=attributes.filter,
        topic_sys_flag=attributes.sys_flag,
        order=attributes.is_ordered,
        attributes=dict(pairs),
    )


def handle_get_topic_config(call: Call) -> None:
    topic = require_topic(call.service.broker.image, call.text("topic"))
    call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    call.reply(body=bodies.encode(topic_config(topic)))


def handle_get_all_topic_config(call: Call) -> None:
    """All, or with `topicSeq` and `maxTopicNum` a page of them."""
    topics = visible_topics(call)
    first, count = call.number("topicSeq", 0), call.number("maxTopicNum", 0)
    shown = topics[max(0, first) :]
    if count > 0:
        shown = shown[:count]
    table = bodies.TopicConfigTable(
        topic_config_table={spelling(each.name): topic_config(each) for each in shown},
        data_version=data_version(call),
    )
    call.reply(fields={"totalTopicNum": str(len(topics))}, body=bodies.encode(table))


def data_version(call: Call) -> bodies.DataVersion:
    """Another one whenever the cluster's metadata are."""
    return bodies.DataVersion(counter=call.service.broker.changes.version)


def handle_get_system_topic_list_from_broker(call: Call) -> None:
    names = [*_SYSTEM_TOPICS, call.node.broker_name]
    call.reply(body=bodies.encode(bodies.TopicList(topic_list=names)))


# ---- statistics


def with_all_ends(
    call: Call,
    partitions: tuple[PartitionMetadata, ...] | list[PartitionMetadata],
    use: Callable[[list[Ends]], None],
) -> None:
    def found(ends: list[Ends] | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(ends, DragomanError):
                raise ends
            use(ends)

        call.guarded(go_on)

    start(call.service.broker.readers.all_ends(partitions)).then(found)


def handle_get_topic_stats_info(call: Call) -> None:
    topic = require_topic(call.service.broker.image, call.text("topic"))
    call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    partitions = topic.partitions[: max(read_queues(topic), write_queues(topic))]
    minute_ago = call.service.broker.clock.wall_ms() - _MINUTE_S * 1000

    def one(
        each: tuple[PartitionMetadata, Ends], done: Callable[[_Seen | DragomanError], None]
    ) -> None:
        _see(call, *each, minute_ago, done)

    def answer(seen: list[_Seen] | DragomanError) -> None:
        if isinstance(seen, DragomanError):
            call.refuse(seen)
            return
        table = {queue_of(call, each): row.cell for each, row in zip(partitions, seen, strict=True)}
        rate = sum(each.recent for each in seen) / _MINUTE_S
        stats = bodies.TopicStats(offset_table=bodies.keyed(table), topic_put_tps=rate)
        reply_table(call, stats)

    def found(ends: list[Ends]) -> None:
        rows = list(zip(partitions, ends, strict=True))
        each_in_turn(call.service.broker.scheduler, rows, one, answer)

    with_all_ends(call, partitions, found)


class _Seen(NamedTuple):
    cell: bodies.TopicOffset
    #: Messages of the last minute.
    recent: int


def _see(
    call: Call,
    partition: PartitionMetadata,
    ends: Ends,
    minute_ago: int,
    done: Callable[[_Seen | DragomanError], None],
) -> None:
    """When the last message was stored, then how many were since a minute ago."""
    broker, end = call.service.broker, ends.last_stable_offset
    cell = bodies.TopicOffset(min_offset=ends.log_start_offset, max_offset=end)

    def timed(updated: int | DragomanError) -> None:
        if isinstance(updated, DragomanError):
            done(updated)
            return
        cell.last_update_timestamp = max(0, updated)
        if updated < minute_ago:
            counted(end)
        else:
            offset_at(broker, partition, minute_ago, counted)

    def counted(offset: int | DragomanError) -> None:
        done(offset if isinstance(offset, DragomanError) else _Seen(cell, max(0, end - offset)))

    if end > ends.log_start_offset:
        store_time_of(broker, partition, end - 1, timed)
    else:
        timed(0)
