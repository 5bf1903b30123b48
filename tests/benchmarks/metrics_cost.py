"""What metrics cost a node with 1,000 topics, 10,000 partitions and 200 groups.

    make metrics-cost [BEFORE=../before/src]

- A scrape: its time and size, its processor time, and the longest turn of the loop meanwhile. A
  connection that asks again as soon as it is answered finds the latter: no answer takes less than
  the turn that it waits for.
- Counting: µs of the node's processor time per produce request, as ratio to that of another version
  (`--before`), whose sources count less. Nodes of both take turns under the same load.

The processor time of a scrape, every fifteen seconds, and that of counting are the whole cost.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from urllib.request import Request, urlopen

from harness.broker import BenchmarkError, BrokerProcess
from harness.processes import cpu_seconds
from harness.wire import (
    Address,
    Pipeline,
    ask,
    batch_of,
    connect,
    create_topics,
    produce_frame,
    produce_reply_bytes,
)

from dragoman.protocols.kafka import messages as m

TOPICS, PARTITIONS, GROUPS = 1000, 10, 200
#: Topics of which each group reads all partitions.
TOPICS_OF_GROUP = 5
SCRAPES = 7
SCRAPE_INTERVAL_S = 15
#: Requests of one round, and how many are in flight.
REQUESTS, IN_FLIGHT = 10_000, 32
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_NAMES = [f"topic-{number:04d}" for number in range(TOPICS)]


def fill(address: Address) -> None:
    """Topics with a record in every partition, and groups that are behind on some."""
    for start in range(0, TOPICS, 50):
        create_topics(address, _NAMES[start : start + 50], PARTITIONS)
    frames = [produce_frame(name, range(PARTITIONS), batch_of(1, 100)) for name in _NAMES]
    _produce(address, frames, produce_reply_bytes(_NAMES[0], PARTITIONS), len(frames))
    for number in range(GROUPS):
        names = [
            _NAMES[(number * TOPICS_OF_GROUP + each) % TOPICS] for each in range(TOPICS_OF_GROUP)
        ]
        _commit(address, f"group-{number:03d}", names)


def _commit(address: Address, group: str, names: Sequence[str]) -> None:
    parts = [
        m.OffsetCommitRequestPartition(partition_index=index, committed_offset=index % 2)
        for index in range(PARTITIONS)
    ]
    topics = [m.OffsetCommitRequestTopic(name=name, partitions=parts) for name in names]
    deadline = time.monotonic() + 30
    while True:
        # The first group has the coordinator's topic created.
        ask(address, m.FindCoordinatorRequest(key=group), 1)
        reply = ask(address, m.OffsetCommitRequest(group_id=group, topics=topics), 8)
        assert isinstance(reply, m.OffsetCommitResponse)
        codes = {each.error_code for topic in reply.topics for each in topic.partitions}
        if codes == {0}:
            return
        if time.monotonic() > deadline:
            raise BenchmarkError(f"offsets of {group} are refused: {codes}")


def _produce(address: Address, frames: Sequence[bytes], reply_bytes: int, count: int) -> None:
    pipeline = Pipeline(address, frames, reply_bytes)
    try:
        pipeline.open(1, IN_FLIGHT)
        answered, _ = pipeline.run(count, 120.0)
    finally:
        pipeline.close()
    if answered != count:
        raise BenchmarkError(f"{answered} of {count} requests were answered in time")


# ---- scrapes


class Prober:
    """Asks again and again, and notes the longest time without an answer."""

    def __init__(self, address: Address) -> None:
        self._connection: socket.socket = connect(address)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_over = False
        self.longest_s = 0.0
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            begun = time.perf_counter()
            self._connection.sendall(_API_VERSIONS)
            self._connection.recv(1 << 16)
            self.longest_s = max(self.longest_s, time.perf_counter() - begun)

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()
        self._connection.close()


def scrape(broker: BrokerProcess, accept: str = "") -> tuple[float, int, float]:
    """Seconds, bytes, and the node's processor time."""
    host, port = broker.http_address
    cpu = cpu_seconds(broker.pid)
    begun = time.perf_counter()
    request = Request(f"http://{host}:{port}/metrics", headers={"Accept": accept})
    with urlopen(request, timeout=60) as response:
        size = len(response.read())
    return time.perf_counter() - begun, size, cpu_seconds(broker.pid) - cpu


def scrape_rows(broker: BrokerProcess) -> None:
    first_s, _, _ = scrape(broker)
    found = [scrape(broker) for _ in range(SCRAPES)]
    seconds, sizes, cpu = (median(each) for each in zip(*found, strict=True))
    turns = []
    for with_scrape in (False, True):
        prober = Prober(broker.address)
        time.sleep(0.2)
        for _ in range(3):
            if with_scrape:
                scrape(broker)
            else:
                time.sleep(seconds)
        prober.stop()
        turns.append(prober.longest_s)
    share = cpu / SCRAPE_INTERVAL_S
    print("| scrape | |\n|---|---|")
    print(f"| first, ms | {first_s * 1e3:.0f} |")
    print(f"| median, ms | {seconds * 1e3:.0f} |")
    print(f"| size, MB | {sizes / 1e6:.2f} |")
    print(f"| processor time, ms | {cpu * 1e3:.0f} |")
    print(f"| share of a core, every {SCRAPE_INTERVAL_S} s | {share:.3%} |")
    print(f"| longest wait for an answer without it, ms | {turns[0] * 1e3:.1f} |")
    print(f"| longest wait for an answer during it, ms | {turns[1] * 1e3:.1f} |")


# ---- counting


def cost_us(broker: BrokerProcess, frames: Sequence[bytes]) -> float:
    """µs of the node's processor time per request."""
    begun = cpu_seconds(broker.pid)
    _produce(broker.address, frames, produce_reply_bytes(_NAMES[0]), REQUESTS)
    return (cpu_seconds(broker.pid) - begun) / REQUESTS * 1e6


def counting_row(before: BrokerProcess, after: BrokerProcess, rounds: int) -> None:
    frames = [
        produce_frame(name, [index % PARTITIONS], batch_of(1, 100))
        for index, name in enumerate(_NAMES)
    ]
    pairs = []
    for turn in range(rounds):
        costs = {}
        for broker in (before, after) if turn % 2 else (after, before):
            costs[broker] = cost_us(broker, frames)
        pairs.append((costs[before], costs[after]))
    ratios = sorted(now / was for was, now in pairs)
    was, now = (min(each) for each in zip(*pairs, strict=True))
    print("\n| produce, µs per request | before | after | ratio of the least | median ratio |")
    print("|---|---|---|---|---|")
    print(f"| | {was:.2f} | {now:.2f} | {now / was:.3f} | {median(ratios):.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, metavar="SRC_DIR")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="metrics-cost-"))
    try:
        with ExitStack() as stack:
            brokers = []
            sources = [Path("src"), *([options.before] if options.before is not None else [])]
            for number, source in enumerate(sources):
                broker = BrokerProcess(root / str(number), serve_http=True, source=source.resolve())
                broker.start()
                stack.callback(broker.kill)
                fill(broker.address)
                brokers.append(broker)
            scrape_rows(brokers[0])
            if len(brokers) > 1:
                counting_row(brokers[1], brokers[0], options.rounds)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
