"""Goal: `kill -9` under load loses nothing that was acknowledged. `tests/soak` does 200 rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodes import kill_rounds


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_acknowledged_records_survive_five_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], durability: str
) -> None:
    figures = kill_rounds.run(tmp_path, durability, rounds=5, seed=1)
    with capsys.disabled():
        print(f"\nkill -9, durability {durability}: {figures}")
    assert figures.rounds == 5
    assert 0 < figures.acknowledged <= figures.found <= figures.sent
