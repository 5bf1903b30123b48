"""A group member on librdkafka."""

from __future__ import annotations

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from torture.member import (
    ANSWER_S,
    GROUP,
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Book,
    Place,
)


class ConfluentMember:
    def __init__(self, protocol: str, servers: str, book: Book) -> None:
        config = {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": REBALANCE_MS,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._is_incremental = protocol != "range"
        if protocol == "consumer":
            config["group.protocol"] = "consumer"
        else:
            config["partition.assignment.strategy"] = protocol
            config["session.timeout.ms"] = SESSION_MS
            config["heartbeat.interval.ms"] = HEARTBEAT_MS
        self._book = book
        self._consumer = Consumer(config)
        self._consumer.subscribe(
            [TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _place(self) -> Place:
        # "CGMDv2:", then the generation as the machine has integers.
        metadata = self._consumer.consumer_group_metadata()
        generation = int.from_bytes(metadata[7:11], sys.byteorder, signed=True)
        return generation, self._consumer.memberid()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        place = self._place()
        started = time.monotonic()
        offsets: dict[int, int] = {}
        try:
            found = consumer.committed(partitions, timeout=ANSWER_S) if partitions else []
            if all(each.error is None for each in found):
                offsets = {each.partition: max(each.offset, 0) for each in found}
        except KafkaException:
            pass  # It finds out by itself where to begin.
        for each in partitions:
            if each.partition in offsets:
                each.offset = offsets[each.partition] or OFFSET_BEGINNING
        (consumer.incremental_assign if self._is_incremental else consumer.assign)(partitions)
        self._book.takes([each.partition for each in partitions], place)
        self._book.resumes(started, offsets)

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition], lost: bool) -> None:
        place = self._place()
        if self._is_incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()
        self._book.gives_up([each.partition for each in partitions], place, lost=lost)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up(consumer, partitions, lost=False)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up(consumer, partitions, lost=True)

    def run(self) -> None:
        while not self._book.is_leaving:
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._book.reads(message.partition(), message.offset())
            self._commit(self._book.to_commit())
        self._consumer.close()

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        place, started = self._place(), time.monotonic()
        wanted = [TopicPartition(TOPIC, each, offset) for each, offset in offsets.items()]
        try:
            answer = self._consumer.commit(offsets=wanted, asynchronous=False)
            for each in answer:
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            self._book.refused(started, offsets, error)
        else:
            self._book.committed(started, offsets, place)
