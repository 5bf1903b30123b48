"""What a live tail through the console costs the node, beside one consumer of Kafka's protocol.

    make console-tail

A producer writes at a fixed rate, alone, then read by a bare consumer, then by the console for a
headless browser that reads the stream of events. The node, the console, the producer and the reader
are processes of their own. The scenarios take turns, and the median of the rounds is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from dragoman.client.kafka import (
    LATEST,
    BlockingKafkaClient,
    KafkaClient,
    NewRecord,
    NewTopic,
    TopicPartition,
)
from nodes.process import serve

TOPIC = "busy"
PARTITIONS = 4
BATCH = 100
INTERVAL_S = 0.01
SETTLE_S = 2.0
SCENARIOS = ("no reader", "one consumer", "one console tail", "one console tail with a filter")


def cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def produce(bootstrap: str, seconds: float) -> list[float]:
    """Latencies in milliseconds of batches that are acknowledged."""
    value = b'{"n": 1, "text": "%s"}' % (b"x" * 175)
    found = []
    async with KafkaClient(bootstrap) as client:
        until = due = time.perf_counter()
        until += seconds
        number = 0
        while due < until:
            number += 1
            records = [NewRecord(value=value, partition=number % PARTITIONS)] * BATCH
            begun = time.perf_counter()
            await client.produce_records(TOPIC, records)
            found.append((time.perf_counter() - begun) * 1000)
            due += INTERVAL_S
            await asyncio.sleep(max(due - time.perf_counter(), 0))
    return found


def producing(bootstrap: str, seconds: float, result: Any) -> None:
    result.put(asyncio.run(produce(bootstrap, seconds)))


async def consume(bootstrap: str) -> None:
    wanted = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
    async with KafkaClient(bootstrap) as client:
        ends = await client.list_offsets(dict.fromkeys(wanted, LATEST))
        starts = {where: each.offset for where, each in ends.items()}
        async with client.reader(starts) as reader:
            while await reader.next_records():
                pass


def consuming(bootstrap: str, _: str) -> None:
    asyncio.run(consume(bootstrap))


def tailing(_: str, console: str, filter_: str = "") -> None:
    request = urllib.parse.quote(json.dumps({"topics": [TOPIC], "filter": filter_}))
    with urllib.request.urlopen(f"{console}/records/tail?request={request}") as events:
        for _line in events:
            pass


def filtering(bootstrap: str, console: str) -> None:
    tailing(bootstrap, console, "value.n > 1")


READERS = {
    "one consumer": consuming,
    "one console tail": tailing,
    "one console tail with a filter": filtering,
}


def run(name: str, node: int, bootstrap: str, console: str, seconds: float) -> tuple[float, float]:
    """CPU of the node in percent of a core, and the 99th percentile of producing."""
    context = multiprocessing.get_context("spawn")
    reader = None
    if name in READERS:
        reader = context.Process(target=READERS[name], args=(bootstrap, console))
        reader.start()
    result = context.SimpleQueue()
    producer = context.Process(target=producing, args=(bootstrap, seconds + SETTLE_S, result))
    producer.start()
    time.sleep(SETTLE_S)
    before, begun = cpu_s(node), time.perf_counter()
    latencies = result.get()
    used = (cpu_s(node) - before) / (time.perf_counter() - begun) * 100
    producer.join()
    if reader is not None:
        reader.kill()
        reader.join()
    return used, statistics.quantiles(latencies[len(latencies) // 5 :], n=100)[98]


def serving_console(bootstrap: str, server: str) -> tuple[subprocess.Popen[bytes], str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = ("--listen", address, "--bootstrap", bootstrap, "--server", server)
    command = [sys.executable, "-m", "dragoman.cli.main", "console", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    # It says where it is.
    process.stderr.readline()
    return process, f"http://{address}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        node = serve(directory, "--listen", "http=127.0.0.1:0")
        bootstrap = node.bootstrap_servers
        process, console = serving_console(bootstrap, f"http://{node.listeners['http']}")
        try:
            with BlockingKafkaClient(bootstrap) as client:
                client.create_topic(NewTopic(name=TOPIC, partitions=PARTITIONS))
            found: dict[str, list[tuple[float, float]]] = {each: [] for each in SCENARIOS}
            for _ in range(options.rounds):
                for name in SCENARIOS:
                    pid = node.process.pid
                    found[name].append(run(name, pid, bootstrap, console, options.seconds))
        finally:
            process.terminate()
            process.wait()
            node.stop()
    rate = BATCH / INTERVAL_S
    print(f"{rate:,.0f} records of 200 bytes a second, {options.rounds} rounds\n")
    print("| | node CPU % | produce p99 ms |\n|---|---|---|")
    for name, rounds in found.items():
        used, latency = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"| {name} | {used:.1f} | {latency:.2f} |")


if __name__ == "__main__":
    main()
