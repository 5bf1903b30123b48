"""Goal: what is known of a pipeline can be read by others, also when its process is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dragoman.errors import ConfigError
from dragoman.pipelines.state import (
    AlreadyRunningError,
    Progress,
    StateFolder,
    Status,
    default_root,
    known_pipelines,
    new_status,
)

HOLDER = """
import os, signal, sys
from pathlib import Path
import msgspec
from dragoman.pipelines.state import StateFolder, new_status

folder = StateFolder(Path(sys.argv[1]), "test")
# Kept until it is waited for, wherever it comes.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with folder.held():
    status = new_status("test", "/nowhere/pipeline.toml", "local[*]")
    folder.write(msgspec.structs.replace(status, state="running"))
    print("held", flush=True)
    signal.sigwait([signal.SIGUSR1 if sys.argv[2] == "deaf" else signal.SIGTERM])
    folder.write(msgspec.structs.replace(status, state="stopped"))
"""


@pytest.fixture
def holders() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        each.kill()
        each.communicate()


def held(root: Path, holders: list[subprocess.Popen[str]], way: str = "") -> subprocess.Popen[str]:
    """A process that holds the pipeline `test`."""
    command = [sys.executable, "-c", HOLDER, str(root), way]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    holders.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_status_is_read_back(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "test")
    assert folder.status() is None
    status = msgspec.structs.replace(
        new_status("test", "pipeline.toml", "local[*]"),
        state="done",
        parts=(Progress(part="out", rows=5),),
    )
    with folder.held():
        folder.write(status)

    assert folder.status() == status
    assert status.pid == os.getpid()
    assert known_pipelines(tmp_path) == [status]


def test_only_one_process_runs_a_pipeline(
    tmp_path: Path, holders: list[subprocess.Popen[str]]
) -> None:
    held(tmp_path, holders)
    folder = StateFolder(tmp_path, "test")

    with (
        pytest.raises(AlreadyRunningError, match="`dragoman pipeline stop test` stops it"),
        folder.held(),
    ):
        pass
    found = folder.status()
    assert found is not None
    assert found.state == "running"


def test_a_pipeline_is_stopped_gently(tmp_path: Path, holders: list[subprocess.Popen[str]]) -> None:
    process = held(tmp_path, holders)
    folder = StateFolder(tmp_path, "test")

    assert folder.stop(30.0)

    assert process.wait(30) == 0
    found = folder.status()
    assert found is not None
    assert found.state == "stopped"


def test_a_pipeline_that_does_not_listen_is_killed_and_said_to_have_died(
    tmp_path: Path, holders: list[subprocess.Popen[str]]
) -> None:
    process = held(tmp_path, holders, "deaf")
    folder = StateFolder(tmp_path, "test")

    assert not folder.stop(0.2)

    assert process.wait(30) == -signal.SIGKILL
    found = folder.status()
    assert found is not None
    assert found.state == "died"
    with pytest.raises(ConfigError, match="test is not running"):
        folder.stop(1.0)


def test_a_pipeline_elsewhere_is_not_stopped_by_a_number(
    tmp_path: Path, holders: list[subprocess.Popen[str]]
) -> None:
    held(tmp_path, holders)
    folder = StateFolder(tmp_path, "test")
    found = folder.status()
    assert found is not None
    folder.write(msgspec.structs.replace(found, host=f"not-{socket.gethostname()}"))

    with pytest.raises(ConfigError, match="stop it there"):
        folder.stop(1.0)


def test_checkpoints_of_another_project_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.touch()
    folder = StateFolder(tmp_path, "test")
    with folder.held():
        folder.write(Status(name="test", file=str(other)))

        folder.check_file(str(other))
        with pytest.raises(ConfigError, match="choose another name, or another folder with --sta"):
            folder.check_file(str(tmp_path / "mine.toml"))
        # A project that was moved keeps its state.
        other.unlink()
        folder.check_file(str(tmp_path / "mine.toml"))


def test_what_is_not_a_status_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "status.json").write_text("{")
    (tmp_path / "Not a name").mkdir()

    assert StateFolder(tmp_path, "test").status() is None
    assert known_pipelines(tmp_path) == []
    assert known_pipelines(tmp_path / "none") == []


def test_a_name_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be a name"):
        StateFolder(tmp_path, "../etc")


def test_the_folder_is_where_state_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_root() == Path("/state/dragoman/pipelines")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_root() == Path("/home/me/.local/state/dragoman/pipelines")
