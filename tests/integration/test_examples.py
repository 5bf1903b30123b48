"""Goal: examples and tutorials run as written.

Method: the example's program against a fresh broker, its output compared with what the tutorial
shows; the tests of the testing tutorial run by pytest.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dragoman.testing import EphemeralBroker

ROOT = Path(__file__).parents[2]
#: Those that start a broker themselves and say at their top what they print.
SELF_CONTAINED = [path.parent for path in (ROOT / "examples").glob("*/main.py")]
SELF_CONTAINED.remove(ROOT / "examples" / "kafka_basics")


def _blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for kind, block in found if kind == language]


def _run(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_kafka_basics_prints_what_the_tutorial_shows_every_time() -> None:
    shown, _ = _blocks("docs/tutorials/first-steps.md", "")
    with EphemeralBroker() as broker:
        for _ in range(2):
            assert _run("examples/kafka_basics/main.py", broker.bootstrap_servers) == shown


def test_short_program_of_the_first_steps_prints_what_the_page_says() -> None:
    (program,) = _blocks("docs/tutorials/first-steps.md", "python")
    _, shown = _blocks("docs/tutorials/first-steps.md", "")
    assert len(program.splitlines()) <= 12
    assert "127.0.0.1:9092" in program
    with EphemeralBroker() as broker:
        ran = program.replace("127.0.0.1:9092", broker.bootstrap_servers)
        assert _run("-c", ran) == shown


def test_commands_of_the_first_steps_work() -> None:
    with EphemeralBroker() as broker:
        for block in _blocks("docs/tutorials/first-steps.md", "sh"):
            for line in block.splitlines():
                program, *words = line.split()
                if program == "dragoman" and words[0] != "serve":
                    if words[0] == "group":
                        _run("examples/kafka_basics/main.py", broker.bootstrap_servers)
                    _run("-m", "dragoman.cli.main", *words, "--server", broker.http_url)


@pytest.mark.parametrize("example", sorted(path.name for path in SELF_CONTAINED))
def test_example_prints_what_it_says(example: str) -> None:
    page = f"examples/{example}/main.py"
    text = ast.get_docstring(ast.parse((ROOT / page).read_text())) or ""
    shown = textwrap.dedent(text.partition("prints\n\n")[2])
    assert shown
    assert _run(page).rstrip("\n") == shown


@pytest.mark.parametrize("page", ["docs/tutorials/testing.md", "docs/reference/testing-kit.md"])
def test_tests_of_pages_about_testing_pass(page: str, tmp_path: Path) -> None:
    blocks = [block for block in _blocks(page, "python") if "def test_" in block]
    for number, block in enumerate(blocks):
        (tmp_path / f"test_tutorial_{number}.py").write_text(block)
    plugin = () if _is_installed() else ("-p", "dragoman.testing.plugin")
    printed = _run("-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, str(tmp_path))
    assert f"{sum(block.count('def test_') for block in blocks)} passed" in printed


def _is_installed() -> bool:
    from importlib.metadata import entry_points

    return "dragoman" in entry_points(group="pytest11").names
