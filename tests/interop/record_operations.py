"""Records: written in every way a client has, read back, found by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from client import Client, Record, Row

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def numbered(count: int, first: int = 0) -> list[Record]:
    return [Record(b"value %d" % each, b"%d" % each) for each in range(first, first + count)]


def check_values(rows: Sequence[Row], records: Sequence[Record]) -> None:
    """All of them once, and offsets that ascend."""
    came, sent = (sorted(each.value or b"" for each in them) for them in (rows, records))
    assert came == sent, f"{len(came)} values came back of {len(sent)}, or other ones"
    for partition in {row.partition for row in rows}:
        offsets = [row.offset for row in rows if row.partition == partition]
        assert offsets == sorted(set(offsets)), f"offsets of partition {partition}: {offsets}"


def _round_trip(
    codec: str = "none", acks: str = "all", *, idempotent: bool = False
) -> Callable[[Client, str], None]:
    def run(client: Client, topic: str) -> None:
        client.create_topic(topic, PARTITIONS)
        records = numbered(200)
        client.produce(topic, records, codec=codec, acks=acks, idempotent=idempotent)
        check_values(client.consume(topic, len(records)), records)

    return run


def unknown_topic(client: Client, topic: str) -> None:
    client.produce(topic, numbered(10))
    check_values(client.consume(topic, 10), numbered(10))


def whole_records(client: Client, topic: str) -> None:
    """Headers in their order and twice the same name; keys and values that are null or empty."""
    client.create_topic(topic, 1)
    sent = [
        Record(b"v", b"k", [("a", b"1"), ("b", b"\x00\xff"), ("a", b"2")], 1_700_000_000_000),
        Record(None, b"deleted", [], 1_700_000_000_001),
        Record(b"", None, [("empty", b"")], 1_700_000_000_002),
    ]
    client.produce(topic, sent)
    for row, record in zip(client.consume(topic, len(sent)), sent, strict=True):
        assert (row.key, row.value, row.timestamp) == (record.key, record.value, record.timestamp)
        # One client groups headers by name; the order between names is not its to keep.
        assert sorted(row.headers) == sorted(record.headers), row.headers


def large_record(client: Client, topic: str) -> None:
    client.create_topic(topic, 1, {"max.message.bytes": str(12 << 20)})
    sent = [Record(bytes(range(256)) * (8 << 12), b"large")]
    client.produce(topic, sent)
    check_values(client.consume(topic, 1), sent)


def offset_for_time(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    for record in numbered(5):
        client.produce(topic, [record])
    rows = client.consume(topic, 5)
    for wanted in (rows[0].timestamp, rows[2].timestamp, rows[4].timestamp):
        expected = next(row.offset for row in rows if row.timestamp >= wanted)
        assert client.offset_for_time(topic, 0, wanted) == expected


RECORDS: dict[str, Callable[[Client, str], None]] = {
    "topic created on first use": unknown_topic,
    **{f"produce and read, {codec}": _round_trip(codec) for codec in CODECS},
    "acks 0": _round_trip(acks="0"),
    "acks 1": _round_trip(acks="1"),
    "idempotent producer": _round_trip(idempotent=True),
    "headers, nulls, timestamps": whole_records,
    "record of 8 MiB": large_record,
    "offset by time": offset_for_time,
}
