"""Goal: rows go to the partitions that a Kafka client would send their keys to, in their order.

Method: the vectorised hash against the client's, on keys of every length; then the router's rules.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from dragoman.client.kafka import TopicPartition, murmur2, partition_for_key
from dragoman.errors import EncodeError
from dragoman.spark.partitioner import Router, murmur2_of


def keys_of_all_sizes(seed: int, count: int = 500) -> list[bytes | None]:
    rng = random.Random(seed)
    keys: list[bytes | None] = [rng.randbytes(size) for size in range(70)]
    keys += [rng.randbytes(rng.randrange(20)) for _ in range(count)]
    keys += [None] * 20
    rng.shuffle(keys)
    return keys


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_hashes_are_those_of_the_client(kind: pa.DataType):
    keys = keys_of_all_sizes(1)
    # A slice: its buffers begin elsewhere than its rows.
    hashes = murmur2_of(pa.array(keys, kind)[7:])
    for key, value in zip(keys[7:], hashes.tolist(), strict=True):
        assert key is None or murmur2(key) == value


@pytest.mark.parametrize("keys", [[], [None], [b""], [b"", None], [b"abc"]], ids=str)
def test_few_short_keys(keys: list[bytes | None]):
    hashes = murmur2_of(pa.array(keys, pa.binary()))
    assert len(hashes) == len(keys)
    for key, value in zip(keys, hashes.tolist(), strict=True):
        assert key is None or murmur2(key) == value


def test_text_is_hashed_as_its_bytes():
    assert murmur2_of(pa.array(["grün"])).tolist() == [murmur2("grün".encode())]


def router(topic: str = "t", count: int = 5, seed: int = 3) -> Router:
    return Router(topic, lambda _: count, random.Random(seed))


def split(router: Router, **columns: list[object]) -> dict[TopicPartition, list[object]]:
    types = {"key": pa.binary(), "partition": pa.int32(), "topic": pa.string()}
    arrays = {name: pa.array(column, types.get(name)) for name, column in columns.items()}
    found: dict[TopicPartition, list[object]] = {}
    for where, rows in router.split(pa.RecordBatch.from_pydict(arrays)):
        assert where not in found
        assert set(rows.schema.names) <= {"key", "value", "headers"}
        found[where] = rows.column("value").to_pylist()
    return found


def test_keyed_rows_go_where_the_client_sends_them_in_their_order():
    keys = [key for key in keys_of_all_sizes(2) if key is not None]
    found = split(router(), key=keys, value=list(range(len(keys))))
    expected: dict[TopicPartition, list[object]] = {}
    for number, key in enumerate(keys):
        expected.setdefault(TopicPartition("t", partition_for_key(key, 5)), []).append(number)
    assert found == expected


def test_rows_without_a_key_stay_together_until_their_batch_is_full():
    several = router()
    first = split(several, key=[None, None], value=[1, 2])
    assert list(first.values()) == [[1, 2]]
    assert split(several, value=[3]).keys() == first.keys()
    seen = set(first)
    for _ in range(40):
        (where,) = split(several, value=[4])
        seen.add(where)
        several.next_partition(where)
        several.next_partition(TopicPartition("other", 0))
    assert len(seen) == 5


def test_rows_that_name_their_partition_go_there():
    found = split(router(), key=[b"k", b"k", None], partition=[4, None, 0], value=[1, 2, 3])
    assert found.pop(TopicPartition("t", 4)) == [1]
    assert found[TopicPartition("t", 0)][-1:] == [3]
    assert [2] in [values[:1] for values in found.values()]


@pytest.mark.parametrize("partition", [5, -1, -2])
def test_a_partition_that_is_not_there_is_refused(partition: int):
    with pytest.raises(EncodeError, match=f"has 5 partitions, a row names partition {partition}"):
        split(router(), partition=[0, partition], value=[1, 2])


def test_rows_name_their_topics_unless_there_is_one_for_all():
    columns = {"topic": ["b", "a", "b"], "value": [1, 2, 3], "partition": [0, 0, 0]}
    assert split(router(""), **columns) == {("b", 0): [1, 3], ("a", 0): [2]}
    assert split(router("t"), **columns) == {("t", 0): [1, 2, 3]}
    with pytest.raises(EncodeError, match="no topic"):
        split(router(""), topic=["a", None], value=[1, 2])


def test_no_rows_go_nowhere():
    assert split(router(), value=[]) == {}
