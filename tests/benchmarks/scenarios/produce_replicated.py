"""Three copies and acks=all: one record at a time, many in flight, and batches; on one partition
and on a hundred, whose leaders are spread over the nodes.

All nodes share this machine's disk and cores: an acknowledged record was written and synced three
times on them. The same load on one node with one copy, and bare synchronous writes, take turns.
"""

from __future__ import annotations

from contextlib import ExitStack

from harness.bounds import DsyncFile
from harness.broker import BrokerProcess
from harness.cluster import ClusterProcesses, LeaderPipelines, running_cluster
from harness.context import Context, settle_disk
from harness.sampling import Contender, Sample, Stopwatch, interleaved
from harness.wire import batch_of, check_produce_replies, create_topics

_SECONDS_MAX = 8.0
_COPIES = 3
_PARTITIONS = (1, 100)
_BATCH_BYTES = 1_000_000
#: By what a case is called: requests in flight, records of a request, bytes of a record, requests.
_LOADS = {
    "one at a time": (1, 1, 100, 1_500),
    "256 in flight": (256, 1, 100, 20_000),
    "1 MB batches": (6, _BATCH_BYTES // (1024 + 12), 1024, 200),
}


def run(context: Context) -> None:
    for name, (in_flight, records, value_bytes, requests) in _LOADS.items():
        for partitions in _PARTITIONS:
            if in_flight == 1 and partitions > 1:
                # One request at a time is the same whatever partition it is for.
                continue
            _case(context, name, partitions, in_flight, records, value_bytes, requests)


def _case(
    context: Context,
    name: str,
    partitions: int,
    in_flight: int,
    records: int,
    value_bytes: int,
    requests: int,
) -> None:
    count = context.scaled(requests, requests // 10)
    batch = batch_of(records, value_bytes)
    settle_disk()
    with ExitStack() as stack:
        disk = DsyncFile(context.directory("dsync"))
        stack.callback(disk.close)
        cluster = stack.enter_context(running_cluster(context))
        alone = stack.enter_context(context.broker())

        def contender(server: ClusterProcesses | BrokerProcess, copies: int) -> Contender:
            topic = f"copied-{partitions:03d}"
            create_topics(server.address, [topic], partitions, copies=copies)
            pipelines = LeaderPipelines(server.address, topic, batch, in_flight)
            stack.callback(pipelines.close)

            def produce() -> Sample:
                watch = Stopwatch(server.cpu_seconds)
                done, latencies = pipelines.run(count, _SECONDS_MAX)
                sample = watch.sample(done * records, done * records * value_bytes, latencies)
                check_produce_replies(pipelines.take_replies(), topic)
                return sample

            return produce

        def dsync() -> Sample:
            # As many records as one request has, a request a write.
            found = disk.write(len(batch), max(count // in_flight, 20), _SECONDS_MAX)
            return Sample(
                seconds=found.seconds,
                messages=found.messages * records,
                payload_bytes=found.messages * records * value_bytes,
                latencies=found.latencies,
                client_cpu_s=found.client_cpu_s,
            )

        contenders = {
            "dragoman": contender(cluster, _COPIES),
            "one node, one copy": contender(alone, 1),
            "dsync write": dsync,
        }
        samples = interleaved(contenders, context.rounds)
        memory = cluster.memory_metrics()
    context.add_contest(f"{name}, {partitions} partitions, 3 copies", samples, memory)
