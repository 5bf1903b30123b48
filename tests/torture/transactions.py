"""Torture of transactions: workers read, transform and write exactly once while they and the broker
are killed.

Checked, at the end and after one more kill:

- every record of the input has exactly one effect that a reader of committed records sees;
- a transaction that is open when the broker is killed is open afterwards, and ends as its owner
  decides; one whose owner is gone is aborted by the coordinator when its time is up;
- nothing hangs: no transaction is open or half done, and every last stable offset is at the end.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from dragoman.protocols.kafka import messages as m
from protocols.kafka_socket import KafkaSocket
from torture.member import SESSION_MS
from torture.stage import WAIT_S, ClientProcess, Feeder, Node, moments
from torture.worker import ANSWER_S, FENCED_OR_FAILED, GROUP, INPUT, OUTPUT

#: Of transactions whose owner is gone.
ABANDONED_MS = 4_000
#: Of transactions that continue when the broker was killed, however busy the machine is.
CONTINUED_MS = 60_000
LASTING_STATES = ("Empty", "CompleteCommit", "CompleteAbort")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    protocol: str
    seed: int
    workers: int = 5
    partitions: int = 8
    seconds: float = 60.0
    broker_kills: int = 5
    records_per_second: int = 200


class Figures(msgspec.Struct, kw_only=True):
    #: Which version of Kafka's transactions the clients use (2: KIP-890).
    transaction_version: int = 0
    worker_kills: int = 0
    frozen: int = 0
    fenced_or_failed: int = 0
    broker_kills: int = 0
    open_over_a_kill: int = 0
    left_to_time_out: int = 0
    committed: int = 0
    aborted: int = 0
    records_in: int = 0
    records_out: int = 0
    #: What a reader of uncommitted records finds besides.
    records_aborted: int = 0

    def __str__(self) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')} {getattr(self, name)}" for name in self.__struct_fields__
        )


class HeldTransaction:
    """A transaction that this process opens, and ends later or never."""

    def __init__(self, servers: str, name: str, *, timeout_ms: int = CONTINUED_MS) -> None:
        self.name = name
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(ANSWER_S)
        self.open()

    def open(self) -> None:
        self._producer.begin_transaction()
        self._producer.produce(OUTPUT, b"held", self.name.encode())
        assert self._producer.flush(ANSWER_S) == 0

    def end(self, *, commits: bool) -> None:
        if commits:
            self._producer.commit_transaction(WAIT_S)
        else:
            self._producer.abort_transaction(WAIT_S)


class Torture:
    def __init__(self, directory: Path, plan: Plan) -> None:
        self.figures = Figures()
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._directory = directory
        self._all: list[ClientProcess] = []
        #: The process that has a transactional id now; others with the same id are fenced.
        self._workers: dict[str, ClientProcess] = {}
        self._expected: Counter[str] = Counter()
        self._abandoned: list[HeldTransaction] = []
        self._node = Node(directory / "data")
        self._node.create_topic(INPUT, plan.partitions)
        self._node.create_topic(OUTPUT, plan.partitions)

    def run(self) -> Figures:
        plan = self._plan
        self.figures.transaction_version = self._transaction_version()
        feeder = Feeder(self._node.servers, INPUT, plan.partitions, plan.records_per_second)
        try:
            self._storm()
            feeder.stop()
            self._expected.update(str(number) for number in range(feeder.delivered))
            self._settle()
            self._check()
        finally:
            feeder.abandon()
            for worker in self._all:
                if worker.process.poll() is None:
                    worker.crash()
            self._node.abandon()
        self.figures.records_in = feeder.delivered
        return self.figures

    # ---- the storm

    def _storm(self) -> None:
        for index in range(self._plan.workers):
            self._start(f"worker-{index}")
        kills = moments(self._random, self._plan.seconds, self._plan.broker_kills)
        end = time.monotonic() + self._plan.seconds
        while time.monotonic() < end:
            if kills and time.monotonic() >= kills[0]:
                kills.pop(0)
                self._kill_broker()
            self._change()
            for worker in self._all:
                worker.thaw_when_due()
            self._replace_those_that_ended()
            time.sleep(self._random.uniform(0.1, 1.0))
        for _ in kills:
            self._kill_broker()
        for worker in self._all:
            worker.thaw_when_due(now=True)

    def _start(self, name: str) -> None:
        path = self._directory / f"{name}-{len(self._all):03}.jsonl"
        arguments = (name, self._plan.protocol, self._node.servers)
        worker = ClientProcess("torture.worker", arguments, path)
        self._all.append(worker)
        self._workers[name] = worker

    def _change(self) -> None:
        awake = [name for name, worker in self._workers.items() if worker.thaws_at is None]
        if not awake:
            return
        name = self._random.choice(awake)
        match self._random.choice(("crash", "freeze", "freeze", "replace", "abandon", "nothing")):
            case "crash":
                self._workers[name].crash()
                self.figures.worker_kills += 1
                self._start(name)
            case "freeze":
                # It may wake up with a transaction of what others have read meanwhile.
                self._freeze(name, sessions=self._random.uniform(1.2, 2.5))
            case "replace":
                # It wakes up in the middle of a transaction that its successor has aborted.
                self._freeze(name, sessions=self._random.uniform(0.2, 1.5))
                self._start(name)
            case "abandon" if len(self._abandoned) < self._plan.seconds / 5:
                number = len(self._abandoned)
                # Its producer stays as it is: a client that hangs.
                abandoned = HeldTransaction(
                    self._node.servers, f"abandoned-{number}", timeout_ms=ABANDONED_MS
                )
                self._abandoned.append(abandoned)
                self.figures.left_to_time_out += 1

    def _freeze(self, name: str, *, sessions: float) -> None:
        self._workers[name].freeze(sessions * SESSION_MS / 1000)
        self.figures.frozen += 1

    def _replace_those_that_ended(self) -> None:
        for name, worker in list(self._workers.items()):
            if worker.process.poll() is not None:
                self._start(name)

    def _kill_broker(self) -> None:
        """Kills it while a transaction is open, which then continues."""
        name = f"held-{self._node.kills}"
        held = HeldTransaction(self._node.servers, name)
        self._node.kill()
        commits = self._random.random() < 0.5
        state = self._states([name])[name]
        assert state == "Ongoing", (name, state)
        held.end(commits=commits)
        self._expected[name] += commits
        self.figures.open_over_a_kill += 1

    # ---- what the broker says

    def _described(self, names: list[str]) -> dict[str, m.DescribeTransactionsResponseTransaction]:
        request = m.DescribeTransactionsRequest(transactional_ids=names)

        def question(
            client: KafkaSocket,
        ) -> tuple[int, dict[str, m.DescribeTransactionsResponseTransaction]]:
            found = client.ask(request, 0, m.DescribeTransactionsResponse).transaction_states
            error = next((each.error_code for each in found if each.error_code), 0)
            return error, {each.transactional_id: each for each in found}

        return self._node.ask(question)

    def _states(self, names: list[str]) -> dict[str, str]:
        return {name: each.transaction_state for name, each in self._described(names).items()}

    def _listed(self) -> dict[str, str]:
        """All transactional ids and their states."""

        def question(client: KafkaSocket) -> tuple[int, dict[str, str]]:
            answer = client.ask(m.ListTransactionsRequest(), 1, m.ListTransactionsResponse)
            states = answer.transaction_states
            return answer.error_code, {
                each.transactional_id: each.transaction_state for each in states
            }

        return self._node.ask(question)

    def _transaction_version(self) -> int:
        """With the second version the epoch grows by each transaction."""
        name = "probe"
        probe = HeldTransaction(self._node.servers, name)
        before = self._described([name])[name].producer_epoch
        probe.end(commits=False)
        probe.open()
        after = self._described([name])[name].producer_epoch
        probe.end(commits=False)
        return 2 if after > before else 1

    # ---- afterwards

    def _settle(self) -> None:
        """Everything is worked off, and nothing hangs."""
        partitions = self._plan.partitions
        ends = {each: end for each, (end, _) in self._node.ends(INPUT, partitions).items()}
        deadline = time.monotonic() + WAIT_S
        while True:
            self._replace_those_that_ended()
            committed = self._node.committed(GROUP, INPUT, partitions)
            hanging = {k: v for k, v in self._listed().items() if v not in LASTING_STATES}
            output = self._node.ends(OUTPUT, partitions)
            unstable = {each: both for each, both in output.items() if both[0] != both[1]}
            if committed == ends and not hanging and not unstable:
                break
            assert time.monotonic() < deadline, (
                f"committed {committed} of {ends}; hanging {hanging}; unstable {unstable}"
            )
            time.sleep(0.2)
        for worker in self._all:
            if worker.process.poll() is None:
                worker.leave()
            status = worker.finish()
            assert worker.ended_well or status == FENCED_OR_FAILED, worker.name

    def _check(self) -> None:
        self._node.kill()
        found = self._output(committed_only=True)
        twice = [key for key, count in found.items() if count > 1]
        lost = self._expected - found
        assert not twice, f"{len(twice)} seen more than once: {twice[:10]}"
        assert not lost, f"{len(lost)} never seen: {list(lost)[:10]}"
        assert found == self._expected, list(found - self._expected)[:10]
        count = self.figures
        count.records_out = found.total()
        count.records_aborted = self._output(committed_only=False).total() - found.total()
        count.broker_kills = self._node.kills
        kinds = Counter(entry["kind"] for each in self._all for entry in each.diary.read_on())
        count.committed, count.aborted, count.fenced_or_failed = (
            kinds[kind] for kind in ("committed", "aborted", "fatal")
        )
        self._node.stop()

    def _output(self, *, committed_only: bool) -> Counter[str]:
        """Keys of the output, as librdkafka reads them."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._node.servers,
                "group.id": "unused",
                "isolation.level": "read_committed" if committed_only else "read_uncommitted",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        left = set(range(self._plan.partitions))
        consumer.assign([TopicPartition(OUTPUT, each, 0) for each in left])
        found: Counter[str] = Counter()
        deadline = time.monotonic() + WAIT_S
        while left:
            assert time.monotonic() < deadline, f"no end of partitions {left}"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[message.key().decode()] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
        consumer.close()
        return found


def run(directory: Path, plan: Plan) -> Figures:
    directory.mkdir(parents=True, exist_ok=True)
    return Torture(directory, plan).run()


__all__ = ["Figures", "Plan", "run"]
