"""Goal: every node of a cluster is restarted in turn, and no client sees a failed write.

Method: nodes as processes; idempotent stock producers write all the time, one to each partition.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from chaos.checker import judge, read_all
from chaos.clients import KAFKA_TOPIC, PARTITIONS, KafkaWriter, Writer
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from nodes.cluster import ServedCluster


def _wait_for_more(writer: Writer, count: int) -> None:
    """Stock clients take their time to hear of new leaders."""
    deadline = time.monotonic() + 60
    while len(writer.acknowledged) <= count:
        assert time.monotonic() < deadline, "nothing is written any more"
        os.sched_yield()


def test_a_rolling_restart_fails_no_write(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, 3) as cluster:
        cluster.start(1, 2, 3)
        with BlockingKafkaClient(cluster.bootstrap()) as client:
            topic = NewTopic(name=KAFKA_TOPIC, partitions=PARTITIONS, replication_factor=3)
            client.create_topic(topic)
        writers: list[Writer] = [
            KafkaWriter(f"kafka-{n}", cluster.bootstrap(), n) for n in range(PARTITIONS)
        ]
        for writer in writers:
            writer.start()
        for node in (1, 2, 3):
            before = [len(each.acknowledged) for each in writers]
            assert cluster.nodes[node].stop() == 0
            assert not any("taken over" in line for line in cluster.nodes[node].log)
            cluster.start(node)
            cluster.wait_in_sync(node)
            for writer, count in zip(writers, before, strict=True):
                _wait_for_more(writer, count)
        for writer in writers:
            writer.stop()
        for writer in writers:
            writer.join()
        log = read_all(cluster.bootstrap(), {KAFKA_TOPIC: PARTITIONS})
        assert judge(log, writers, []) == []
