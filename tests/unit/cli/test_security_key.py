"""Goal: key files are made and extended without ever losing a key, and shown without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.security.key_file import format_keys, new_key, parse_keys


def test_a_key_file_is_made_for_its_user_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "key"
    assert main(["security", "key", "new", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    [key] = parse_keys(path.read_bytes()).values()
    out = "".join(capsys.readouterr())
    assert key.key_id in out
    assert path.read_text().split()[-1] not in out
    assert os.listdir(tmp_path) == ["key"]


def test_a_new_key_comes_first_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for _ in range(3):
        before = parse_keys(path.read_bytes()) if path.exists() else {}
        assert main(["security", "key", "new", str(path)]) == 0
        after = parse_keys(path.read_bytes())
        assert list(after)[1:] == list(before)
        assert after.items() >= before.items()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_behind_a_link_is_extended_in_its_place(tmp_path: Path) -> None:
    path, link = tmp_path / "key", tmp_path / "link"
    path.write_bytes(format_keys([new_key(bytes(36))]))
    link.symlink_to(path)
    assert main(["security", "key", "new", str(link)]) == 0
    assert link.is_symlink()
    assert len(parse_keys(path.read_bytes())) == 2


@pytest.mark.parametrize("contents", [b"", b"something else\n", b"x" * (65 << 10)])
def test_a_file_that_is_no_key_file_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], contents: bytes
) -> None:
    path = tmp_path / "key"
    path.write_bytes(contents)
    assert main(["security", "key", "new", str(path)]) != 0
    assert path.read_bytes() == contents
    assert str(path) in capsys.readouterr().err


def test_a_directory_or_a_missing_place_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["security", "key", "new", str(tmp_path)]) != 0
    assert main(["security", "key", "new", str(tmp_path / "none" / "key")]) != 0
    assert "No such file" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_full_file_takes_no_more_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key"
    path.write_bytes(format_keys([new_key(bytes(32) + bytes([0, 0, 0, n])) for n in range(100)]))
    assert main(["security", "key", "new", str(path)]) != 0
    assert "remove those not in use" in capsys.readouterr().err
    assert len(parse_keys(path.read_bytes())) == 100
