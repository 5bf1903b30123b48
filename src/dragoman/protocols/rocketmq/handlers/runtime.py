"""How a broker does, in figures (28, 315), and its cleaning up (306, 316, 329).

What was written is counted from the offsets of the log, whichever protocol wrote it, before a
restart or after; what was read is counted since the node runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dragoman.broker.errors import NotLeader
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import DEFAULT_CLUSTER, VERSION, Response
from dragoman.protocols.rocketmq.handlers.configuration import authorize_cluster
from dragoman.protocols.rocketmq.handlers.names import visible_topic
from dragoman.protocols.rocketmq.handlers.nameserver import visible_topics
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.tables import each_in_turn
from dragoman.protocols.rocketmq.handlers.times import offset_at
from dragoman.security.authorizer import Operation

_VERSION_NAME: Final = "V4_9_3"
_DAY_MS: Final = 86_400_000
#: Ten seconds, a minute, ten minutes.
_SPANS_MS: Final = (10_000, 60_000, 600_000)
#: What this broker has none of, under the names of the threads and queues that the original has.
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


class _Written(NamedTuple):
    """Of a partition that this node leads: how many records came before each of the times, all of
    them, their bytes, and when the oldest was stored (-1: there is none).
    """

    before: tuple[int, ...]
    total: int
    kept: int
    size: int
    oldest_ms: int


def handle_get_broker_runtime_info(call: Call) -> None:
    authorize_cluster(call, Operation.DESCRIBE)
    broker = call.service.broker
    now = broker.clock.wall_ms()
    today = now - now % _DAY_MS
    times = (*(now - each for each in _SPANS_MS), today, today - _DAY_MS)
    led = [
        partition
        for topic in visible_topics(call)
        for partition in topic.partitions
        if partition.leader == broker.node_id
    ]

    def one(partition: PartitionMetadata, done: Callable[[_Written | DragomanError], None]) -> None:
        try:
            done(_written(call, partition, times))
        except NotLeader:
            # Since a moment ago.
            done(_Written((0,) * len(times), 0, 0, 0, -1))
        except DragomanError as error:
            done(error)

    def answer(found: list[_Written] | DragomanError) -> None:
        if isinstance(found, DragomanError):
            call.refuse(found)
        else:
            table = _table(call, found, now)
            call.reply(body=bodies.encode(bodies.KvTable(table=table)))

    each_in_turn(broker.scheduler, led, one, answer)


def _written(call: Call, partition: PartitionMetadata, times: Sequence[int]) -> _Written:
    log = call.service.broker.replica(partition).log
    end, latest = log.last_stable_offset, log.latest_timestamp()
    first = log.offset_for_time(0, end)
    before = []
    for each in times:
        found = None if latest < each else log.offset_for_time(each, end)
        before.append(end if found is None else found[0])
    oldest_ms = -1 if first is None else first[1]
    return _Written(tuple(before), end, end - log.log_start_offset, log.size, oldest_ms)


def _table(call: Call, found: list[_Written], now: int) -> dict[str, str]:
    broker, traffic = call.service.broker, call.node.traffic
    traffic.look()
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


def handle_view_broker_stats_data(call: Call) -> None:
    """Messages that were put to a topic, or to all topics of the cluster."""
    name, key = call.text("statsName"), call.text("statsKey")
    if name == "TOPIC_PUT_NUMS":
        topic = visible_topic(call.service.broker.image, key)
        topics = [] if topic is None else [topic]
    elif name == "BROKER_PUT_NUMS" and key == DEFAULT_CLUSTER:
        topics = visible_topics(call)
    else:
        topics = []
    if not topics:
        raise Refused(Response.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    _count(call, [each for topic in topics for each in topic.partitions])


def _count(call: Call, partitions: list[PartitionMetadata]) -> None:
    broker = call.service.broker
    now = broker.clock.wall_ms()
    spans = (60_000, 3_600_000, _DAY_MS)
    # What is there now is what came before the end of time.
    times = [*(now - each for each in spans), (1 << 63) - 1]
    wanted = [(partition, each) for partition in partitions for each in times]

    def one(
        each: tuple[PartitionMetadata, int], done: Callable[[int | DragomanError], None]
    ) -> None:
        offset_at(broker, each[0], each[1], done)

    def answer(found: list[int] | DragomanError) -> None:
        if isinstance(found, DragomanError):
            call.refuse(found)
            return
        *before, total = (sum(found[index :: len(times)]) for index in range(len(times)))
        items = [_item(total - count, span) for count, span in zip(before, spans, strict=True)]
        stats = bodies.BrokerStats(stats_minute=items[0], stats_hour=items[1], stats_day=items[2])
        call.reply(body=bodies.encode(stats))

    each_in_turn(broker.scheduler, wanted, one, answer)


def _item(count: int, span_ms: int) -> bodies.StatsItem:
    """Every message counts once: so much is the average."""
    return bodies.StatsItem(sum=count, tps=count * 1000 / span_ms, avgpt=1.0 if count else 0.0)


# ---- cleaning up


def handle_delete_expired_commitlog(call: Call) -> None:
    """What retention lets go is deleted now; nobody waits for the end of it."""
    authorize_cluster(call, Operation.ALTER)
    call.service.broker.maintenance.retain_now()
    call.reply()


handle_clean_expired_consumequeue = handle_delete_expired_commitlog


def handle_clean_unused_topic(call: Call) -> None:
    """Files go with their topic: there are none that nobody uses."""
    authorize_cluster(call, Operation.ALTER)
    call.reply()
