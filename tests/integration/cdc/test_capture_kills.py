"""No change is lost or duplicated when a capture, its database or its broker is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from captures.kills import Kills


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Kills]:
    # The tests of a capture's life run on the other release of PostgreSQL.
    made = Kills(tmp_path, seed=1, release=16)
    yield made
    made.close()


def test_every_change_arrives_once_and_in_order_over_kills(scene: Kills) -> None:
    for kind in ("capture", "postgres", "broker", "capture"):
        scene.round(kind)  # type: ignore[arg-type]
    scene.check()
