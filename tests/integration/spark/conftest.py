"""One Spark session for all tests, on two cores: starting one takes longer than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dragoman.spark import session as start_session
from dragoman.testing import EphemeralBroker
from tables.java_options import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    # Workers import modules of this folder's parent when a test hands them over, and the package
    # from where it is imported here.
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{Path(__file__).parents[2]}:{inherited}".rstrip(":")
    running = start_session(
        "dragoman tests",
        master="local[2]",
        config={
            "spark.driver.memory": "1g",
            "spark.driver.defaultJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory / "local"),
        },
    )
    yield running
    running.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[EphemeralBroker]:
    """A broker with a directory, so that its files can be read."""
    with EphemeralBroker(storage="directory", directory=str(tmp_path / "data")) as broker:
        yield broker
