"""Goal: a replay sends every record of its range once, in order, and survives being killed.

Method: records of a topic go to another one; the job ends between publishing a batch and noting it,
and is run again. What the log has deleted comes from the Parquet twin; tables become records, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dragoman.client.kafka import BlockingKafkaClient, ConsumedRecord, TopicPartition
from dragoman.errors import ConfigError
from dragoman.pipelines.jobs import replay, tier
from dragoman.pipelines.jobs.materialize import Options as Materialize
from dragoman.pipelines.jobs.table_updates import Materializer
from dragoman.testing import EphemeralBroker
from tables.changelogs import RECORDS, record
from tables.source_readers import make_topic, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2


class _KilledError(Exception):
    pass


def _quiet(_: object) -> None:
    pass


def _records(node: EphemeralBroker, topic: str) -> list[ConsumedRecord]:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        starts = dict.fromkeys(client.topic(topic).all_partitions(), 0)
        ends = client.list_offsets(dict.fromkeys(starts, -1))
        found: list[ConsumedRecord] = []
        until = {where: at.offset for where, at in ends.items()}
        with client.reader(starts, until=until) as reader:
            while some := reader.next_records():
                found += some
    return found


def _options(node: EphemeralBroker, tmp_path: Path, **given: Any) -> replay.Options:
    return replay.Options(
        bootstrap=node.bootstrap_servers, checkpoint=str(tmp_path / "replay"), **given
    )


def test_range_is_sent_once_and_in_order_though_the_job_is_killed(
    spark: SparkSession, node: EphemeralBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(node, partitions=PARTITIONS)
    write(node, range(400), partitions=PARTITIONS)
    # The log forgets its head, which the twin has.
    root = str(tmp_path / "tier")
    tier.run(
        spark,
        tier.Options(topic="orders", root=root, bootstrap=node.bootstrap_servers, until="latest"),
        _quiet,
    )
    write(node, range(400, 500), partitions=PARTITIONS)
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.delete_records({TopicPartition("orders", 0): 90})
    options = _options(
        node, tmp_path, topic="orders", to="again", tier=root, batch_records=80,
        starting='{"0": 10}', ending='{"1": 240}',
    )  # fmt: skip
    save = replay._save

    def killed_at_the_second(options: replay.Options, plan: replay.Plan) -> None:
        if plan.done == 2:
            raise _KilledError
        save(options, plan)

    monkeypatch.setattr(replay, "_save", killed_at_the_second)
    with pytest.raises(_KilledError):
        replay.run(spark, options, _quiet)
    monkeypatch.undo()
    replay.run(spark, options, _quiet)
    replay.run(spark, options, _quiet)
    expected = {0: list(range(20, 500, 2)), 1: list(range(1, 481, 2))}
    for partition, numbers in expected.items():
        found = [each for each in _records(node, "again") if each.partition == partition]
        assert [int(each.value or b"") for each in found] == numbers
        assert [each.timestamp - 1_700_000_000_000 for each in found] == numbers
    other = _options(node, tmp_path, topic="orders", to="elsewhere")
    with pytest.raises(ConfigError, match="belongs to a replay with other options"):
        replay.run(spark, other, _quiet)


def test_times_bound_a_range_and_keys_choose_partitions(
    spark: SparkSession, node: EphemeralBroker, tmp_path: Path
) -> None:
    make_topic(node, partitions=PARTITIONS)
    write(node, range(100), partitions=PARTITIONS)
    options = _options(
        node, tmp_path, topic="orders", to="again", partitions="key", keep_times=False,
        starting="2023-11-14T22:13:20.020Z", ending="2023-11-14T22:13:20.060Z",
    )  # fmt: skip
    replay.run(spark, options, _quiet)
    found = _records(node, "again")
    assert sorted(int(each.value or b"") for each in found) == list(range(20, 60))
    assert all(each.timestamp > 1_700_000_001_000 for each in found)


def test_rows_of_tables_become_records(
    spark: SparkSession, node: EphemeralBroker, tmp_path: Path
) -> None:
    pq.write_table(
        pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]}),
        tmp_path / "rows.parquet",
        row_group_size=2,
    )
    options = _options(node, tmp_path, table=str(tmp_path / "rows.parquet"), to="rows", key="id")
    replay.run(spark, options, _quiet)
    assert [(each.key, each.value) for each in _records(node, "rows")] == [
        (b"1", b'{"id":1,"name":"a"}'),
        (b"2", b'{"id":2,"name":null}'),
        (b"3", b'{"id":3,"name":"c"}'),
    ]
    delta = str(tmp_path / "table")
    changes = [record("1", b'{"id": 1}', 0), record("2", b'{"id": 2}', 1), record("1", None, 2)]
    Materializer(Materialize(topic="t", table=delta)).apply(
        pa.Table.from_pylist(changes, schema=RECORDS), 0, "w"
    )
    current = _options(node, tmp_path / "second", table=delta, to="current")
    replay.run(spark, current, _quiet)
    assert [(each.key, each.value) for each in _records(node, "current")] == [(b"2", b'{"id":2}')]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"starting": "yesterday"}, "is not an offset"),
        ({"starting": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"ending": '{"7": 1}'}, "there is no partition 7"),
        ({"ending": '{"0": 999}'}, "partition 0 has no offset 999; its offsets are 0 to 10"),
        ({"topic": "nowhere"}, "there is no topic 'nowhere'"),
        ({"checkpoint": ""}, "give checkpoint"),
    ],
)
def test_wrong_bounds_are_refused(
    spark: SparkSession, node: EphemeralBroker, tmp_path: Path, given: dict[str, str], problem: str
) -> None:
    make_topic(node)
    write(node, range(10))
    options = {
        "topic": "orders",
        "to": "again",
        "bootstrap": node.bootstrap_servers,
        "checkpoint": str(tmp_path / "replay"),
        **given,
    }
    with pytest.raises(ConfigError, match=problem):
        replay.run(spark, replay.Options(**options), _quiet)  # type: ignore[arg-type]
