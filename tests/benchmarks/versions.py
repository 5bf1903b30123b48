"""Two versions of the node beside each other: CPU per record, start time, memory.

    make bench-versions BEFORE=../before/src [ARGS="--rounds 11 --only kafka"]

A node of each version runs from its sources, in this environment. The two take turns under the same
load, and change places every round, so that a machine that slows down slows both. Each row is the
median over the rounds of one round's ratio, after : before, with the interval that holds the true
median with a confidence of at least 95 %.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from math import comb
from pathlib import Path
from statistics import median

import msgspec
from harness.broker import BenchmarkError, BrokerProcess
from harness.processes import cpu_seconds
from harness.wire import (
    Address,
    FetchReader,
    Pipeline,
    batch_of,
    check_produce_replies,
    connect,
    create_topics,
    produce_frame,
    produce_reply_bytes,
)
from scenarios import publish_cursus, publish_minibroker, publish_mlog, publish_rocketmq

from dragoman.protocols.minibroker import codec as minibroker
from dragoman.protocols.minibroker.messages import Commit, Publish
from dragoman.protocols.mlog import messages as mlog
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import AckMode, Encoding
from dragoman.protocols.rocketmq.codec import Command, encode
from dragoman.protocols.rocketmq.constants import Request, Serialization

_CONFIDENCE = 0.95
_SECONDS_MAX = 30.0
_VALUE = bytes(100)
_SMALL, _LARGE_BYTES = 100, 1_000_000
#: A row that is worse by more than this, beyond its interval, fails the run.
_WORSE = 0.03

#: Puts the broker under load once; returns how many records, or requests, it worked on.
Load = Callable[[], int]


class Row(msgspec.Struct, frozen=True):
    name: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float

    @property
    def is_worse(self) -> bool:
        return self.low > 1 + _WORSE


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Between two of the values, as many from either end as the confidence allows."""
    ordered, count = sorted(ratios), len(ratios)
    skipped = 0
    while skipped < (count - 1) // 2:
        outside = 2 * sum(comb(count, each) for each in range(skipped + 2)) / 2**count
        if outside > 1 - _CONFIDENCE:
            break
        skipped += 1
    return ordered[skipped], ordered[-1 - skipped]


def compared(name: str, unit: str, pairs: Sequence[tuple[float, float]]) -> Row:
    ratios = [after / before for before, after in pairs]
    low, high = interval(ratios)
    before, after = (median(column) for column in zip(*pairs, strict=True))
    return Row(name, unit, before, after, median(ratios), low, high)


# ---- loads


def _pipelined(
    stack: ExitStack,
    address: Address,
    frame: bytes,
    requests: int,
    *,
    in_flight: int,
    is_fine: Callable[[bytes, int], bool],
    reply_bytes: int | None = None,
    records: int = 1,
) -> Load:
    pipeline = Pipeline(address, [frame], reply_bytes)
    pipeline.open(min(in_flight, 4), in_flight)
    stack.callback(pipeline.close)

    def run() -> int:
        done, _ = pipeline.run(requests, _SECONDS_MAX)
        if not is_fine(pipeline.take_replies(), done):
            raise BenchmarkError("a request was refused")
        return done * records

    return run


def _kafka_produce(
    stack: ExitStack, address: Address, records: int, value_bytes: int, requests: int, flight: int
) -> Load:
    create_topics(address, ["produced"], 1)

    def is_fine(replies: bytes, _: int) -> bool:
        check_produce_replies(replies, "produced")
        return True

    return _pipelined(
        stack,
        address,
        produce_frame("produced", [0], batch_of(records, value_bytes)),
        requests,
        in_flight=flight,
        is_fine=is_fine,
        reply_bytes=produce_reply_bytes("produced"),
        records=records,
    )


def produce_small(stack: ExitStack, address: Address) -> Load:
    return _kafka_produce(stack, address, 1, _SMALL, 20_000, 32)


def produce_one_at_a_time(stack: ExitStack, address: Address) -> Load:
    return _kafka_produce(stack, address, 1, _SMALL, 2_000, 1)


def produce_large(stack: ExitStack, address: Address) -> Load:
    return _kafka_produce(stack, address, _LARGE_BYTES // 112, _SMALL, 200, 4)


def _fetch(stack: ExitStack, address: Address, records: int, batches: int, consumers: int) -> Load:
    create_topics(address, ["fetched"], 1)
    batch = batch_of(records, _SMALL)
    with connect(address) as connection:
        frame = produce_frame("fetched", [0], batch)
        for _ in range(batches):
            connection.sendall(frame)
            replies = b""
            while len(replies) < produce_reply_bytes("fetched"):
                replies += connection.recv(1 << 16)
            check_produce_replies(replies, "fetched")
    readers = [
        FetchReader(
            address,
            "fetched",
            batch_bytes=len(batch),
            batch_records=records,
            bytes_max=max(1 << 14, len(batch) + 100),
        )
        for _ in range(consumers)
    ]
    for each in readers:
        stack.callback(each.close)

    def run() -> int:
        for each in readers:
            each.offset = 0
            each.ask()
        reading = readers
        while reading:
            for each in reading:
                each.answer()
                if each.offset < records * batches:
                    each.ask()
            reading = [each for each in reading if each.offset < records * batches]
        return records * batches * consumers

    return run


def fetch_small(stack: ExitStack, address: Address) -> Load:
    """Several consumers keep the broker busy. It would sleep between the requests of a single one,
    and its CPU time would rise by 40 % whenever the kernel put the two on different cores.
    """
    return _fetch(stack, address, 10, 6_000, 8)


def fetch_large(stack: ExitStack, address: Address) -> Load:
    load = _fetch(stack, address, _LARGE_BYTES // 112, 100, 1)
    return lambda: sum(load() for _ in range(12))


def cursus_publish(stack: ExitStack, address: Address) -> Load:
    return _cursus(stack, address, 1, 10_000)


def cursus_batches(stack: ExitStack, address: Address) -> Load:
    return _cursus(stack, address, 100, 400)


def _cursus(stack: ExitStack, address: Address, messages: int, requests: int) -> Load:
    publish_cursus.create(address)
    return _pipelined(
        stack,
        address,
        publish_cursus.frame_of(_SMALL, messages),
        requests,
        in_flight=16,
        is_fine=lambda replies, done: replies.count(b'{"status":"OK"') == done,
        records=messages,
    )


def minibroker_publish(stack: ExitStack, address: Address) -> Load:
    frame = minibroker.encode(Publish(topic="published", payload=_VALUE))
    return _pipelined(
        stack,
        address,
        frame,
        20_000,
        in_flight=64,
        reply_bytes=publish_minibroker.OK_BYTES,
        is_fine=lambda replies, _: publish_minibroker.are_fine(replies),
    )


def minibroker_commit(stack: ExitStack, address: Address) -> Load:
    minibroker_publish(stack, address)()
    frame = minibroker.encode(Commit(group="bench", topic="published", partition=0, offset=1))
    with connect(address) as connection:
        connection.sendall(frame)
        reply = connection.recv(1 << 16)
    return _pipelined(
        stack,
        address,
        frame,
        10_000,
        in_flight=32,
        reply_bytes=len(reply),
        is_fine=lambda replies, done: replies == reply * done,
    )


def _mlog(stack: ExitStack, address: Address, request: mlog.Message, reply: mlog.Message) -> Load:
    frame = Connection(Role.CLIENT, encoding=Encoding.JSON).send(request)
    reply_bytes = len(Connection(Role.SERVER, encoding=Encoding.JSON).send(reply))

    def is_fine(replies: bytes, done: int) -> bool:
        answers = Connection(Role.CLIENT, encoding=Encoding.JSON).receive_data(replies)
        return len(answers) == done and not any(isinstance(one, mlog.RPCError) for one in answers)

    return _pipelined(
        stack, address, frame, 10_000, in_flight=32, is_fine=is_fine, reply_bytes=reply_bytes
    )


def mlog_publish(stack: ExitStack, address: Address) -> Load:
    publish_mlog.create(address, "published")
    request = mlog.Produce(topic="published", value=_VALUE, acks=AckMode.ALL)
    return _mlog(stack, address, request, mlog.ProduceResp(offset=publish_mlog.FIRST_OFFSET))


def mlog_commit(stack: ExitStack, address: Address) -> Load:
    mlog_publish(stack, address)()
    request = mlog.CommitOffset(topic="published", id="bench", offset=1)
    return _mlog(stack, address, request, mlog.CommitOffsetResp(success=True))


def _rocketmq(
    stack: ExitStack, address: Address, frame: bytes, requests: int, records: int = 1
) -> Load:
    with connect(address) as connection:
        publish_rocketmq.ask(connection, frame)
    return _pipelined(
        stack,
        address,
        frame,
        requests,
        in_flight=32,
        is_fine=lambda replies, done: publish_rocketmq.answers(replies) == done,
        records=records,
    )


def rocketmq_send(stack: ExitStack, address: Address) -> Load:
    frame = publish_rocketmq.send_frame(_VALUE, Serialization.JSON)
    return _rocketmq(stack, address, frame, 10_000)


def rocketmq_batches(stack: ExitStack, address: Address) -> Load:
    body = publish_rocketmq.batch_body(_SMALL)
    frame = publish_rocketmq.send_frame(body, Serialization.JSON, is_batch=True)
    return _rocketmq(stack, address, frame, 300, publish_rocketmq.BATCH)


def rocketmq_delayed(stack: ExitStack, address: Address) -> Load:
    """Sent with a delay of an hour, so that none is released while this lasts."""
    frame = publish_rocketmq.send_frame(_VALUE, Serialization.JSON, delay_level=17)
    return _rocketmq(stack, address, frame, 5_000)


def rocketmq_pull(stack: ExitStack, address: Address) -> Load:
    count = 20_000
    publish_rocketmq.fill(address, count, _SMALL)
    return lambda: publish_rocketmq.pull_all(address, count)


def rocketmq_commit(stack: ExitStack, address: Address) -> Load:
    rocketmq_send(stack, address)()
    fields = {
        "consumerGroup": "bench",
        "topic": publish_rocketmq.TOPIC,
        "queueId": "0",
        "commitOffset": "1",
    }
    command = Command(code=Request.UPDATE_CONSUMER_OFFSET, opaque=1, language="JAVA", fields=fields)
    return _rocketmq(stack, address, encode(command), 10_000)


def idle_round_trips(stack: ExitStack, address: Address) -> Load:
    """ApiVersions, the smallest request: what a turn of the loop costs."""
    frame = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    with connect(address) as connection:
        connection.sendall(frame)
        reply = connection.recv(1 << 16)
    return _pipelined(
        stack,
        address,
        frame,
        20_000,
        in_flight=1,
        reply_bytes=len(reply),
        is_fine=lambda replies, done: replies == reply * done,
    )


LOADS: dict[str, tuple[str, Callable[[ExitStack, Address], Load]]] = {
    "kafka: produce, 100 B, 32 in flight": ("kafka", produce_small),
    "kafka: produce, 100 B, one at a time": ("kafka", produce_one_at_a_time),
    "kafka: produce, 1 MB batches": ("kafka", produce_large),
    "kafka: fetch, batches of 10": ("kafka", fetch_small),
    "kafka: fetch, 1 MB batches": ("kafka", fetch_large),
    "kafka: smallest request": ("kafka", idle_round_trips),
    "rocketmq: send": ("rocketmq-broker", rocketmq_send),
    "rocketmq: send, batches of 100": ("rocketmq-broker", rocketmq_batches),
    "rocketmq: send, delayed": ("rocketmq-broker", rocketmq_delayed),
    "rocketmq: pull": ("rocketmq-broker", rocketmq_pull),
    "rocketmq: commit": ("rocketmq-broker", rocketmq_commit),
    "cursus: publish": ("cursus", cursus_publish),
    "cursus: publish, batches of 100": ("cursus", cursus_batches),
    "minibroker: publish": ("minibroker", minibroker_publish),
    "minibroker: commit": ("minibroker", minibroker_commit),
    "mlog: publish": ("mlog", mlog_publish),
    "mlog: commit": ("mlog", mlog_commit),
}


# ---- the run


def cpu_rows(
    root: Path, sources: Sequence[Path], rounds: int, wanted: Callable[[str], bool]
) -> Iterator[Row]:
    """µs of the broker's CPU per record, one row a load."""
    for name, (listener, make) in LOADS.items():
        if not wanted(name):
            continue
        with ExitStack() as stack:
            brokers, loads = [], []
            for number, source in enumerate(sources):
                directory = root / f"{number}"
                stack.callback(shutil.rmtree, directory, ignore_errors=True)
                broker = BrokerProcess(directory, listener=listener, source=source)
                broker.start()
                stack.callback(broker.kill)
                brokers.append(broker)
                loads.append(make(stack, broker.address))
                loads[-1]()
            pairs = []
            for turn in range(rounds):
                costs = [0.0, 0.0]
                for each in (0, 1) if turn % 2 else (1, 0):
                    begun = cpu_seconds(brokers[each].pid)
                    done = loads[each]()
                    costs[each] = (cpu_seconds(brokers[each].pid) - begun) / done * 1e6
                pairs.append((costs[0], costs[1]))
        yield compared(name, "µs", pairs)


def start_rows(root: Path, sources: Sequence[Path], rounds: int) -> Iterator[Row]:
    """Starts on an empty directory with one listener: time, processor time and memory."""
    times: list[tuple[float, float]] = []
    costs: list[tuple[float, float]] = []
    memory: list[tuple[float, float]] = []
    for turn in range(rounds):
        time_s, cpu_s, resident_mb = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
        for each in (0, 1) if turn % 2 else (1, 0):
            directory = root / f"start-{each}"
            broker = BrokerProcess(directory, source=sources[each])
            time_s[each] = broker.start() * 1e3
            cpu_s[each] = cpu_seconds(broker.pid) * 1e3
            resident_mb[each] = broker.resident_kb() / 1024
            broker.stop()
            shutil.rmtree(directory)
        times.append((time_s[0], time_s[1]))
        costs.append((cpu_s[0], cpu_s[1]))
        memory.append((resident_mb[0], resident_mb[1]))
    yield compared("start until ready", "ms", times)
    yield compared("start, CPU", "ms", costs)
    yield compared("memory after the start", "MB", memory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, metavar="SRC_DIR")
    parser.add_argument("--after", type=Path, default=Path("src"), metavar="SRC_DIR")
    parser.add_argument("--rounds", type=int, default=11, help="at least 6 for an interval")
    parser.add_argument("--only", action="append", default=[], help="part of a row's name")
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    options = parser.parse_args()
    sources = [options.before.resolve(), options.after.resolve()]
    rows = []

    def wanted(name: str) -> bool:
        return not options.only or any(each in name for each in options.only)

    print("| | before | after | after : before | 95 % |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix=".dragoman-bench-", dir=".") as directory:
        found = [cpu_rows(Path(directory), sources, options.rounds, wanted)]
        if wanted("start"):
            found.append(start_rows(Path(directory), sources, options.rounds))
        for row in (each for rows in found for each in rows):
            rows.append(row)
            mark = " **worse**" if row.is_worse else ""
            print(
                f"| {row.name}, {row.unit} | {row.before:.4g} | {row.after:.4g} | "
                f"{row.ratio:.3f}{mark} | {row.low:.3f} to {row.high:.3f} |",
                flush=True,
            )
    if options.output:
        options.output.write_text(json.dumps(msgspec.to_builtins(rows), indent=1))
    return int(any(row.is_worse for row in rows))


if __name__ == "__main__":
    sys.exit(main())
