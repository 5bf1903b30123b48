"""Goal: clients of every protocol live through `kill -9` of their node. `tests/soak` does 20 kills.

Lost must be nothing. What may be there twice is each protocol's own promise:

- minibroker repeats a publish whose reply was lost: at least once, twice only when the outcome was
  unknown. Members are given again what they had not committed.
- Cursus producers number their messages: exactly once. A consumer hands out no record twice.
- mlog repeats like minibroker. A consumer hands out no record twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nodes import client_kills


@pytest.mark.parametrize("protocol", ["minibroker", "cursus", "mlog"])
def test_client_lives_through_three_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    figures = client_kills.run(tmp_path, protocol, kills=3, seed=3)
    with capsys.disabled():
        print(f"\nkill -9, {figures}")
    client_kills.check_promise(figures)
