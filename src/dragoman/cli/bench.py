"""`dragoman bench`: measures any broker that speaks Kafka's protocol.

The work is in `load`; here are the options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.client_security import BrokerTarget

# `Brokers` inherits options of this type, and cyclopts looks for it here.
from dragoman.cli.contexts import Mechanism  # noqa: F401
from dragoman.cli.kafka_client import DEFAULT_BOOTSTRAP, client_settings
from dragoman.cli.load.fleet import ended_by_signals, fill, measure
from dragoman.cli.load.plan import Acks, CodecName, Keys, Mode, Plan, Values
from dragoman.cli.load.report import LiveLine, Result, broker_of, fields, result
from dragoman.cli.load.topics import topics
from dragoman.cli.output import Fields, Output, OutputForm, show
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, one_line_failures, say
from dragoman.client.kafka import BlockingKafkaClient
from dragoman.plural import plural

app = App(name="bench", help="Measure any broker that speaks Kafka's protocol.")

_DURATION_S: Final = 10.0
#: As a shell reports a command that Ctrl-C has ended.
INTERRUPTED: Final = 130


def _option(text: str) -> Parameter:
    return Parameter(help=text)


@dataclass(frozen=True, kw_only=True)
class Brokers(BrokerTarget):
    bootstrap: Annotated[
        str | None,
        Parameter(
            name=["--brokers", "--bootstrap", "-b"],
            help=f"Kafka brokers, as HOST:PORT, separated by commas. Default: {DEFAULT_BOOTSTRAP}.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Topics:
    topic: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="Existing topic to use; may be repeated. It is not deleted. By default, the"
            " command creates topics named bench-… and deletes them at the end.",
        ),
    ] = ()
    topics: Annotated[int, _option("Number of topics to create.")] = 1
    partitions: Annotated[int, _option("Partitions of each new topic.")] = 1
    replication_factor: Annotated[
        int, _option("Replicas of each new partition; -1: the broker's default.")
    ] = -1
    keep: Annotated[bool, Parameter(negative="", help="Do not delete the new topics.")] = False


@dataclass(frozen=True, kw_only=True)
class Clients:
    processes: Annotated[int, _option("Processes of clients.")] = 1
    clients: Annotated[int, _option("Clients in each process.")] = 1
    records: Annotated[int | None, _option("Records to measure.")] = None
    duration: Annotated[
        float | None,
        _option(f"Seconds to measure; {_DURATION_S:g} unless --records is given."),
    ] = None
    warm_up: Annotated[float, _option("Seconds before that, which do not count.")] = 1.0
    seed: Annotated[int, _option("Seed of keys and values.")] = 1


@dataclass(frozen=True, kw_only=True)
class Records:
    size: Annotated[int, _option("Bytes of each value.")] = 1024
    batch: Annotated[int, _option("Records in each batch.")] = 100
    in_flight: Annotated[int, _option("Batches of a client without a reply.")] = 5
    acks: Annotated[Acks, _option("Replicas that must have a record.")] = "all"
    codec: Annotated[
        CodecName, Parameter(name=["--codec", "-z"], help="Compression of the batches.")
    ] = "none"
    values: Annotated[Values, _option("Random bytes, or text that a codec can compress.")] = (
        "random"
    )
    keys: Annotated[Keys, _option("Distribution of the keys; none: the partitions take turns.")] = (
        "none"
    )
    key_count: Annotated[int, _option("Number of different keys.")] = 10_000


@dataclass(frozen=True, kw_only=True)
class SingleRecords(Records):
    batch: Annotated[int, _option("Records in each batch.")] = 1


BrokerOptions: TypeAlias = Annotated[Brokers, Parameter(name="*")]
TopicOptions: TypeAlias = Annotated[Topics, Parameter(name="*")]
ClientOptions: TypeAlias = Annotated[Clients, Parameter(name="*")]
RecordOptions: TypeAlias = Annotated[Records, Parameter(name="*")]
SingleRecordOptions: TypeAlias = Annotated[SingleRecords, Parameter(name="*")]
_THIS_MACHINE: Final = Brokers()
_TOPICS: Final = Topics()
_CLIENTS: Final = Clients()
_RECORDS: Final = Records()
_SINGLE_RECORDS: Final = SingleRecords()


@app.command
def produce(
    *,
    brokers: BrokerOptions = _THIS_MACHINE,
    where: TopicOptions = _TOPICS,
    how: ClientOptions = _CLIENTS,
    what: RecordOptions = _RECORDS,
    rate: Annotated[
        float | None, _option("Records a second; by default, as many as the broker takes.")
    ] = None,
    output: Output = "table",
) -> int:
    """Measure how fast a broker acknowledges records.

    A latency is the time until a batch is acknowledged. With --rate it begins when the batch was
    due, whether or not the broker was ready for it.

    Examples
    --------
    dragoman bench produce --duration 2
    dragoman bench produce --rate 5000 --batch 1 --records 5000 --output json
    dragoman bench produce --codec zstd --values text --keys zipf --partitions 4 --records 50000
    """
    plan = _plan("produce", how, what)
    if rate is not None:
        plan = msgspec.structs.replace(plan, rate=rate)
    return _Run(plan, brokers, where, output).run()


@app.command
def consume(
    *,
    brokers: BrokerOptions = _THIS_MACHINE,
    where: TopicOptions = _TOPICS,
    how: ClientOptions = _CLIENTS,
    what: RecordOptions = _RECORDS,
    fill: Annotated[int, _option("Records to write to the new topics first.")] = 200_000,
    fetch_bytes: Annotated[int, _option("Bytes to fetch of each partition.")] = 1 << 20,
    output: Output = "table",
) -> int:
    """Measure how fast a broker returns records, from the first to the last, again and again.

    A latency is the time of one request. Options of records are for those that fill new topics.

    Examples
    --------
    dragoman bench consume --duration 2
    dragoman bench consume --topic orders --records 10
    """
    plan = msgspec.structs.replace(_plan("consume", how, what), fetch_bytes=fetch_bytes)
    _check(fill=fill, fetch_bytes=fetch_bytes)
    return _Run(plan, brokers, where, output, fill).run()


@app.command
def latency(
    *,
    brokers: BrokerOptions = _THIS_MACHINE,
    where: TopicOptions = _TOPICS,
    how: ClientOptions = _CLIENTS,
    what: SingleRecordOptions = _SINGLE_RECORDS,
    rate: Annotated[float, _option("Records a second.")] = 1000.0,
    output: Output = "table",
) -> int:
    """Measure the time from when a record was due to be sent until it is read.

    Examples
    --------
    dragoman bench latency --rate 500 --duration 2
    """
    plan = msgspec.structs.replace(_plan("latency", how, what), rate=rate)
    if plan.acks == "0":
        raise CommandError("--acks 0: without acknowledgements, offsets are unknown", USAGE)
    return _Run(plan, brokers, where, output).run()


def _plan(mode: Mode, how: Clients, what: Records) -> Plan:
    duration_s = how.duration
    if duration_s is None and how.records is None:
        duration_s = _DURATION_S
    _check(
        processes=how.processes,
        clients=how.clients,
        records=how.records,
        size=what.size,
        batch=what.batch,
        in_flight=what.in_flight,
        key_count=what.key_count,
    )
    if how.warm_up < 0 or (duration_s is not None and duration_s <= 0):
        raise CommandError("--duration and --warm-up: expected a number of seconds", USAGE)
    return Plan(
        mode=mode,
        brokers="",
        topics=(),
        processes=how.processes,
        clients=how.clients,
        in_flight=what.in_flight,
        record_bytes=what.size,
        batch_records=what.batch,
        acks=what.acks,
        codec=what.codec,
        values=what.values,
        keys=what.keys,
        key_count=what.key_count,
        records=how.records,
        duration_s=duration_s,
        warm_up_s=how.warm_up,
        seed=how.seed,
    )


def _check(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            option = name.replace("_", "-")
            raise CommandError(f"--{option}: expected at least 1, got {number:g}", USAGE)


class _Run:
    """A benchmark from its topics to its result."""

    def __init__(
        self,
        plan: Plan,
        brokers: Brokers,
        where: Topics,
        output: OutputForm,
        fill: int = 0,
    ) -> None:
        if plan.rate is not None and plan.rate <= 0:
            raise CommandError("--rate: expected a number of records a second", USAGE)
        _check(topics=where.topics, partitions=where.partitions)
        found = brokers.resolved(DEFAULT_BOOTSTRAP)
        self._settings = client_settings(found.credentials, found.tls)
        self._plan = msgspec.structs.replace(
            plan, brokers=found.bootstrap, tls=found.tls, login=self._settings.login
        )
        self._where = where
        self._output = output
        self._fill = fill

    def run(self) -> int:
        where, plan = self._where, self._plan
        with (
            ended_by_signals(),
            one_line_failures("Kafka"),
            BlockingKafkaClient(plan.brokers, self._settings) as client,
        ):
            broker = broker_of(client)
            with topics(
                client,
                named=where.topic,
                count=where.topics,
                partitions=where.partitions,
                replication_factor=where.replication_factor,
                keep=where.keep,
            ) as names:
                self._announce(names)
                self._check_partitions(client, names)
                plan = msgspec.structs.replace(plan, topics=names)
                if self._fill and not where.topic:
                    fill(plan, self._fill)
                started_at = datetime.now(UTC)
                line = LiveLine()
                try:
                    outcome = measure(plan, line.show)
                finally:
                    line.clear()
        found = result(
            plan, outcome.tally, broker, started_at, is_interrupted=outcome.is_interrupted
        )
        show(self._output, found, Result, Fields(fields(found)))
        if outcome.is_interrupted:
            return INTERRUPTED
        return OK if found.records else FAILED

    def _check_partitions(self, client: BlockingKafkaClient, names: Sequence[str]) -> None:
        """Each partition is read by one process, which also writes what it reads."""
        count = sum(len(client.topic(name).partitions) for name in names)
        if self._plan.mode != "produce" and count < self._plan.processes:
            raise CommandError(
                f"--processes {self._plan.processes}: expected at most one for each of"
                f" {plural(count, 'partition')}",
                USAGE,
            )

    def _announce(self, names: Sequence[str]) -> None:
        if not self._where.topic:
            return
        listed = ", ".join(map(repr, names))
        what = "reads" if self._plan.mode == "consume" else "writes to"
        say(f"this benchmark {what} existing topics, and keeps them: {listed}")
