"""Goal: 200 rounds of `kill -9` under load and restart, with each durability; and 20 under a client
of each other protocol, with what `tests/integration/test_client_kills.py` says of their promises.

`DRAGOMAN_KILL_ROUNDS` and `DRAGOMAN_CLIENT_KILLS` change the numbers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodes import client_kills, kill_rounds

ROUNDS = int(os.environ.get("DRAGOMAN_KILL_ROUNDS", "200"))
CLIENT_KILLS = int(os.environ.get("DRAGOMAN_CLIENT_KILLS", "20"))


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


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", ["minibroker", "cursus", "mlog"])
def test_clients_live_through_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    figures = client_kills.run(tmp_path, protocol, kills=CLIENT_KILLS, seed=4)
    with capsys.disabled():
        print(f"\nkill -9, {figures}")
    client_kills.check_promise(figures)
