"""`dragoman serve` with a server that only records: settings in, exit status out, errors as one
line.
"""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from dragoman.cli.main import main
from dragoman.config.listeners import Address
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError, DirectoryInUseError, FormatError

SOURCE = Path(__file__).parents[3] / "src"
Announce: TypeAlias = Callable[[str], None]
Run: TypeAlias = Callable[[Settings, Announce], int]


@pytest.fixture(autouse=True)
def _clean_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in [name for name in os.environ if name.startswith("DRAGOMAN_")]:
        monkeypatch.delenv(variable)
    # `serve` changes the process that runs it, which has other tests to run.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(logging, "captureWarnings", lambda _: None)
    for name in ("disable", "enable", "freeze"):
        monkeypatch.setattr(gc, name, lambda: None)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Settings]]:
    """Runs `serve` with the given arguments; returns its status and the settings it came to."""

    def serve(*arguments: str, status: int = 0) -> tuple[int, Settings]:
        seen: list[Settings] = []

        def run(settings: Settings, _announce: Announce) -> int:
            seen.append(settings)
            return status

        _install_server(monkeypatch, run)
        return main(["serve", *arguments]), seen[0]

    return serve


def _install_server(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    module = types.ModuleType("dragoman.process")
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dragoman.process", module)


def test_without_arguments_all_is_default(served) -> None:
    assert served() == (0, Settings())


def test_status_of_the_server_is_that_of_the_process(served) -> None:
    assert served(status=2)[0] == 2


def test_every_flag_reaches_the_settings(served) -> None:
    _, settings = served(
        *("--data", "d", "--durability", "os", "--node-id", "7"),
        *("--log-format", "json", "--log-level", "debug"),
        *("--listen", "kafka=0.0.0.0:1", "--listen", "http=[::1]:2"),
        *("--advertise", "kafka=broker.example:3"),
        *("--set", "num.partitions=4", "--set=group.max.size=5"),
    )
    assert (settings.data, settings.durability, settings.node_id) == ("d", "os", 7)
    assert (settings.log_format, settings.log_level) == ("json", "debug")
    assert (settings.num_partitions, settings.group_max_size) == (4, 5)
    kafka, http = settings.listeners
    assert (kafka.bind, kafka.advertised) == (Address("0.0.0.0", 1), Address("broker.example", 3))
    assert http.bind == Address("::1", 2)


def test_later_of_two_flags_for_one_key_counts(served) -> None:
    assert served("--data", "a", "--set", "data=b")[1].data == "b"
    assert served("--set", "data=b", "--data", "a")[1].data == "a"


def test_file_is_named_by_flag_or_environment(
    served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.toml"
    path.write_text("num.partitions = 3\n[listen]\nhttp = 'off'\n")
    assert served("--config", str(path))[1].num_partitions == 3
    monkeypatch.setenv("DRAGOMAN_CONFIG", str(path))
    assert served()[1].num_partitions == 3


def test_logging_is_set_up_as_asked(served) -> None:
    served("--log-level", "warning")
    assert logging.getLogger().level == logging.WARNING


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"num.partitions = \xff", "is not UTF-8 at byte 17"),
        (b"x" * ((1 << 20) + 1), "is larger than 1048576 bytes"),
        (b"= 3", "is not TOML"),
        (b"nun.partitions = 3", "did you mean 'num.partitions'?"),
    ],
)
def test_bad_file_ends_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, words: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(data)
    assert main(["serve", "--config", str(path)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert str(path) in err
    assert err.count("\n") == 1


def test_directory_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("port taken\nreally"),
        DirectoryInUseError("another process uses d"),
        FormatError("newer than this release"),
    ],
)
def test_start_that_the_server_refuses_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def refuse(_settings: Settings, _announce: Announce) -> int:
        raise error

    _install_server(monkeypatch, refuse)
    assert main(["serve"]) == 2
    err = capsys.readouterr().err
    assert err == "dragoman: " + " ".join(str(error).split()) + "\n"


def test_server_refuses_to_run_without_assertions() -> None:
    process = subprocess.run(
        [sys.executable, "-O", "-m", "dragoman.cli.main", "serve"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert process.returncode == 2
    assert process.stderr == "dragoman: refusing to run without assertions: leave out python -O\n"
