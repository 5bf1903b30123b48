"""Goal: read, transform and write exactly once for a minute while workers and broker are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from torture import transactions


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_every_input_has_one_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    figures = transactions.run(tmp_path, transactions.Plan(protocol=protocol, seed=2))
    with capsys.disabled():
        print(f"\ntransactions, group protocol {protocol}: {figures}")
    assert figures.worker_kills > 0
    assert figures.broker_kills > 1
    assert figures.open_over_a_kill > 0
    assert figures.left_to_time_out > 0
    assert figures.aborted > 0
    assert figures.records_aborted > 0
