"""Goal: a streaming query writes every record once, though its tasks, driver and broker are killed.

Method: a slice of what tests/soak does: few lives of a real driver, a fault in each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_torture.faults import Point
from spark_torture.rounds import Torture


@pytest.mark.timeout(600)
def test_topic_to_topic_with_a_killed_driver_and_a_killed_broker(tmp_path: Path) -> None:
    with Torture(tmp_path, seed=5) as torture:
        torture.live(Point.AFTER)
        torture.live(Point.BROKER, with_batch_job=True)
        torture.judge()
        torture.judge_counts()
    assert (torture.figures.driver_kills, torture.figures.broker_kills) == (1, 1)
