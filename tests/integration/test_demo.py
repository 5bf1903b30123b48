"""Goal: the demo ends with 0 when everything is right, with 1 and a reason when it is not, and
leaves nothing behind.

Method: the program as `make demo` runs it, in a process of its own, with few records.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dragoman.installation import install_command
from tables.java_options import quick_spark

DEMO = Path(__file__).parents[2] / "examples" / "demo"
COMMAND = [sys.executable, str(DEMO)]
PROTOCOLS = ("kafka", "rocketmq", "minibroker", "cursus", "mlog")


@pytest.fixture(scope="module", autouse=True)
def _quick_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_spark(tmp_path_factory.mktemp("spark")).items():
            patch.setenv(name, value)
        yield


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


class ServingDemo:
    """A demo that has shown everything and keeps serving, and what it printed until then."""

    def __init__(self, tmp_path: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100"},
        )
        assert self.process.stdout is not None
        self.shown = ""
        for line in self.process.stdout:
            self.shown += line
            if "Ctrl-C stops it" in line:
                break

    def copied(self, purpose: str, *more: str) -> str:
        """What the line prints that is there to be copied for a purpose."""
        (line,) = re.findall(rf"^ +{purpose} +(.+)$", self.shown, re.MULTILINE)
        program, *arguments = shlex.split(line)
        assert program == ".venv/bin/dragoman"
        ran = subprocess.run(
            [sys.executable, "-m", "dragoman.cli.main", *arguments, *more],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return ran.stdout

    def console(self, path: str) -> list[dict[str, Any]]:
        """A list of the console, with the login that the last lines name."""
        pattern = r"The console is at (\S+) \(log in as (\w+), password (\w+)\)"
        ((url, user, password),) = re.findall(pattern, self.shown)
        with httpx.Client(base_url=url, trust_env=False) as browser:
            login = browser.post("/session", json={"user": user, "password": password})
            assert login.status_code == 204
            return list(browser.get(f"/{path}").json()["items"])

    def end(self, number: signal.Signals) -> str:
        """The rest of what it prints."""
        self.process.send_signal(number)
        rest, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.shown + rest
        assert errors == ""
        return rest


@pytest.mark.timeout(400)
def test_every_step_is_shown_and_lines_to_copy_work_until_it_is_interrupted(
    tmp_path: Path,
) -> None:
    """The one run with Spark, which takes most of the time."""
    demo = ServingDemo(tmp_path, "--records", "1000")
    assert demo.shown.count(" ✓ ") == 21, demo.shown
    assert demo.shown.count("1,000, each once, in order") == 2
    assert "00000000000000000000.0.log" in demo.shown
    assert "1,000 readings, 5-minute windows" in demo.shown
    windows = ["2026-06-01 00:00", "2026-06-01 00:05", "2026-06-01 00:10"]
    in_table, _, in_topic = demo.shown.partition("topic windows, with confluent-kafka")
    for name in windows:
        assert re.search(rf"^ +{name} +300 ", in_table, re.MULTILINE)
        assert re.search(rf'{name} +{{"readings":300,', in_topic)
    assert demo.copied("topic of windows").count('"readings":300') == len(windows)
    _, _, counted = demo.shown.partition("topic orders, records by writer, with Spark SQL")
    found = re.findall(r"^ +(\w+) +(\d+)$", counted.partition(" ✓ ")[0], re.MULTILINE)
    assert found == [(protocol, "2") for protocol in PROTOCOLS]
    assert "4 rows, equal to the source" in demo.shown
    assert re.search(r"shop: \d+ rows for takings, \d+ rows for goods", demo.shown)
    assert demo.console("lists/pipelines")[0]["state"] == "running"
    assert "The broker stopped cleanly" in demo.end(signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


def test_all_readers_are_shown_what_all_writers_wrote(tmp_path: Path) -> None:
    """The table is compared with what the broker has, which is asked for over each protocol."""
    demo = ServingDemo(tmp_path, "--without-spark", "--without-postgres", "--records", "100")
    _, _, below = demo.shown.partition("records say who wrote them")
    heads, _, *lines = below.partition(" ✓ ")[0].strip().splitlines()
    columns = re.split(r"  +", heads.strip())
    assert columns == ["offset", *PROTOCOLS]
    rows = [re.split(r"  +", line.strip()) for line in lines]
    assert [row[0] for row in rows] == [str(number) for number in range(2 * len(PROTOCOLS))]
    # Written in turn, each writer twice.
    writers = [row[1].split()[0] for row in rows]
    assert writers == [*PROTOCOLS, *PROTOCOLS]
    shown = demo.copied("over another protocol", "--json").splitlines()
    held = {each["offset"]: each["value"] for each in map(json.loads, shown)}
    assert len(held) == 2 * len(PROTOCOLS)
    for row in rows:
        assert row[1:] == [held[int(row[0])]] * len(PROTOCOLS)
    demo.end(signal.SIGTERM)


def test_demo_exits_by_itself_on_request(tmp_path: Path) -> None:
    result = _run(tmp_path, "--exit", "--without-spark", "--records", "100")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(" ✓ ") == 15
    assert re.search(r"✓ Fill the console +http://127\.0\.0\.1:\d+ shows", result.stdout)
    assert "slot and publication are gone" in result.stdout
    assert "The broker stopped cleanly" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_serves_until_it_is_terminated(tmp_path: Path) -> None:
    demo = ServingDemo(tmp_path, "--without-spark", "--without-postgres", "--records", "100")
    assert "topic of windows" not in demo.shown
    assert demo.shown.count("/#/") == 3
    groups = {each["group"]: each["members"] for each in demo.console("lists/group-usage")}
    assert groups["billing"] == 2
    assert groups["forecast"] == 0
    assert "The broker stopped cleanly" in demo.end(signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []


def test_spark_start_failure_is_reported_in_one_line(tmp_path: Path) -> None:
    """With a Java that is one by its looks only."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'Error occurred during initialization of VM' >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    environment = {"JAVA_HOME": str(tmp_path / "java")}
    result = _run(tmp_path, "--exit", "--records", "100", environment=environment)
    assert result.returncode == 1
    assert " ✗ Spark: [JAVA_GATEWAY_EXITED]" in result.stdout
    assert "Error occurred during initialization of VM" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["java"]


def test_missing_client_is_said_in_one_line(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "confluent_kafka.py").write_text(
        "raise ModuleNotFoundError('no', name='confluent_kafka')\n"
    )
    paths = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    result = _run(tmp_path, "--exit", environment={"PYTHONPATH": paths})
    assert result.returncode == 1
    assert install_command("demo") in result.stdout
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
