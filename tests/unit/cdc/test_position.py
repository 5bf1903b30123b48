"""The last position is found whatever lies around it: other captures', aborted ones, open ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dragoman.captures.definition import POSITIONS_TOPIC
from dragoman.cdc import position as module
from dragoman.cdc.position import Position, encode_position, last_position, positions_partition
from dragoman.client.kafka import (
    FetchFrom,
    KafkaClient,
    ResourceType,
    TopicPartition,
    TransactionalProducer,
    TransactionOptions,
)
from dragoman.errors import CdcError
from dragoman.log.batch import Record, batches
from dragoman.testing import EphemeralBroker


@pytest.fixture
async def client() -> AsyncIterator[KafkaClient]:
    async with (
        EphemeralBroker(listeners=("kafka",)) as broker,
        KafkaClient(broker.bootstrap_servers) as opened,
    ):
        yield opened


async def producer(client: KafkaClient, name: str) -> TransactionalProducer:
    made = client.transactional_producer(TransactionOptions(transactional_id=f"__capture.{name}"))
    await made.initialise()
    return made


async def write(
    producer: TransactionalProducer, where: TopicPartition, name: str, lsn: int
) -> None:
    value = encode_position(Position(lsn=lsn))
    await producer.write_records({where: [Record(key=name.encode(), value=value, timestamp=1)]})


async def test_topic_has_its_partitions_and_one_is_the_captures(client: KafkaClient) -> None:
    where = await positions_partition(client, "shop")
    assert where.topic == POSITIONS_TOPIC
    assert where == await positions_partition(client, "shop")
    names = [f"capture{index}" for index in range(50)]
    assert len({await positions_partition(client, name) for name in names}) == 8


async def test_last_committed_one_counts(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CAPTURE_POSITION_WINDOW", 3)
    where = await positions_partition(client, "shop")
    assert await last_position(client, where, "shop") is None
    shop, other = await producer(client, "shop"), await producer(client, "other")
    for lsn in (10, 20):
        await write(shop, where, "shop", lsn)
        await shop.commit()
    # Its marker may come a moment later: the next initialisation waits for it.
    await shop.initialise()
    for lsn in range(30):
        await write(other, where, "other", lsn)
        await other.commit()
    await write(shop, where, "shop", 30)
    await shop.abort()
    await shop.initialise()
    found = await last_position(client, where, "shop")
    assert found is not None
    assert found.lsn == 20


async def test_open_transaction_of_another_capture_hides_nothing(client: KafkaClient) -> None:
    where = await positions_partition(client, "shop")
    shop, dead = await producer(client, "shop"), await producer(client, "dead")
    await write(dead, where, "dead", 1)
    await write(shop, where, "shop", 10)
    await shop.commit()
    await shop.initialise()
    found = await last_position(client, where, "shop")
    assert found is not None
    assert found.lsn == 10
    assert await last_position(client, where, "dead") is None


async def test_position_of_a_newer_release_is_not_guessed_at(client: KafkaClient) -> None:
    where = await positions_partition(client, "shop")
    shop = await producer(client, "shop")
    await shop.write_records({where: [Record(key=b"shop", value=b'{"lsn":"?"}', timestamp=1)]})
    await shop.commit()
    await shop.initialise()
    with pytest.raises(CdcError, match="if a newer release has written it"):
        await last_position(client, where, "shop")


async def test_record_without_value_is_the_end_of_a_capture(client: KafkaClient) -> None:
    where = await positions_partition(client, "shop")
    shop = await producer(client, "shop")
    await write(shop, where, "shop", 10)
    await shop.write_records({where: [Record(key=b"shop", value=None, timestamp=1)]})
    await shop.commit()
    await shop.initialise()
    assert await last_position(client, where, "shop") is None


async def test_position_outlives_compaction_and_the_markers_of_its_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nothing is compacted that the last one does not cover.
    monkeypatch.setattr("dragoman.log.store.CHECKPOINT_INTERVAL_S", 0.05)
    settings = {"log.cleaner.backoff.ms": "10", "log.cleaner.min.cleanable.ratio": "0"}
    async with (
        EphemeralBroker(listeners=("kafka",), settings=settings) as broker,
        KafkaClient(broker.bootstrap_servers) as client,
    ):
        where = await positions_partition(client, "shop")
        small = {"segment.bytes": "2000", "delete.retention.ms": "0"}
        await client.alter_configs(ResourceType.TOPIC, POSITIONS_TOPIC, small)
        shop, other = await producer(client, "shop"), await producer(client, "other")
        await write(shop, where, "shop", 10)
        await shop.commit()
        lsn, count = 0, 1000
        async with asyncio.timeout(60):
            # Until little is left of what was written, markers included.
            while lsn < 100 or count > 20:
                lsn += 1
                await write(other, where, "other", lsn)
                await other.commit()
                if lsn >= 100:
                    fetched = await client.fetch({where: FetchFrom(0)}, max_wait_ms=0)
                    count = sum(1 for _ in batches(fetched[where].records))
        await shop.initialise()
        found = await last_position(client, where, "shop")
        assert found is not None
        assert found.lsn == 10
