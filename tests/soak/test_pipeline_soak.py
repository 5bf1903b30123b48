"""Goal: a pipeline's driver is killed 20 times, and its tables are what the topic is; a project of
Spark Declarative Pipelines can be run again.

`DRAGOMAN_SPARK_KILLS` changes the number of killed drivers.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pyarrow.dataset as ds
import pytest

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.pipelines import sdp
from dragoman.pipelines.runner import PipelineError
from dragoman.pipelines.templates import write_project
from dragoman.testing import EphemeralBroker
from spark_torture.pipeline_rounds import Rounds

KILLS = int(os.environ.get("DRAGOMAN_SPARK_KILLS", "20"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_topic_to_delta(tmp_path: Path) -> None:
    random = Random(4)
    with Rounds(tmp_path, seed=4) as rounds:
        while rounds.kills < KILLS:
            rounds.live(random.choice(("before", "after", "anytime")))
        rounds.live("never")
        rounds.judge()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_declarative_project_runs_again_and_says_what_is_wrong(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write_project(project, "sdp")
    file = project / "transformations" / "orders.py"
    with EphemeralBroker(storage="directory", directory=str(tmp_path / "data")) as broker:
        file.write_text(file.read_text().replace("127.0.0.1:9092", broker.bootstrap_servers))
        with BlockingKafkaClient(broker.bootstrap_servers) as client:
            client.create_topic(NewTopic(name="orders", partitions=2))
            for count, total in ((50, 50), (30, 80)):
                records = [NewRecord(key=b"%d" % n, value=b"order") for n in range(count)]
                client.produce_records("orders", records)

                assert sdp.run(project, is_dry=False, say=lambda _: None) == 0

                tables = project / sdp.HOME / "warehouse"
                assert ds.dataset(tables / "orders", format="parquet").count_rows() == total
                views = ds.dataset(tables / "orders_by_key", format="parquet")
                assert views.count_rows() == 50

        file.write_text(file.read_text().replace("select key,", "select kee,"))
        with pytest.raises(PipelineError, match=r"spark-pipeline.yml: \[UNRESOLVED_COLUMN"):
            sdp.run(project, is_dry=True, say=lambda _: None)
