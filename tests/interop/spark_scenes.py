"""What both Spark formats are put through in several steps: streams over restarts, and writes.

Each format gets topics of its own with the same records, and what came is compared without their
names. A scene of a stream returns the outcome of every run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import spark_formats as formats
from client import Record
from spark_formats import Outcome, Stream
from spark_jobs import EPOCH_MS

_KEPT_FOR_EVER = {"retention.ms": "-1"}
#: Called with the client, the format, a topic of its own and a stream that keeps its checkpoint.
Scene = Callable[[Any, str, str, Stream], Sequence[Outcome]]


def _create(client: Any, topic: str, partitions: int = 1) -> None:
    client.stock.create_topic(topic, partitions, _KEPT_FOR_EVER)


def _write(client: Any, topic: str, count: int, partition: int = 0) -> None:
    client.stock.produce(
        topic,
        [
            Record(b"%d" % number, timestamp=EPOCH_MS + number, partition=partition)
            for number in range(count)
        ],
    )


def _options(client: Any, **given: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": client.servers,
        "startingOffsets": "earliest",
        **given,
    }


def _named_alike(outcome: Outcome, topic: str) -> Outcome:
    rows = [(*row[:2], row[2].replace(topic, "topic"), *row[3:]) for row in outcome.rows]
    return outcome._replace(rows=rows)


def _alike(scene: Scene) -> Callable[[Any, str], None]:
    def run(client: Any, topic: str) -> None:
        kafka, ours = (_outcomes(client, scene, format_, topic) for format_ in formats.FORMATS)
        for one, other in zip(kafka, ours, strict=True):
            formats.check_same(one, other)

    return run


def _outcomes(client: Any, scene: Scene, format_: str, topic: str) -> list[Outcome]:
    own = f"{topic}-{format_}"
    with formats.stream(client.spark) as stream:
        return [_named_alike(each, own) for each in scene(client, format_, own, stream)]


# ---- streams


def _restarted(client: Any, format_: str, topic: str, stream: Stream) -> list[Outcome]:
    _create(client, topic)
    options = _options(client, subscribe=topic)
    found = [stream.run(format_, options)]
    for _ in range(2):
        _write(client, topic, 20)
        found.append(stream.run(format_, options))
    return [*found, stream.run(format_, options)]


def _partition_added(client: Any, format_: str, topic: str, stream: Stream) -> list[Outcome]:
    _create(client, topic)
    _write(client, topic, 20)
    # New partitions are read from their first record whatever the start.
    options = _options(client, subscribe=topic, startingOffsets="latest")
    first = stream.run(format_, options)
    client.stock.create_partitions(topic, 2)
    _write(client, topic, 5, partition=1)
    return [first, stream.run(format_, options)]


def _topic_added(client: Any, format_: str, topic: str, stream: Stream) -> list[Outcome]:
    _create(client, f"{topic}-a")
    options = _options(client, subscribePattern=f"{topic}-", startingOffsets="latest")
    first = stream.run(format_, options)
    _create(client, f"{topic}-b")
    _write(client, f"{topic}-b", 5)
    return [first, stream.run(format_, options)]


def _topic_named_later(client: Any, format_: str, topic: str, stream: Stream) -> list[Outcome]:
    for name in (f"{topic}-a", f"{topic}-b"):
        _create(client, name)
        _write(client, name, 5)
    one = _options(client, subscribe=f"{topic}-a")
    both = _options(client, subscribe=f"{topic}-a,{topic}-b")
    return [stream.run(format_, one), stream.run(format_, both)]


def _deleted_records(fail: str) -> Scene:
    def scene(client: Any, format_: str, topic: str, stream: Stream) -> list[Outcome]:
        _create(client, topic)
        _write(client, topic, 20)
        options = _options(client, subscribe=topic, failOnDataLoss=fail)
        first = stream.run(format_, options)
        _write(client, topic, 20)
        client.stock.delete_records(topic, 0, 30)
        return [first, stream.run(format_, options)]

    return scene


def _deleted_topic(fail: str) -> Scene:
    def scene(client: Any, format_: str, topic: str, stream: Stream) -> list[Outcome]:
        for name in (f"{topic}-a", f"{topic}-b"):
            _create(client, name)
            _write(client, name, 5)
        options = _options(client, subscribePattern=f"{topic}-", failOnDataLoss=fail)
        first = stream.run(format_, options)
        client.stock.delete_topic(f"{topic}-b")
        _write(client, f"{topic}-a", 5)
        return [first, stream.run(format_, options)]

    return scene


def checkpoint_moves(client: Any, topic: str) -> None:
    """A query that ran with the Kafka source continues with ours, by its checkpoint."""
    _create(client, topic, 2)
    _write(client, topic, 20)
    options = _options(client, subscribe=topic)
    with formats.stream(client.spark) as stream:
        assert len(stream.run("kafka", options).rows) == 20
        _write(client, topic, 7, partition=1)
        outcome = stream.run("dragoman", options)
        assert (outcome.error, len(outcome.rows)) == ("", 7), outcome.describe()
        _write(client, topic, 3)
        outcome = stream.run("dragoman", options)
        assert (outcome.error, len(outcome.rows)) == ("", 3), outcome.describe()


STREAMS: Mapping[str, Callable[[Any, str], None]] = {
    "restarts continue at the checkpoint": _alike(_restarted),
    "a partition is added": _alike(_partition_added),
    "a topic is added that the pattern finds": _alike(_topic_added),
    "a topic is added to subscribe": _alike(_topic_named_later),
    "records are deleted between runs": _alike(_deleted_records("true")),
    "records are deleted between runs, failOnDataLoss=false": _alike(_deleted_records("false")),
    "a topic is deleted between runs": _alike(_deleted_topic("true")),
    "a topic is deleted between runs, failOnDataLoss=false": _alike(_deleted_topic("false")),
    "a checkpoint of the Kafka source continues in ours": checkpoint_moves,
}


# ---- writes


class Write(NamedTuple):
    """Rows as a query; `{topic}` in it and in options becomes a topic of three partitions."""

    query: str
    options: Mapping[str, str] = {}
    mode: str = "append"
    #: Without it `topic` is an option of every write.
    has_option: bool = True
    #: False: the sink makes it.
    is_created: bool = True


_ROWS = "select string(id) key, concat('value ', id) value from range(30)"
_ONE = "select 'a' key, "
_HEADERS = (
    "array(named_struct('key', 'h', 'value', x'01'), named_struct('key', 'h', 'value', null))"
)
WRITES_ALIKE: Mapping[str, Write] = {
    "keys and values as text": Write(_ROWS),
    "keys and values as bytes": Write(
        "select cast(string(id) as binary) key, cast(string(id) as binary) value from range(30)"
    ),
    "null and empty values": Write(
        "select string(id) key, if(id % 2 = 0, null, '') value from range(10)"
    ),
    "headers": Write(f"{_ONE} 'v' value, {_HEADERS} headers"),
    "headers: empty": Write(
        f"{_ONE} 'v' value, cast(array() as array<struct<key: string, value: binary>>) headers"
    ),
    "headers: null": Write(
        f"{_ONE} 'v' value, cast(null as array<struct<key: string, value: binary>>) headers"
    ),
    "headers: a name is null": Write(
        f"{_ONE} 'v' value, array(named_struct('key', string(null), 'value', x'01')) headers"
    ),
    "headers: of another type": Write(f"{_ONE} 'v' value, array('h') headers"),
    "headers with includeHeaders": Write(
        f"{_ONE} 'v' value, {_HEADERS} headers", {"includeHeaders": "true"}
    ),
    "column topic": Write(f"{_ONE} 'v' value, '{{topic}}' topic", has_option=False),
    "column topic and option topic": Write(f"{_ONE} 'v' value, 'nowhere' topic"),
    "column topic is null": Write(
        f"{_ONE} 'v' value, cast(null as string) topic", has_option=False
    ),
    "column topic of another type": Write(f"{_ONE} 'v' value, 5 topic", has_option=False),
    "no topic": Write(f"{_ONE} 'v' value", has_option=False),
    "no column value": Write("select 'a' key"),
    "value of another type": Write(f"{_ONE} 5 value"),
    "key of another type": Write("select 5 key, 'v' value"),
    "column partition": Write(
        "select 'a' key, string(id) value, int(id % 3) partition from range(9)"
    ),
    "column partition is null": Write(f"{_ONE} 'v' value, cast(null as int) partition"),
    "column partition of another type": Write(f"{_ONE} 'v' value, bigint(1) partition"),
    "column partition: no such": Write(
        f"{_ONE} 'v' value, 7 partition", {"kafka.max.block.ms": "2000"}
    ),
    "column partition: negative": Write(
        f"{_ONE} 'v' value, -1 partition", {"kafka.max.block.ms": "2000"}
    ),
    "other columns": Write(f"{_ONE} 'v' value, 5 size"),
    "column names in capital letters": Write("select 'a' KEY, 'v' VALUE"),
    "no rows": Write(f"{_ROWS} where false"),
    "a topic that does not exist": Write(f"{_ONE} 'v' value", is_created=False),
    "mode overwrite": Write(_ROWS, mode="overwrite"),
    "mode ignore": Write(_ROWS, mode="ignore"),
    "kafka.compression.type": Write(_ROWS, {"kafka.compression.type": "zstd"}),
    "kafka.compression.type: no such": Write(_ROWS, {"kafka.compression.type": "zip"}),
    "kafka.acks": Write(_ROWS, {"kafka.acks": "1"}),
    "kafka.key.serializer": Write(_ROWS, {"kafka.key.serializer": "x"}),
    "kafka.value.serializer": Write(_ROWS, {"kafka.value.serializer": "x"}),
    "kafka.client.id": Write(_ROWS, {"kafka.client.id": "me"}),
    "kafka.security.protocol: PLAINTEXT": Write(_ROWS, {"kafka.security.protocol": "PLAINTEXT"}),
}


def _written(client: Any, format_: str, topic: str, write: Write) -> Outcome:
    own = f"{topic}-{format_}"
    if write.is_created:
        _create(client, own, 3)
    named = {"topic": own} if write.has_option else {}
    options = {"kafka.bootstrap.servers": client.servers, **named, **write.options}
    rows = client.spark.sql(write.query.replace("{topic}", own))
    if error := formats.written(format_, rows, options, write.mode):
        return Outcome(error=error)
    return _read_back(client, own)


def _read_back(client: Any, topic: str) -> Outcome:
    """Times and offsets are not those of the rows, so keys and values decide about the order."""
    found = client.batch("kafka", {"subscribe": topic, "includeHeaders": "true"})
    assert not found.error, found.error
    rows = [(row[0], row[1], row[3], row[7]) for row in found.rows]
    return Outcome(rows=sorted(rows, key=repr))


def _write_alike(write: Write) -> Callable[[Any, str], None]:
    def run(client: Any, topic: str) -> None:
        formats.check_same(
            *(_written(client, format_, topic, write) for format_ in formats.FORMATS)
        )

    return run


def _written_by_stream(client: Any, topic: str) -> None:
    found = []
    for format_ in formats.FORMATS:
        own = f"{topic}-{format_}"
        _create(client, own, 3)
        source = client.spark.readStream.format("kafka").options(
            **_options(client, subscribe="orders", maxOffsetsPerTrigger="400")
        )
        with tempfile.TemporaryDirectory() as folder:
            query = (
                source.load()
                .select("key", "value")
                .writeStream.format(format_)
                .options(**{"kafka.bootstrap.servers": client.servers, "topic": own})
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(formats.STREAM_SECONDS_MAX)
        found.append(_read_back(client, own))
    assert len(found[0].rows) == 900
    formats.check_same(*found)


WRITES: Mapping[str, Callable[[Any, str], None]] = {
    **{title: _write_alike(write) for title, write in WRITES_ALIKE.items()},
    "a stream": _written_by_stream,
}


# ---- differences


def _write_differs(write: Write, kafka: str | int, ours: str | int) -> Callable[[Any, str], None]:
    def run(client: Any, topic: str) -> None:
        outcomes = [_written(client, format_, topic, write) for format_ in formats.FORMATS]
        found = ["fails" if each.error else len(each.rows) for each in outcomes]
        assert found == [kafka, ours], " and ".join(each.describe() for each in outcomes)

    return run


def _made_anew(client: Any, topic: str) -> None:
    """Offsets of a checkpoint mean nothing in a topic of the same name."""
    for format_, expected in (("kafka", 20), ("dragoman", "fails")):
        own = f"{topic}-{format_}"
        with formats.stream(client.spark) as stream:
            _create(client, own)
            _write(client, own, 20)
            options = _options(client, subscribe=own)
            assert len(stream.run(format_, options).rows) == 20
            client.stock.delete_topic(own)
            _create(client, own)
            _write(client, own, 40)
            outcome = stream.run(format_, options)
            assert ("fails" if outcome.error else len(outcome.rows)) == expected, outcome.describe()


DIFFERENT: Mapping[str, Callable[[Any, str], None]] = {
    "a topic made anew under its old name is refused": _made_anew,
    "a batch is written with mode append, which must be named": _write_differs(
        Write(_ROWS, mode=""), 30, "fails"
    ),
    "an unknown option of a write is refused": _write_differs(
        Write(_ROWS, {"tpic": "x"}), 30, "fails"
    ),
}
