"""`dragoman log inspect|verify` on directories that a broker left behind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.testing import EphemeralBroker


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The data directory of a broker that was started and stopped."""
    with EphemeralBroker(storage="directory", directory=str(tmp_path / "data")):
        pass
    return tmp_path / "data"


def damage(directory: Path) -> None:
    segment = next(directory.glob("partitions/*/*.log"))
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)


def test_sound_directory_is_shown(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect", str(directory)]) == 0
    out = capsys.readouterr().out
    assert "node.json" in out
    assert "__cluster_metadata-0" in out


def test_sound_directory_is_verified(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(directory)]) == 0
    assert capsys.readouterr().out.startswith("sound: ")


@pytest.mark.parametrize("verb", ["inspect", "verify", "repair"])
def test_damaged_history_is_no_damage_of_the_log(directory: Path, verb: str) -> None:
    (directory / "history").mkdir()
    (directory / "history" / "15s-00000001").write_bytes(b"\xff" * 1000)
    assert main(["log", verb, str(directory)]) == 0
    assert (directory / "history" / "15s-00000001").read_bytes() == b"\xff" * 1000


def test_damage_is_named_and_the_status_says_so(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(directory)
    for verb in ("inspect", "verify"):
        assert main(["log", verb, str(directory)]) == 1
        out = capsys.readouterr().out
        assert "damage" in out
        assert re.search(r"\.log at byte \d+", out)


def test_json_is_one_value_a_line(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect", str(directory), "--output", "json"]) == 0
    kinds = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert kinds[0] == "node"
    assert main(["log", "verify", str(directory), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []


def test_directory_of_a_newer_release_is_refused(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dragoman.log.node import read_node_state, write_node_state
    from dragoman.operating_system import RealDisk

    disk = RealDisk(str(directory))
    state = read_node_state(disk)
    state.format = 99
    write_node_state(disk, state)
    assert main(["log", "verify", str(directory)]) == 2
    assert "format 99" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["inspect", "verify", "repair", "adopt"])
def test_what_is_no_data_directory_is_no_damage(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    refusals = {
        "missing": "no such directory",
        "file": "not a data directory",
        "empty": "not a data directory",
        "": f"not a data directory; there are {directory}",
    }
    before = sorted(tmp_path.rglob("*"))
    for name, refusal in refusals.items():
        path = tmp_path / name
        assert main(["log", verb, str(path)]) == 2
        assert capsys.readouterr() == ("", f"dragoman: {path}: {refusal}\n")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_lost_node_file_is_damage(
    directory: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    (directory / "node.json").unlink()
    assert main(["log", verb, str(directory)]) == 1
    assert "dragoman log adopt" in capsys.readouterr().out


def test_directory_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect"]) == 2
    assert capsys.readouterr().out == ""
