"""The jobs that both Spark formats are given: options by title, for reads, streams and writes.

Topics, made by `fill` before the first job:

    orders   three partitions with 300 records each, times 1,000 to 1,899 s after `EPOCH_MS`
    mixed    null and empty keys and values, headers of every kind, all compressions
    kept     300 records, of which the first 100 were deleted
    bought   committed, aborted and committed transactions
    stamped  times of the append
    empty    nothing
    a.b-c_d  one record
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from client import Record

EPOCH_MS = 1_700_000_000_000
#: Times of `orders`: record number n was written this many ms after `EPOCH_MS`.
_FIRST_MS, _STEP_MS = 1_000_000, 1_000


def at(number: int) -> int:
    return EPOCH_MS + _FIRST_MS + number * _STEP_MS


#: The times are long ago.
_KEPT_FOR_EVER = {"retention.ms": "-1"}


def fill(client: Any) -> None:
    """`client` is an adapter of a stock client, see `client.py`."""
    client.create_topic("orders", 3, _KEPT_FOR_EVER)
    client.produce(
        "orders",
        [
            Record(
                b"value %d" % number, b"key %d" % number, timestamp=at(number), partition=number % 3
            )
            for number in range(900)
        ],
    )
    client.create_topic("mixed", 1, _KEPT_FOR_EVER)
    strange = [
        Record(None, b"a", [("h", b"1")]),
        Record(b"", None, [("h", None), ("h", b""), ("ü", b"\xff\x00")]),
        Record(b"v", b"", []),
        Record(None, None, []),
    ]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client.produce("mixed", [each._replace(timestamp=at(0)) for each in strange], codec=codec)
    client.create_topic("kept", 1, _KEPT_FOR_EVER)
    client.produce("kept", [Record(b"%d" % number, timestamp=at(number)) for number in range(300)])
    client.delete_records("kept", 0, 100)
    client.create_topic("bought", 1, _KEPT_FOR_EVER)
    transactor = client.transactor("interop-spark")
    for number, is_committed in enumerate((True, False, True)):
        transactor.begin()
        transactor.send("bought", [b"%d %d" % (number, item) for item in range(5)])
        (transactor.commit if is_committed else transactor.abort)()
    transactor.close()
    client.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    client.produce("stamped", [Record(b"now")])
    client.create_topic("empty", 1, _KEPT_FOR_EVER)
    client.create_topic("a.b-c_d", 1, _KEPT_FOR_EVER)
    client.produce("a.b-c_d", [Record(b"1", timestamp=at(0))])


def _by(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(index): value for index, value in enumerate(values)}})


ORDERS = {"subscribe": "orders"}
KEPT = {"subscribe": "kept"}
COMMITTED = {"kafka.isolation.level": "read_committed"}

#: What both formats must treat alike, as a batch.
BATCH: dict[str, dict[str, str]] = {
    "subscribe": ORDERS,
    "subscribe: two topics, with spaces": {"subscribe": " orders , kept "},
    "subscribe: a topic twice": {"subscribe": "orders,orders"},
    "subscribe: empty": {"subscribe": " "},
    "subscribe: only commas": {"subscribe": ",,"},
    "subscribe: no such topic": {"subscribe": "nowhere"},
    "subscribe: one of two does not exist": {"subscribe": "orders,nowhere"},
    "subscribe: dots and dashes": {"subscribe": "a.b-c_d"},
    "subscribe: an empty topic": {"subscribe": "empty"},
    "subscribePattern: whole name": {"subscribePattern": "orders"},
    "subscribePattern: part of the name": {"subscribePattern": "rder"},
    "subscribePattern: anchored": {"subscribePattern": "^ord.*s$"},
    "subscribePattern: anchored, part of the name": {"subscribePattern": "^rder"},
    "subscribePattern: alternatives": {"subscribePattern": "orders|kept"},
    "subscribePattern: nothing matches": {"subscribePattern": "nowhere"},
    "subscribePattern: malformed": {"subscribePattern": "("},
    "subscribePattern: empty": {"subscribePattern": " "},
    "assign": {"assign": '{"orders": [0, 2]}'},
    "assign: no such topic": {"assign": '{"nowhere": [0]}'},
    "assign: no JSON": {"assign": "orders"},
    "assign: empty": {"assign": ""},
    "two of subscribe, subscribePattern, assign": {**ORDERS, "assign": '{"orders": [0]}'},
    "subscribe with an empty assign": {**ORDERS, "assign": ""},
    "none of subscribe, subscribePattern, assign": {},
    "option names in capital letters": {"SUBSCRIBE": "orders", "INCLUDEHEADERS": "TRUE"},
    "includeHeaders": {"subscribe": "mixed", "includeHeaders": "true"},
    "null and empty keys and values, all codecs": {"subscribe": "mixed"},
    "includeHeaders: no word for it": {**ORDERS, "includeHeaders": "yes"},
    "times of the append": {"subscribe": "stamped"},
    "aborted transactions, read_committed": {"subscribe": "bought", **COMMITTED},
    "aborted transactions, read_uncommitted": {
        "subscribe": "bought",
        "kafka.isolation.level": "read_uncommitted",
    },
    "kafka.isolation.level: no such": {**ORDERS, "kafka.isolation.level": "some"},
    "startingOffsets: earliest": {**ORDERS, "startingOffsets": "earliest"},
    "startingOffsets: EARLIEST": {**ORDERS, "startingOffsets": " EARLIEST "},
    "startingOffsets: latest": {**ORDERS, "startingOffsets": "latest"},
    "startingOffsets: JSON": {**ORDERS, "startingOffsets": _by("orders", 290, 0, 299)},
    "startingOffsets: JSON with -2": {**ORDERS, "startingOffsets": _by("orders", -2, 298, -2)},
    "startingOffsets: JSON with -1": {**ORDERS, "startingOffsets": _by("orders", -2, -1, 0)},
    "startingOffsets: JSON with -3": {**ORDERS, "startingOffsets": _by("orders", -3, 0, 0)},
    "startingOffsets: a partition is missing": {**ORDERS, "startingOffsets": _by("orders", 1, 2)},
    "startingOffsets: a partition too many": {
        **ORDERS,
        "startingOffsets": _by("orders", 1, 2, 3, 4),
    },
    "startingOffsets: another topic": {**ORDERS, "startingOffsets": _by("kept", 1)},
    "startingOffsets: no JSON": {**ORDERS, "startingOffsets": "soon"},
    "startingOffsets: at the end": {**ORDERS, "startingOffsets": _by("orders", 300, 300, 300)},
    "startingOffsets: past the end": {**ORDERS, "startingOffsets": _by("orders", 301, 0, 0)},
    "startingOffsets: past the end, failOnDataLoss=false": {
        **ORDERS,
        "startingOffsets": _by("orders", 400, 0, 0),
        "failOnDataLoss": "false",
    },
    "startingOffsets: deleted": {**KEPT, "startingOffsets": _by("kept", 50)},
    "startingOffsets: deleted, failOnDataLoss=false": {
        **KEPT,
        "startingOffsets": _by("kept", 50),
        "failOnDataLoss": "false",
    },
    "startingOffsets and endingOffsets: all deleted": {
        **KEPT,
        "startingOffsets": _by("kept", 10),
        "endingOffsets": _by("kept", 50),
        "failOnDataLoss": "false",
    },
    "a log that starts later": KEPT,
    "endingOffsets: latest": {**ORDERS, "endingOffsets": "latest"},
    "endingOffsets: earliest": {**ORDERS, "endingOffsets": "earliest"},
    "endingOffsets: JSON": {**ORDERS, "endingOffsets": _by("orders", 10, 0, 1)},
    "endingOffsets: JSON with -1": {**ORDERS, "endingOffsets": _by("orders", 10, -1, 1)},
    "endingOffsets: JSON with -2": {**ORDERS, "endingOffsets": _by("orders", 10, -2, 1)},
    "endingOffsets: a partition is missing": {**ORDERS, "endingOffsets": _by("orders", 10)},
    "endingOffsets: past the end": {
        **ORDERS,
        "endingOffsets": _by("orders", 10, 10, 301),
        "kafkaConsumer.pollTimeoutMs": "2000",
    },
    "endingOffsets: past the end, failOnDataLoss=false": {
        **ORDERS,
        "endingOffsets": _by("orders", 10, 10, 301),
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "2000",
    },
    "endingOffsets: before startingOffsets": {
        **ORDERS,
        "startingOffsets": _by("orders", 20, 0, 0),
        "endingOffsets": _by("orders", 10, 10, 10),
    },
    "startingTimestamp": {**ORDERS, "startingTimestamp": str(at(890))},
    "startingTimestamp: between two records": {**ORDERS, "startingTimestamp": str(at(890) - 1)},
    "startingTimestamp: later than all": {**ORDERS, "startingTimestamp": str(at(9000))},
    "startingTimestamp: later than all, strategy latest": {
        **ORDERS,
        "startingTimestamp": str(at(9000)),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "startingTimestamp: 0": {**ORDERS, "startingTimestamp": "0"},
    "startingTimestamp: negative": {**ORDERS, "startingTimestamp": "-5"},
    "startingTimestamp: no number": {**ORDERS, "startingTimestamp": "today"},
    "startingTimestamp beats the others": {
        **ORDERS,
        "startingTimestamp": str(at(890)),
        "startingOffsetsByTimestamp": _by("orders", at(0), at(0), at(0)),
        "startingOffsets": "earliest",
    },
    "startingTimestamp beats latest": {
        **ORDERS,
        "startingTimestamp": str(at(890)),
        "startingOffsets": "latest",
    },
    "startingOffsetsByTimestamp": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", at(600), at(897), at(0)),
    },
    "startingOffsetsByTimestamp beats startingOffsets": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", at(600), at(897), at(0)),
        "startingOffsets": "latest",
    },
    "startingOffsetsByTimestamp: a partition is missing": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", at(600)),
    },
    "startingOffsetsByTimestamp: one later than all": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", at(600), at(9000), at(0)),
    },
    "startingOffsetsByTimestamp: one later than all, strategy latest": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", at(600), at(9000), at(0)),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "startingOffsetsByTimestampStrategy: LATEST": {
        **ORDERS,
        "startingTimestamp": str(at(9000)),
        "startingOffsetsByTimestampStrategy": "LATEST",
    },
    "startingOffsetsByTimestampStrategy: no such": {
        **ORDERS,
        "startingTimestamp": str(at(0)),
        "startingOffsetsByTimestampStrategy": "soon",
    },
    "startingTimestamp on an empty topic": {"subscribe": "empty", "startingTimestamp": str(at(0))},
    "endingTimestamp": {**ORDERS, "endingTimestamp": str(at(10))},
    "endingTimestamp: later than all": {**ORDERS, "endingTimestamp": str(at(9000))},
    "endingOffsetsByTimestamp": {
        **ORDERS,
        "endingOffsetsByTimestamp": _by("orders", at(600), at(9000), at(0)),
    },
    "endingOffsetsByTimestamp: a partition is missing": {
        **ORDERS,
        "endingOffsetsByTimestamp": _by("orders", at(600)),
    },
    "startingOffsetsByTimestamp: -1": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", -1, -1, -1),
    },
    "startingOffsetsByTimestamp: -2": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", -2, -2, -2),
    },
    "startingOffsetsByTimestamp: 0": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", 0, 0, 0),
    },
    "endingTimestamp: 0": {**ORDERS, "endingTimestamp": "0"},
    "endingTimestamp before startingTimestamp": {
        **ORDERS,
        "startingTimestamp": str(at(100)),
        "endingTimestamp": str(at(10)),
    },
    "failOnDataLoss: no word for it": {**ORDERS, "failOnDataLoss": "no"},
    "failOnDataLoss: FALSE": {**ORDERS, "failOnDataLoss": "FALSE"},
    "minPartitions": {**ORDERS, "minPartitions": "7"},
    "minPartitions: 0": {**ORDERS, "minPartitions": "0"},
    "minPartitions: no number": {**ORDERS, "minPartitions": "many"},
    "maxRecordsPerPartition": {**ORDERS, "maxRecordsPerPartition": "70"},
    "maxRecordsPerPartition: 0": {**ORDERS, "maxRecordsPerPartition": "0"},
    "maxRecordsPerPartition and minPartitions": {
        **ORDERS,
        "maxRecordsPerPartition": "70",
        "minPartitions": "30",
    },
    "minOffsetsPerTrigger above maxOffsetsPerTrigger in a batch": {
        **ORDERS,
        "minOffsetsPerTrigger": "5",
        "maxOffsetsPerTrigger": "4",
    },
    "maxOffsetsPerTrigger in a batch": {**ORDERS, "maxOffsetsPerTrigger": "10"},
    "kafkaConsumer.pollTimeoutMs": {**ORDERS, "kafkaConsumer.pollTimeoutMs": "20000"},
    "kafkaConsumer.pollTimeoutMs: no number": {**ORDERS, "kafkaConsumer.pollTimeoutMs": "soon"},
    "fetchOffset.numRetries, fetchOffset.retryIntervalMs": {
        **ORDERS,
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "20",
    },
    "fetchOffset.numRetries: no number": {**ORDERS, "fetchOffset.numRetries": "often"},
    "fetchOffset.retryIntervalMs: 0": {**ORDERS, "fetchOffset.retryIntervalMs": "0"},
    "groupIdPrefix": {**ORDERS, "groupIdPrefix": "mine"},
    "kafka.group.id": {**ORDERS, "kafka.group.id": "mine"},
    "kafka.group.id and groupIdPrefix": {
        **ORDERS,
        "kafka.group.id": "mine",
        "groupIdPrefix": "mine",
    },
    "useDeprecatedOffsetFetching": {**ORDERS, "useDeprecatedOffsetFetching": "false"},
    "kafka.auto.offset.reset": {**ORDERS, "kafka.auto.offset.reset": "earliest"},
    "kafka.key.deserializer": {**ORDERS, "kafka.key.deserializer": "x"},
    "kafka.value.deserializer": {**ORDERS, "kafka.value.deserializer": "x"},
    "kafka.enable.auto.commit": {**ORDERS, "kafka.enable.auto.commit": "false"},
    "kafka.interceptor.classes": {**ORDERS, "kafka.interceptor.classes": "x"},
    "kafka.max.poll.records": {**ORDERS, "kafka.max.poll.records": "10"},
    "kafka.fetch.max.bytes": {**ORDERS, "kafka.fetch.max.bytes": "1000"},
    "kafka.client.id": {**ORDERS, "kafka.client.id": "me"},
    "kafka.request.timeout.ms": {**ORDERS, "kafka.request.timeout.ms": "20000"},
    "kafka.security.protocol: PLAINTEXT": {**ORDERS, "kafka.security.protocol": "PLAINTEXT"},
    "kafka.security.protocol: no such": {**ORDERS, "kafka.security.protocol": "SOME"},
}

#: What both must treat alike as a stream.
FIRST = {"startingOffsets": "earliest"}
STREAM: dict[str, dict[str, str]] = {
    "subscribe": {**ORDERS, **FIRST},
    "default start": ORDERS,
    "startingOffsets: latest": {**ORDERS, "startingOffsets": "latest"},
    "subscribePattern: part of the name": {"subscribePattern": "rder", **FIRST},
    "assign": {"assign": '{"orders": [1]}', **FIRST},
    "subscribe: no such topic": {"subscribe": "nowhere", **FIRST},
    "includeHeaders": {"subscribe": "mixed", "includeHeaders": "true", **FIRST},
    "aborted transactions, read_committed": {"subscribe": "bought", **COMMITTED, **FIRST},
    "startingOffsets: JSON with -1 and -2": {
        **ORDERS,
        "startingOffsets": _by("orders", -1, -2, 290),
    },
    "startingOffsets: a partition is missing": {**ORDERS, "startingOffsets": _by("orders", 1, 2)},
    "startingOffsets: at the end": {**ORDERS, "startingOffsets": _by("orders", 300, 300, 300)},
    "startingOffsets: past the end": {**ORDERS, "startingOffsets": _by("orders", 400, 0, 0)},
    "startingOffsets: past the end, failOnDataLoss=false": {
        **ORDERS,
        "startingOffsets": _by("orders", 400, 0, 0),
        "failOnDataLoss": "false",
    },
    "startingOffsets: all past the end": {
        **ORDERS,
        "startingOffsets": _by("orders", 400, 400, 400),
    },
    "startingOffsets: deleted": {**KEPT, "startingOffsets": _by("kept", 50)},
    "startingOffsets: deleted, failOnDataLoss=false": {
        **KEPT,
        "startingOffsets": _by("kept", 50),
        "failOnDataLoss": "false",
    },
    "startingTimestamp": {**ORDERS, "startingTimestamp": str(at(890))},
    "startingTimestamp: later than all": {**ORDERS, "startingTimestamp": str(at(9000))},
    "startingTimestamp: later than all, strategy latest": {
        **ORDERS,
        "startingTimestamp": str(at(9000)),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "startingOffsetsByTimestamp": {
        **ORDERS,
        "startingOffsetsByTimestamp": _by("orders", at(600), at(897), at(0)),
    },
    "endingOffsets": {**ORDERS, **FIRST, "endingOffsets": "latest"},
    "endingTimestamp": {**ORDERS, **FIRST, "endingTimestamp": str(at(5))},
    "endingOffsetsByTimestamp": {
        **ORDERS,
        **FIRST,
        "endingOffsetsByTimestamp": _by("orders", at(5), at(5), at(5)),
    },
    "maxOffsetsPerTrigger": {**ORDERS, **FIRST, "maxOffsetsPerTrigger": "400"},
    "maxOffsetsPerTrigger: two topics of different size": {
        "subscribe": "orders,a.b-c_d",
        **FIRST,
        "maxOffsetsPerTrigger": "250",
    },
    "maxOffsetsPerTrigger: no number": {**ORDERS, **FIRST, "maxOffsetsPerTrigger": "few"},
    "minOffsetsPerTrigger": {**ORDERS, **FIRST, "minOffsetsPerTrigger": "100"},
    "minOffsetsPerTrigger and maxOffsetsPerTrigger": {
        **ORDERS,
        **FIRST,
        "minOffsetsPerTrigger": "100",
        "maxOffsetsPerTrigger": "450",
    },
    "minOffsetsPerTrigger above maxOffsetsPerTrigger": {
        **ORDERS,
        **FIRST,
        "minOffsetsPerTrigger": "500",
        "maxOffsetsPerTrigger": "450",
    },
    "maxTriggerDelay": {**ORDERS, **FIRST, "minOffsetsPerTrigger": "5000", "maxTriggerDelay": "1s"},
    "maxTriggerDelay: 2min": {
        **ORDERS,
        **FIRST,
        "minOffsetsPerTrigger": "100",
        "maxTriggerDelay": "2min",
    },
    "maxTriggerDelay: no time": {
        **ORDERS,
        **FIRST,
        "minOffsetsPerTrigger": "100",
        "maxTriggerDelay": "soon",
    },
    "minPartitions": {**ORDERS, **FIRST, "minPartitions": "7"},
    "kafka.group.id": {**ORDERS, **FIRST, "kafka.group.id": "mine-too"},
    "kafka.auto.offset.reset": {**ORDERS, **FIRST, "kafka.auto.offset.reset": "latest"},
    "kafka.enable.auto.commit": {**ORDERS, **FIRST, "kafka.enable.auto.commit": "false"},
}


class Difference(NamedTuple):
    """A job that the formats treat differently: a number of rows, or `fails`."""

    options: dict[str, str]
    kafka: str | int
    ours: str | int


#: What docs/reference/spark.md lists.
DIFFERENT_BATCH: dict[str, Difference] = {
    "without kafka.isolation.level only committed records are read": Difference(
        {"subscribe": "bought"}, 15, 10
    ),
    "a partition that does not exist is refused in assign": Difference(
        {"assign": '{"orders": [7]}'}, 0, "fails"
    ),
    "an unknown option is refused": Difference(
        {**ORDERS, "startingOffset": "latest"}, 900, "fails"
    ),
    "options for streams are checked in batches, too": Difference(
        {**ORDERS, "maxTriggerDelay": "soon"}, 900, "fails"
    ),
    "Java's own regular expressions are refused": Difference(
        {"subscribePattern": "\\p{Lower}rders"}, 900, "fails"
    ),
    "settings of a consumer that are not used are not checked": Difference(
        {**ORDERS, "kafka.fetch.max.bytes": "many"}, "fails", 900
    ),
}
DIFFERENT_STREAM: dict[str, Difference] = {
    "an unknown option is refused by a stream": Difference(
        {**ORDERS, **FIRST, "startingOffset": "latest"}, 900, "fails"
    ),
    "maxOffsetsPerTrigger must be positive": Difference(
        {**ORDERS, **FIRST, "maxOffsetsPerTrigger": "0"}, 0, "fails"
    ),
}
