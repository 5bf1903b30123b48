"""murmur2 against the values of Kafka's own unit test, and against another implementation."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from dragoman.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=200), st.integers(1, 1000))
def test_partition_is_that_of_aiokafka(key: bytes, count: int) -> None:
    partitions = list(range(count))
    assert partition_for_key(key, count) == DefaultPartitioner()(key, partitions, partitions)
