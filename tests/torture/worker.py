"""One worker that reads, transforms and writes in transactions, as a process.

`python -m torture.worker TRANSACTIONAL_ID PROTOCOL SERVERS DIARY`. Every record of the input
becomes one of the output, with the same key; the offsets read are committed in the same
transaction. Now and then it changes its mind and aborts. SIGTERM makes it stop after the
transaction at hand; what it cannot recover from ends it, and another worker has to take its place.

Entries of the diary: `committed` and `aborted` transactions, `retried` steps, `fatal` errors.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from torture.diary import Diary
from torture.member import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS

INPUT = "input"
OUTPUT = "output"
GROUP = "workers"
#: Longer than a session: a worker that was thrown out may still have its transaction.
TRANSACTION_MS = 15_000
RECORDS_MAX = 40
ANSWER_S = 10.0
#: Exit status.
FENCED_OR_FAILED = 3
ABORTED_SHARE = 0.08
REWINDS_MAX = 20
WORK_S_MAX = 0.1


class Worker:
    def __init__(self, transactional_id: str, protocol: str, servers: str, diary: Diary) -> None:
        self._random = random.Random(transactional_id)
        self._diary = diary
        self._read: list[Message] = []
        self._is_stopping = False
        signal.signal(signal.SIGTERM, self._stop)
        common = {
            "bootstrap.servers": servers,
            "reconnect.backoff.max.ms": 300,
            # While no broker is up librdkafka forgets those it knew, and then waits for one of
            # them for ever before it commits offsets (its issues 5456 and 5511).
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self._producer = Producer(
            common
            | {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_MS}
        )
        sharing: dict[str, object] = {"group.protocol": "consumer"}
        if protocol != "consumer":
            sharing = {
                "partition.assignment.strategy": protocol,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        self._consumer = Consumer(
            common
            | sharing
            | {
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "max.poll.interval.ms": REBALANCE_MS,
                "fetch.wait.max.ms": 100,
            }
        )

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True

    def run(self) -> None:
        self._insist(lambda: self._producer.init_transactions(ANSWER_S))
        self._consumer.subscribe(
            [INPUT], on_assign=lambda *_: None, on_revoke=self._gone, on_lost=self._gone
        )
        while not self._is_stopping:
            self._gather()
            if self._read:
                self._transact()
        self._consumer.close()

    def _gone(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {each.partition for each in partitions}
        self._read = [each for each in self._read if each.partition() not in gone]

    def _gather(self) -> None:
        wanted = self._random.randint(1, RECORDS_MAX)
        while len(self._read) < wanted:
            message = self._consumer.poll(0.05)
            if message is None:
                return
            if message.error() is None:
                self._read.append(message)

    def _transact(self) -> None:
        read, self._read = self._read, []
        # Taken now: a worker that is thrown out from here on must not commit what it has read.
        place = self._consumer.consumer_group_metadata()
        try:
            self._producer.begin_transaction()
            for message in read:
                self._producer.produce(OUTPUT, message.value(), message.key())
            # The work, in which most of them are when something happens to them.
            time.sleep(self._random.uniform(0, WORK_S_MAX))
            if self._random.random() < ABORTED_SHARE:
                self._abort("by choice")
                return
            after = {each.partition(): each.offset() + 1 for each in read}
            offsets = [TopicPartition(INPUT, each, offset) for each, offset in after.items()]
            self._insist(
                lambda: self._producer.send_offsets_to_transaction(offsets, place, ANSWER_S)
            )
            self._insist(lambda: self._producer.commit_transaction(ANSWER_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(str(error))
        else:
            self._diary.write("committed", records=len(read))

    def _abort(self, why: str) -> None:
        self._insist(lambda: self._producer.abort_transaction(ANSWER_S))
        self._diary.write("aborted", why=why)
        self._rewind()

    def _rewind(self) -> None:
        """The next attempt begins where the last committed one ended."""
        self._read = []
        for _ in range(REWINDS_MAX):
            try:
                assigned = self._consumer.assignment()
                for each in self._consumer.committed(assigned, timeout=ANSWER_S):
                    if each.error is not None:
                        raise KafkaException(each.error)
                    each.offset = max(each.offset, 0)
                    self._consumer.seek(each)
                return
            except KafkaException as error:
                # The broker is down, or the partitions have just moved to another member.
                last = error
        raise last

    def _insist(self, step: Callable[[], object]) -> None:
        """As long as the error is one that another try may mend."""
        while True:
            try:
                step()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self._diary.write("retried", error=str(error))


def main(transactional_id: str, protocol: str, servers: str, path: str) -> None:
    # Where it hangs, should it ever.
    faulthandler.register(signal.SIGUSR1)
    diary = Diary(path)
    try:
        Worker(transactional_id, protocol, servers, diary).run()
    except KafkaException as error:
        diary.write("fatal", error=str(error))
        sys.exit(FENCED_OR_FAILED)


if __name__ == "__main__":
    main(*sys.argv[1:])
