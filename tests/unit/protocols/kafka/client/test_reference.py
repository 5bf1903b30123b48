"""docs/reference/kafka-client.md: names all there is, and its program runs as written."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from dragoman.client import kafka
from dragoman.testing import EphemeralBroker

ROOT = Path(__file__).parents[5]
PAGE = (ROOT / "docs/reference/kafka-client.md").read_text()


def test_every_call_and_every_error_is_named() -> None:
    calls = [
        name
        for name, _ in inspect.getmembers(kafka.KafkaClient, inspect.isfunction)
        if not name.startswith("_") and name not in ("open", "close", "produce_records")
    ]
    errors = [name for name in kafka.__all__ if name.endswith("Error")]
    for name in [*calls, *errors]:
        assert re.search(rf"\b{name}\b", PAGE), name


def test_settings_are_those_of_the_code() -> None:
    for field in msgspec.structs.fields(kafka.ClientSettings):
        is_number = isinstance(field.default, int | float)
        shown = f"{field.default:g}" if is_number else "None" if field.default is None else ""
        assert f"{field.name}={shown}" in PAGE, field.name


def test_program_runs_as_written(broker: EphemeralBroker) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    program = program.replace("127.0.0.1:9092", broker.bootstrap_servers)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        timeout=200,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(r"[012] 0 b'v'\n", result.stdout)
