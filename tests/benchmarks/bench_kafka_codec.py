"""Microseconds per message for the Kafka codec's hot paths.

    PYTHONPATH=src python tests/benchmarks/bench_kafka_codec.py

Prints the best of several rounds. The number in brackets is the target where there is one.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable

from dragoman.framing import Scratch
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import ServerConnection


def microseconds(operation: Callable[[], object], rounds: int = 7) -> float:
    operation()
    start = time.perf_counter()
    operation()
    number = max(1, int(0.02 / (time.perf_counter() - start + 1e-9)))
    return min(timeit.repeat(operation, number=number, repeat=rounds)) / number * 1e6


def produce_request(records: bytes) -> m.ProduceRequest:
    partition = m.ProduceRequestPartition(index=3, records=records)
    topic = m.ProduceRequestTopic(name="orders", partition_data=[partition])
    return m.ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])


def produce_response() -> m.ProduceResponse:
    partition = m.ProduceResponsePartition(index=3, base_offset=123456, log_start_offset=0)
    topic = m.ProduceResponseTopic(name="orders", partition_responses=[partition])
    return m.ProduceResponse(responses=[topic])


def fetch_request() -> m.FetchRequest:
    partition = m.FetchRequestPartition(
        partition=3, current_leader_epoch=1, fetch_offset=123456, partition_max_bytes=1 << 20
    )
    topic = m.FetchRequestTopic(topic="orders", partitions=[partition])
    return m.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[topic])


def fetch_response(records: bytes, partitions: int = 1) -> m.FetchResponse:
    found = [
        m.FetchResponsePartition(
            partition_index=index,
            high_watermark=9000,
            last_stable_offset=9000,
            log_start_offset=0,
            aborted_transactions=None,
            records=records,
        )
        for index in range(partitions)
    ]
    return m.FetchResponse(responses=[m.FetchResponseTopic(topic="orders", partitions=found)])


def metadata_response(topics: int, partitions: int) -> m.MetadataResponse:
    brokers = [m.MetadataResponseBroker(node_id=n, host="broker", port=9092) for n in (1, 2, 3)]
    found = [
        m.MetadataResponseTopic(
            name=f"topic-{number}",
            topic_id=number.to_bytes(16, "big"),
            partitions=[
                m.MetadataResponsePartition(
                    partition_index=index,
                    leader_id=1,
                    leader_epoch=0,
                    replica_nodes=[1, 2, 3],
                    isr_nodes=[1, 2, 3],
                )
                for index in range(partitions)
            ],
        )
        for number in range(1, topics + 1)
    ]
    return m.MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=found)


def decoding(message: m.Message, api_key: int, version: int) -> Callable[[], object]:
    body = bytearray(codec.encode_body(message, version))
    return lambda: codec.decode_request(api_key, version, body, 0)


def receiving(message: m.Message, version: int) -> Callable[[], object]:
    """Frame, header and body, as a transport would hand them in."""
    frame = codec.join(codec.encode_request(message, version, 1, "rdkafka"))
    connection = ServerConnection(100 << 20, Scratch())

    def receive() -> object:
        connection.reader.get_buffer(-1)[: len(frame)] = frame
        (received,) = connection.reader.buffer_updated(len(frame))
        return connection.request(received).decode()

    return receive


def replying(message: m.Message, version: int) -> Callable[[], object]:
    return lambda: codec.encode_response(message, version, 7)


def cases() -> list[tuple[str, float | None, Callable[[], object]]]:
    large, small = bytes(16 << 10), bytes(100)
    heartbeat = m.HeartbeatRequest(group_id="billing", generation_id=3, member_id="rdkafka-1")
    return [
        ("Produce v9 request decode, 16 KiB", 3.0, decoding(produce_request(large), 0, 9)),
        ("Produce v7 request decode, 100 B", 3.0, decoding(produce_request(small), 0, 7)),
        ("Produce v7 frame in to request, 100 B", None, receiving(produce_request(small), 7)),
        ("Produce v9 frame in to request, 16 KiB", None, receiving(produce_request(large), 9)),
        ("Produce v7 response encode", 2.0, replying(produce_response(), 7)),
        ("Produce v9 response encode", 2.0, replying(produce_response(), 9)),
        (
            "Produce v9 response build and encode",
            None,
            lambda: codec.encode_response(produce_response(), 9, 7),
        ),
        ("Fetch v12 request decode", 3.0, decoding(fetch_request(), 1, 12)),
        ("Fetch v12 response encode, 16 KiB", 3.0, replying(fetch_response(large), 12)),
        ("Fetch v12 response encode, 10 x 16 KiB", None, replying(fetch_response(large, 10), 12)),
        (
            "Fetch v12 response build and encode",
            None,
            lambda: codec.encode_response(fetch_response(large), 12, 7),
        ),
        ("Metadata v12 response encode, 100 x 4", None, replying(metadata_response(100, 4), 12)),
        ("Heartbeat v4 request decode", None, decoding(heartbeat, 12, 4)),
        ("Heartbeat v4 response encode", None, replying(m.HeartbeatResponse(), 4)),
    ]


def main() -> None:
    for name, target, operation in cases():
        goal = "" if target is None else f"  [{target:g}]"
        print(f"{microseconds(operation):9.2f} us  {name}{goal}")


if __name__ == "__main__":
    main()
