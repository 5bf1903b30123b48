"""Goal: 200 rounds of `kill -9` under load and restart, with each durability.

`DRAGOMAN_KILL_ROUNDS` changes the number of rounds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kill_rounds

ROUNDS = int(os.environ.get("DRAGOMAN_KILL_ROUNDS", "200"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_acknowledged_records_survive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], durability: str
) -> None:
    figures = kill_rounds.run(tmp_path, durability, rounds=ROUNDS, seed=2)
    with capsys.disabled():
        print(f"\nkill -9, durability {durability}: {figures}")
    assert figures.rounds == ROUNDS
    assert 0 < figures.acknowledged <= figures.found <= figures.sent
