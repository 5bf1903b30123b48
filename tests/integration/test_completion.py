"""Completion in a shell: the script for bash is run as bash runs it, with a node that has names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.testing.ephemeral import EphemeralBroker

#: Calls the function of the script as bash does, and prints what it offers.
DRIVER = r"""
source "$SCRIPT"
COMP_WORDS=("$@")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
COMP_LINE="$*"
COMP_POINT=${#COMP_LINE}
_dragoman
printf '%s\n' "${COMPREPLY[@]}"
"""


class Shell:
    def __init__(self, folder: Path, server: str) -> None:
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "SCRIPT": str(folder / "dragoman.bash"),
            "DRAGOMAN_SERVER": server,
            "DRAGOMAN_CONTEXTS": str(folder / "contexts.toml"),
        }
        script = self.run("dragoman", "completion", "bash")
        (folder / "dragoman.bash").write_text(script.stdout)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=True, timeout=120
        )

    def offers(self, *words: str) -> list[str]:
        """What bash offers after these words, the last of which is not finished."""
        done = self.run("bash", "-c", DRIVER, "bash", "dragoman", *words)
        assert done.stderr == ""
        return done.stdout.split()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with EphemeralBroker() as broker:
        shell = Shell(tmp_path_factory.mktemp("completion"), broker.http_url)
        shell.environment["DRAGOMAN_BOOTSTRAP"] = broker.bootstrap_servers
        for topic in ("orders", "invoices"):
            shell.run("dragoman", "topic", "create", topic)
        shell.run("bash", "-c", "echo one | dragoman produce orders")
        shell.run("dragoman", "consume", "orders", "--group", "reports")
        shell.run("dragoman", "context", "add", "staging", "--server", "http://127.0.0.1:1")
        yield shell


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("to",), {"top", "topic"}),
        (("topic", "de"), {"delete", "describe"}),
        (("topic", "describe", "--out"), {"--output"}),
        (("topic", "describe", "--output", ""), {"table", "json", "csv"}),
        (("completion", ""), {"bash", "zsh", "fish"}),
        (("topic", "describe", "ord"), {"orders"}),
        (("topic", "delete", "orders", "inv"), {"invoices"}),
        (("consume", "inv"), {"invoices"}),
        (("group", "describe", ""), {"reports"}),
        (("consume", "orders", "--group", "re"), {"reports"}),
        (("context", "use", ""), {"staging"}),
    ],
)
def test_bash_offers(shell: Shell, words: tuple[str, ...], offered: set[str]) -> None:
    assert set(shell.offers(*words)) == offered


def test_dead_node_and_broken_contexts_are_silent(shell: Shell) -> None:
    assert shell.offers("topic", "describe", "--context", "staging", "") == []
    file = Path(shell.environment["DRAGOMAN_CONTEXTS"])
    known = file.read_text()
    file.write_text("current =")
    try:
        assert shell.offers("context", "use", "") == []
        assert shell.offers("topic", "describe", "--context", "staging", "") == []
    finally:
        file.write_text(known)


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_scripts_of_other_shells_have_all_commands(shell: Shell, name: str, tmp_path: Path) -> None:
    script = shell.run("dragoman", "completion", name).stdout
    for word in ("topic", "truncate", "rocketmq", "query-msg-by-key", "--context"):
        assert word.lstrip("-") in script
    if program := shutil.which(name):
        path = tmp_path / "script"
        path.write_text(script)
        subprocess.run([program, "-n", str(path)], check=True)
