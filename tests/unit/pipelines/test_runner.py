"""Goal: a pipeline whose Spark ends reports it in one line, or stops if that was requested.

Method: a session without a JVM, on which every call fails as py4j's do then.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from dragoman.pipelines import runner
from dragoman.pipelines.pipeline_file import load
from dragoman.pipelines.runner import PipelineError, Run
from dragoman.pipelines.state import StateFolder, Status

FILE = """
name = "p"
[sources.orders]
type = "topic"
topic = "orders"
[sinks.out]
type = "parquet"
from = "orders"
path = "out"
"""


class _NoGateway:
    """Whatever it is asked for, nothing answers, and py4j logs it at the root."""

    def __getattr__(self, name: str) -> object:
        logging.error("Exception while sending command.")
        raise ConnectionRefusedError(111, "Connection refused")


class _Context:
    """A session's context in a JVM that is there."""

    def __init__(self, is_stopped: bool) -> None:
        stopped = SimpleNamespace(isStopped=lambda: is_stopped)
        self._jsc = SimpleNamespace(sc=lambda: stopped)


def _run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: object
) -> tuple[Run, StateFolder]:
    file = tmp_path / "p.toml"
    file.write_text(FILE)
    session = SimpleNamespace(streams=_NoGateway(), sparkContext=context)
    monkeypatch.setattr(runner, "check_topics", lambda _: None)
    monkeypatch.setattr(runner, "pipeline_session", lambda *_: session)
    folder = StateFolder(tmp_path / "state", "p")
    return Run(load(str(file)), folder), folder


def _stop(run: Run) -> None:
    run.stop()


def _status(folder: StateFolder) -> Status:
    status = folder.status()
    assert status is not None
    return status


@pytest.mark.parametrize(
    "context", [_NoGateway(), _Context(is_stopped=True)], ids=["ended", "stopped"]
)
def test_jvm_exit_is_reported_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    context: object,
) -> None:
    run, folder = _run(tmp_path, monkeypatch, context)
    with pytest.raises(PipelineError, match=r"Spark has ended: .* the next run resumes"):
        run.run()
    assert _status(folder).state == "failed"
    assert caplog.records == []


def test_a_jvm_that_ends_with_a_signal_to_all_is_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = _run(tmp_path, monkeypatch, _NoGateway())
    run.run(on_started=partial(_stop, run))
    assert _status(folder).state == "stopped"


def test_other_failures_are_failures_even_while_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = _run(tmp_path, monkeypatch, _Context(is_stopped=False))
    with pytest.raises(ConnectionRefusedError):
        run.run(on_started=partial(_stop, run))
    assert _status(folder).state == "failed"
