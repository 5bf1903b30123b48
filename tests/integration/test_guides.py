"""Goal: the Python programs of the guide about other clients run, and print what they sent.

Method: take the blocks out of the page and run each against a broker on a free port.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.testing import EphemeralBroker

PAGE = Path(__file__).parents[2] / "docs/guides/with-kcat-and-friends.md"
PROGRAMS = re.findall(r"^## (\S+)\n\n```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
PRINTED = {
    "confluent-kafka": "plums 0 b'carol' b'5 plums'\n",
    "kafka-python": "figs 0 0\n0 b'dave' b'6 figs'\n",
    "aiokafka": "0 b'erin' b'7 limes'\n",
}


def test_every_library_of_the_guide_has_a_program() -> None:
    assert [name for name, _ in PROGRAMS] == list(PRINTED)


@pytest.mark.parametrize(("name", "program"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_program_of_the_guide_runs(name: str, program: str, tmp_path: Path) -> None:
    with EphemeralBroker() as broker:
        assert "127.0.0.1:9092" in program
        path = tmp_path / "program.py"
        path.write_text(program.replace("127.0.0.1:9092", broker.bootstrap_servers))
        ran = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False
        )
    assert (ran.returncode, ran.stdout) == (0, PRINTED[name]), ran.stderr
