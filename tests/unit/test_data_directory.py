"""Goal: a node takes only its own directories, and a failed first start leaves no trace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.data_directory import (
    is_data_directory,
    open_data_directory,
    refuse_other_directory,
    restored_unless,
)
from dragoman.errors import ConfigError, DirectoryInUseError
from dragoman.log.directory import LOCK_FILE


def tree(root: Path) -> list[str]:
    return sorted(str(each.relative_to(root)) for each in root.rglob("*"))


def use(data: Path) -> None:
    """Make what a start makes first."""
    disk = open_data_directory(str(data))
    disk.lock(LOCK_FILE).release()
    for name in ("journal/mark", "partitions/1-t-0/manifest.json", "node.json"):
        disk.make_directory(os.path.dirname(name))
        if not disk.exists(name):
            disk.open(name, "create").close()


def fail(data: Path, *, is_needed: bool = False) -> None:
    def start() -> None:
        with restored_unless(str(data), lambda: is_needed):
            use(data)
            raise ConfigError("port taken")

    with pytest.raises(ConfigError, match="port taken"):
        start()


def test_failed_start_removes_the_directories_that_it_made(tmp_path: Path) -> None:
    fail(tmp_path / "a" / "b")
    assert tree(tmp_path) == []


def test_failed_start_keeps_files_that_it_found(tmp_path: Path) -> None:
    (tmp_path / "cluster.key").write_text("mine")
    (tmp_path / "lost+found").mkdir()
    fail(tmp_path)
    assert tree(tmp_path) == ["cluster.key", "lost+found"]


def test_directory_that_others_know_is_kept(tmp_path: Path) -> None:
    fail(tmp_path, is_needed=True)
    assert is_data_directory(str(tmp_path))


def test_directory_that_was_used_before_is_kept(tmp_path: Path) -> None:
    use(tmp_path)
    before = tree(tmp_path)
    fail(tmp_path)
    assert tree(tmp_path) == before


def test_directory_that_another_node_was_faster_to_take_is_kept(tmp_path: Path) -> None:
    locks = []

    def start() -> None:
        with restored_unless(str(tmp_path), lambda: False):
            use(tmp_path)
            locks.append(open_data_directory(str(tmp_path)).lock(LOCK_FILE))
            open_data_directory(str(tmp_path)).lock(LOCK_FILE)

    with pytest.raises(DirectoryInUseError):
        start()
    assert is_data_directory(str(tmp_path))
    locks[0].release()


def test_error_of_a_start_in_a_file_is_its_own(tmp_path: Path) -> None:
    def start() -> None:
        with restored_unless(str(tmp_path / "file"), lambda: False):
            open_data_directory(str(tmp_path / "file"))

    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="data directory"):
        start()
    assert tree(tmp_path) == ["file"]


@pytest.mark.parametrize("names", [[".bashrc"], [".git", "README.md"], ["journal.txt", "lock"]])
def test_directory_of_something_else_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=f"--data {tmp_path}/dragoman-data"):
        refuse_other_directory(str(tmp_path), [])
    assert tree(tmp_path) == sorted(names)


@pytest.mark.parametrize("names", [[], ["lost+found"], ["tls/node.pem", "conf.d/node.toml"]])
def test_new_directory_may_have_files_of_the_settings(tmp_path: Path, names: list[str]) -> None:
    files = [tmp_path / each for each in names]
    for each in files:
        each.parent.mkdir(exist_ok=True)
        each.write_text("")
    refuse_other_directory(str(tmp_path), map(str, files))
    refuse_other_directory(str(tmp_path / "missing"), [])


def test_data_directory_may_have_any_other_files(tmp_path: Path) -> None:
    use(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    refuse_other_directory(str(tmp_path), [])
    (tmp_path / "node.json").unlink()
    refuse_other_directory(str(tmp_path), [])


def test_history_that_is_left_alone_is_a_nodes_own(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    refuse_other_directory(str(tmp_path), [])
