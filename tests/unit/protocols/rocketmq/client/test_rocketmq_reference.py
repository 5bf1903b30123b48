"""docs/reference/rocketmq-client.md: names all there is, and its program runs as written."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import msgspec

from dragoman.client import rocketmq
from dragoman.protocols.rocketmq.client.producer import ProducerOptions
from dragoman.protocols.rocketmq.client.push_consumer import ConsumerOptions
from dragoman.testing import EphemeralBroker

ROOT = Path(__file__).parents[5]
PAGE = (ROOT / "docs/reference/rocketmq-client.md").read_text()


def test_every_call_and_every_error_is_named() -> None:
    classes = (
        rocketmq.RocketmqClient,
        rocketmq.RocketmqAdmin,
        rocketmq.PullConsumer,
        rocketmq.Producer,
        rocketmq.TransactionProducer,
    )
    # What the parts of a client use among each other.
    inner = {"deliver", "check_transaction", "heartbeat"}
    inner |= {"rebalance_soon", "reset_offsets", "offsets", "running_info", "consume_directly"}
    calls = {
        name
        for each in classes
        for name, _ in inspect.getmembers(each, inspect.isfunction)
        if not name.startswith("_") and name not in {"start", "close", *inner}
    }
    errors = {name for name in rocketmq.__all__ if name.endswith("Error")}
    assert len(calls) > 110
    for name in calls | errors:
        assert re.search(rf"\b{name}\b", PAGE), name


def test_settings_and_options_are_those_of_the_code() -> None:
    for field in msgspec.structs.fields(rocketmq.ClientSettings):
        default = field.default
        is_number = isinstance(default, float) or type(default) is int
        shown = f"{default:g}" if is_number else ""
        assert f"{field.name}={shown}" in PAGE, field.name
    for options in (ProducerOptions, ConsumerOptions):
        for name in get_type_hints(options):
            assert re.search(rf"\b{name}\b", PAGE), name


def test_program_runs_as_written() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with EphemeralBroker(listeners=("rocketmq", "rocketmq-broker")) as broker:
        program = program.replace("127.0.0.1:9876", broker.address("rocketmq"))
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(ROOT / "src")},
            timeout=200,
            check=False,
        )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "orders fruit b'3 apples'\n"
