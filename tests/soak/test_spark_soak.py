"""Goal: 20 killed drivers and 5 killed brokers, in every row of the failure table, and nothing is
lost, doubled or seen too early.

`DRAGOMAN_SPARK_KILLS` changes the number of killed drivers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_torture.faults import KILLS_DRIVER, Point
from spark_torture.rounds import Torture

KILLS = int(os.environ.get("DRAGOMAN_SPARK_KILLS", "20"))
BROKER_KILLS = 5


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_exactly_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = [point for point in Point if point not in KILLS_DRIVER and point is not Point.NOTHING]
    with Torture(tmp_path, seed=11) as torture:
        figures = torture.figures
        for point in others:
            torture.live(point)
        deadly = sorted(KILLS_DRIVER)
        while figures.driver_kills < KILLS:
            torture.live(deadly[figures.lives % len(deadly)])
            if figures.broker_kills < BROKER_KILLS and figures.lives % 3 == 0:
                torture.live(Point.BROKER)
        while figures.broker_kills < BROKER_KILLS:
            torture.live(Point.BROKER)
        torture.live(Point.NOTHING, with_batch_job=True)
        torture.judge()
        torture.judge_counts()
    with capsys.disabled():
        print(f"\nSpark, exactly once: {figures}")
