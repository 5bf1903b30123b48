"""Administration of a broker: settings (25, 26, 318, 319), statistics (28, 315), and clean-up (306,
316, 329).

- A node's settings are `name=value` lines, with Dragoman's names and, if one exists, RocketMQ's.
- Written messages are counted by log offsets, so they include all protocols and survive restarts.
  Read messages are counted since the node started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from dragoman.broker.errors import NotLeader
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.config.dynamic import ReadOnlyKeyError, require_dynamic
from dragoman.config.settings import NODE_KEYS
from dragoman.errors import ConfigError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import (
    BODY_BYTES_MAX,
    DEFAULT_CLUSTER,
    DELAY_LEVELS_S,
    READ_AND_WRITE,
    TRACE_TOPIC,
    VERSION,
    Perm,
    Response,
)
from dragoman.protocols.rocketmq.handlers.names import topic_name, visible_topic
from dragoman.protocols.rocketmq.handlers.offsets import offset_at
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.handlers.topics import (
    TEMPLATE_QUEUES,
    data_version,
    visible_topics,
)
from dragoman.security.access import Operation

_HOUR_MS: Final = 3_600_000
#: RocketMQ's settings that can be changed: Dragoman's key, and the conversion of values.
_NAMES: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "autoCreateTopicEnable": ("auto.create.topics.enable", str),
    "fileReservedTime": ("log.retention.ms", lambda hours: str(int(hours) * _HOUR_MS)),
}
#: The setting that clears the write permission of a broker in routes.
_PERMISSION: Final = "brokerPermission"
#: Values of that setting, and whether they clear the permission.
_PERMISSIONS: Final = {str(int(Perm.READ)): True, str(int(READ_AND_WRITE)): False}
#: Settings that exports of 4.x require.
_FIXED: Final = {
    "filterServerNums": "0",
    "msgTraceTopicName": TRACE_TOPIC,
    "slaveReadEnable": "false",
    "traceOn": "true",
    "traceTopicEnable": "false",
    "useTLS": "false",
}
_UNITS: Final = ((3600, "h"), (60, "m"), (1, "s"))
_VERSION_NAME: Final = "V4_9_3"
_DAY_MS: Final = 86_400_000
_SPANS_MS: Final = (10_000, 60_000, 600_000)
#: Statistics of thread pools and queues that only RocketMQ has.
_NOTHING: Final = dict.fromkeys(
    (
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
        "dispatchBehindBytes",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
    ),
    "0",
)


# ---- settings


def shown_settings(call: Call) -> dict[str, str]:
    service = call.service
    settings = service.broker.settings
    host, port = service.advertised(call.session.channel)
    name = call.node.broker_name
    shown = {
        "brokerClusterName": DEFAULT_CLUSTER,
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": host,
        "listenPort": str(port),
        "brokerRole": "SYNC_MASTER" if settings.is_clustered else "ASYNC_MASTER",
        "brokerPermission": str(
            int(Perm.READ if name in call.node.state.wiped else READ_AND_WRITE)
        ),
        "flushDiskType": "SYNC_FLUSH" if settings.durability == "fsync" else "ASYNC_FLUSH",
        "autoCreateTopicEnable": _text(settings.auto_create_topics_enable),
        "autoCreateSubscriptionGroup": "true",
        "defaultTopicQueueNums": str(TEMPLATE_QUEUES),
        "enablePropertyFilter": "true",
        "maxMessageSize": str(BODY_BYTES_MAX),
        "messageDelayLevel": " ".join(map(_level, DELAY_LEVELS_S)),
        "storePathRootDir": settings.data,
        "fileReservedTime": str(max(-1, settings.log_retention_ms // _HOUR_MS)),
        **_FIXED,
    }
    return shown | {each: _text(settings.value(each)) for each in NODE_KEYS}


def _level(seconds: int) -> str:
    return next(f"{seconds // unit}{name}" for unit, name in _UNITS if seconds % unit == 0)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def lines_of_request(call: Call) -> dict[str, str]:
    """Settings from the body or, from Go's client, from the fields."""
    return bodies.read_lines(call.body) if len(call.body) else dict(call.fields)


async def change_settings(call: Call, lines: Mapping[str, str]) -> None:
    """Change settings of this node, durably, atomically and with immediate effect. Raises
    `DragomanError`.
    """
    call.authorize_cluster(Operation.ALTER_CONFIGS)
    shown = shown_settings(call)
    # Tools send back all settings, most of them unchanged.
    changed = {name: value for name, value in lines.items() if shown.get(name) != value}
    permission = changed.pop(_PERMISSION, None)
    is_wiped = None if permission is None else _is_wiped(permission)
    changes = dict(_change(name, value, shown) for name, value in changed.items())
    if changes:
        broker = call.broker
        await broker.node_configs.alter(broker.node_id, lambda present: {**present, **changes})
    if is_wiped is not None:
        await call.node.state.put_wiped(call.node.broker_name, is_wiped)


def _change(name: str, value: str, shown: Mapping[str, str]) -> tuple[str, str]:
    """Dragoman's key and its new value. Raises `Refused`."""
    key, read = _NAMES.get(name, (name, str))
    try:
        if key in NODE_KEYS or name not in shown:
            require_dynamic(key)
        else:
            raise ReadOnlyKeyError(f"{name} is read-only")
        return key, read(value)
    except (ConfigError, ValueError) as error:
        text = f"{name}={value[:100]} cannot be set while the node runs: {error}"
        raise Refused(Response.INVALID_PARAMETER, text) from None


def _is_wiped(permission: str) -> bool:
    """Whether a value of `brokerPermission` forbids writes. Raises `Refused`."""
    if permission not in _PERMISSIONS:
        text = f"{_PERMISSION}={permission[:100]} cannot be set: expected 4 or 6"
        raise Refused(Response.INVALID_PARAMETER, text)
    return _PERMISSIONS[permission]


async def handle_get_broker_config(call: Call) -> Answer:
    call.authorize_cluster(Operation.DESCRIBE_CONFIGS)
    return Answer(
        fields={"version": bodies.encode(data_version(call)).decode()},
        body=bodies.write_lines(shown_settings(call)),
    )


async def handle_update_broker_config(call: Call) -> None:
    await change_settings(call, lines_of_request(call))


# ---- statistics


class _Written(NamedTuple):
    """The records of a partition that this node leads."""

    #: By time, the number of records before it.
    before: tuple[int, ...]
    #: The number of records ever written, and of those still stored.
    total: int
    kept: int
    size: int
    #: The store time of the oldest record; -1 when there is none.
    oldest_ms: int


async def handle_get_broker_runtime_info(call: Call) -> bodies.KvTable:
    call.authorize_cluster(Operation.DESCRIBE)
    broker = call.broker
    now = broker.clock.wall_ms()
    today = now - now % _DAY_MS
    times = (*(now - each for each in _SPANS_MS), today, today - _DAY_MS)
    found = []
    for partition in [each for topic in visible_topics(call) for each in topic.partitions]:
        if partition.leader == broker.node_id:
            # Leadership may have moved since the image was read.
            with suppress(NotLeader):
                found.append(_written(call, partition, times))
            await call.pause()
    return bodies.KvTable(table=_table(call, found, now))


def _written(call: Call, partition: PartitionMetadata, times: Sequence[int]) -> _Written:
    log = call.broker.partitions.replica(partition).log
    end, latest = log.last_stable_offset, log.latest_timestamp()
    first = log.offset_for_time(0, end)
    before = []
    for each in times:
        found = None if latest < each else log.offset_for_time(each, end)
        before.append(end if found is None else found[0])
    oldest_ms = -1 if first is None else first[1]
    return _Written(tuple(before), end, end - log.log_start_offset, log.size, oldest_ms)


def _table(call: Call, found: list[_Written], now: int) -> dict[str, str]:
    broker, traffic = call.broker, call.node.traffic
    traffic.begin_day()
    total = sum(each.total for each in found)
    before = [sum(each.before[index] for each in found) for index in range(len(_SPANS_MS) + 2)]
    put_rates = [
        (total - count) * 1000 / span for count, span in zip(before, _SPANS_MS, strict=False)
    ]
    count, size = sum(each.kept for each in found), sum(each.size for each in found)
    oldest = [each.oldest_ms for each in found if each.oldest_ms >= 0]
    free = broker.store.disk.free_bytes()
    ratio = f"{size / (size + free):.4f}" if size + free else "0"
    transferred = _rates(traffic.per_second(traffic.messages))
    return _NOTHING | {
        "brokerVersionDesc": _VERSION_NAME,
        "brokerVersion": str(VERSION),
        "bootTimestamp": str(traffic.started_ms),
        "brokerActive": "false" if broker.is_stopping else "true",
        "runtime": _duration(now - traffic.started_ms),
        "putTps": _rates(put_rates),
        "getTotalTps": _rates(traffic.per_second(traffic.pulls)),
        "getFoundTps": _rates(traffic.per_second(traffic.hits)),
        "getMissTps": _rates(traffic.per_second(traffic.misses)),
        "getTransferredTps": transferred,
        "getTransferedTps": transferred,
        "msgPutTotalYesterdayMorning": str(before[-1]),
        "msgPutTotalTodayMorning": str(before[-2]),
        "msgPutTotalTodayNow": str(total),
        "msgGetTotalYesterdayMorning": str(traffic.before_yesterday),
        "msgGetTotalTodayMorning": str(traffic.before_today),
        "msgGetTotalTodayNow": str(traffic.messages.total),
        "earliestMessageTimeStamp": str(min(oldest, default=-1)),
        "commitLogDiskRatio": ratio,
        "consumeQueueDiskRatio": ratio,
        "commitLogDirCapacity": f"Total : {size + free} B, Free : {free} B.",
        "remainHowManyDataToFlush": "0 B",
        "putMessageTimesTotal": str(total),
        "putMessageAverageSize": str(size / count if count else 0.0),
    }


def _rates(rates: Sequence[float]) -> str:
    return " ".join(f"{each:.2f}" for each in rates)


def _duration(ms: int) -> str:
    seconds = max(0, ms) // 1000
    days, hours = divmod(seconds // 3600, 24)
    minutes = seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


# ---- statistics by name


async def handle_view_broker_stats_data(call: Call) -> bodies.BrokerStats:
    """Messages written to a topic, or to all topics of the cluster."""
    name, key = call.text("statsName"), call.text("statsKey")
    if name == "TOPIC_PUT_NUMS":
        call.authorize_topic(Operation.DESCRIBE, topic_name(key))
        topic = visible_topic(call.broker.image, key)
        topics = [] if topic is None else [topic]
    elif name == "BROKER_PUT_NUMS" and key == DEFAULT_CLUSTER:
        topics = visible_topics(call)
    else:
        topics = []
    if not topics:
        raise Refused(Response.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    return await _count(call, [each for topic in topics for each in topic.partitions])


async def _count(call: Call, partitions: list[PartitionMetadata]) -> bodies.BrokerStats:
    now = call.broker.clock.wall_ms()
    spans = (60_000, 3_600_000, _DAY_MS)
    counts = [0] * len(spans)
    for partition in partitions:
        # The offset for the largest possible time is the end of the partition.
        end = await offset_at(call.node, partition, (1 << 63) - 1)
        for index, span in enumerate(spans):
            counts[index] += end - await offset_at(call.node, partition, now - span)
            await call.pause()
    items = [_item(count, span) for count, span in zip(counts, spans, strict=True)]
    return bodies.BrokerStats(stats_minute=items[0], stats_hour=items[1], stats_day=items[2])


def _item(count: int, span_ms: int) -> bodies.StatsItem:
    """The average is 1, because every message counts once."""
    return bodies.StatsItem(sum=count, tps=count * 1000 / span_ms, avgpt=1.0 if count else 0.0)


# ---- clean-up


async def handle_delete_expired_commitlog(call: Call) -> None:
    """Start to apply retention. The response does not wait for the result."""
    call.authorize_cluster(Operation.ALTER)
    call.broker.maintenance.retain_now()


handle_clean_expired_consumequeue = handle_delete_expired_commitlog


async def handle_clean_unused_topic(call: Call) -> None:
    """Do nothing, because files are deleted with their topic."""
    call.authorize_cluster(Operation.ALTER)
