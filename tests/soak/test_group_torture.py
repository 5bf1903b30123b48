"""Goal: twenty members of one group come, leave, crash and freeze for a minute, and the broker is
killed under them, with each way of sharing partitions that today's clients have.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from torture import groups


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", groups.MIXTURES)
def test_group_survives(tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str) -> None:
    plan = groups.Plan(protocol=protocol, seed=2)
    figures = groups.run(tmp_path, plan)
    with capsys.disabled():
        print(f"\n{protocol}, {'/'.join(groups.MIXTURES[protocol])}: {figures}")
    assert figures.crashed > 0
    assert figures.generations > 5
    assert figures.descriptions > 0
    assert figures.commits > 100
