"""A blocking Kafka client on a plain socket: whole requests out, whole replies in."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import TypeVar

from dragoman.framing import Scratch
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import ClientConnection, Reply
from dragoman.types import Buffer

Answer = TypeVar("Answer", bound=m.Message)
TIMEOUT_S = 60.0


class KafkaSocket:
    def __init__(self, address: str, *, receive_buffer: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket(socket.AF_INET)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket.connect((host, int(port)))
        except BaseException:
            self.socket.close()
            raise
        self._client = ClientConnection("raw", 100 << 20, Scratch())
        self._waiting: list[Reply] = []

    def __enter__(self) -> KafkaSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: m.Message, version: int) -> None:
        self.socket.sendall(codec.join(self._client.send(request, version)[1]))

    def receive(self) -> Reply:
        while not self._waiting:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._waiting += self._client.receive_data(data)
        return self._waiting.pop(0)

    def ask(self, request: m.Message, version: int, kind: type[Answer]) -> Answer:
        self.send(request, version)
        message = self.receive().message
        assert isinstance(message, kind)
        return message

    def is_closed_by_peer(self) -> bool:
        """Waits for the end of the stream; anything else that comes is an answer."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # ---- whole conversations

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        topic = m.CreateTopicsRequestTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                m.CreateTopicsRequestConfig(key.replace("_", "."), value)
                for key, value in configs.items()
            ],
        )
        response = self.ask(m.CreateTopicsRequest(topics=[topic]), 7, m.CreateTopicsResponse)
        assert response.topics[0].error_code == 0, response.topics[0]

    def metadata(self, *names: str) -> m.MetadataResponse:
        topics = [m.MetadataRequestTopic(name=name) for name in names]
        return self.ask(m.MetadataRequest(topics=topics), 9, m.MetadataResponse)

    def produce(self, topic: str, batch: Buffer, partition: int = 0) -> m.ProduceResponsePartition:
        part = m.ProduceRequestPartition(partition, batch)
        request = m.ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[m.ProduceRequestTopic(name=topic, partition_data=[part])],
        )
        return self.ask(request, 9, m.ProduceResponse).responses[0].partition_responses[0]

    def fetch(
        self, topic: str, offset: int, partition: int = 0, *, bytes_max: int = 8 << 20
    ) -> m.FetchResponsePartition:
        response = self.ask(fetch_request(topic, offset, partition, bytes_max), 11, m.FetchResponse)
        return response.responses[0].partitions[0]


def fetch_request(
    topic: str,
    offset: int,
    partition: int = 0,
    bytes_max: int = 8 << 20,
    *,
    max_wait_ms: int = 0,
) -> m.FetchRequest:
    part = m.FetchRequestPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max
    )
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[m.FetchRequestTopic(topic=topic, partitions=[part])],
    )


def frame_of(payload: bytes | Sequence[int]) -> bytes:
    data = bytes(payload)
    return struct.pack(">i", len(data)) + data
