"""Goal: the demo ends with 0 when everything is right, with 1 and a reason when it is not, and
leaves nothing behind.

Method: the program as `make demo` runs it, in a process of its own, with few records.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "dragoman.demo"]


def _run(
    tmp_path: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100", **(environment or {})},
        timeout=200,
        check=False,
    )


def test_every_step_is_shown_and_nothing_is_left(tmp_path: Path) -> None:
    result = _run(tmp_path, "--exit", "--records", "1000")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(" ✓ ") == 7
    assert result.stdout.count("1,000, each once, in order") == 2
    assert "00000000000000000000.0.log" in result.stdout
    assert "The broker stopped cleanly" in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--records", "100"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Ctrl-C stops it" in line:
            break
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "The broker stopped cleanly" in rest
    assert list(tmp_path.iterdir()) == []


def test_missing_client_is_said_in_one_line(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "confluent_kafka.py").write_text(
        "raise ModuleNotFoundError('no', name='confluent_kafka')\n"
    )
    paths = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    result = _run(tmp_path, "--exit", environment={"PYTHONPATH": paths})
    assert result.returncode == 1
    assert "pip install 'dragoman[demo]'" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_broker_that_cannot_start_is_a_failure_with_its_log(tmp_path: Path) -> None:
    """Assertions switched off is one way to have `serve` refuse."""
    result = _run(tmp_path, "--exit", environment={"PYTHONOPTIMIZE": "1"})
    assert result.returncode == 1
    assert "the broker ended with status 2" in result.stdout
    assert "refusing to run without assertions" in result.stdout


@pytest.mark.parametrize("count", ["0", "-1", "many", "10000001"])
def test_unreasonable_number_of_records_is_refused(tmp_path: Path, count: str) -> None:
    result = _run(tmp_path, f"--records={count}")
    assert result.returncode == 2
    assert "expected a number from 1 to 10000000" in result.stderr
