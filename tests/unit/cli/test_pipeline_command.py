"""Goal: `dragoman pipeline` says in one line what is wrong, and shows how pipelines are.

Method: files that never get as far as Spark, and states written by hand.
"""

from __future__ import annotations

import compileall
import json
import shutil
import threading
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from dragoman.cli import pipeline
from dragoman.cli.main import main
from dragoman.cli.pipeline_status import StatusReports, StatusView, _table, line
from dragoman.cli.remote import Remote
from dragoman.client.kafka import ClientSettings
from dragoman.pipelines import templates
from dragoman.pipelines.pipeline_file import load
from dragoman.pipelines.state import Progress, StateFolder, Status, new_status
from dragoman.testing import EphemeralBroker

FILE = """
name = "orders"
bootstrap = "{bootstrap}"
[sources.orders]
type = "topic"
topic = "orders"
[sinks.out]
type = "delta"
from = "orders"
path = "out"
"""
PART = Progress(
    part="out", batches=3, batch_id=2, rows=1200, rows_per_s=80.4, lag_records=7, batch_ms=15
)


def run(*arguments: str, state: Path) -> int:
    return main(["pipeline", *arguments, "--state", str(state)])


def known(root: Path, name: str, **changes: object) -> Status:
    folder = StateFolder(root, name)
    status = msgspec.structs.replace(new_status(name, "/p/pipeline.toml", "local[*]"), **changes)
    with folder.held():
        folder.write(status)
    return status


# ---- files


@pytest.mark.parametrize("template", ["topic-to-delta", "windowed", "cdc-materialize"])
def test_a_template_is_a_file_that_loads(template: str, tmp_path: Path) -> None:
    project = tmp_path / "new"

    assert main(["pipeline", "init", str(project), "--template", template]) == 0

    found = load(str(project))
    assert found.sinks or found.jobs


def test_init_writes_over_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pipeline.toml").write_text("mine")

    assert main(["pipeline", "init", str(tmp_path)]) == 2

    assert "exists: choose an empty folder" in capsys.readouterr().err
    assert (tmp_path / "pipeline.toml").read_text() == "mine"


def test_a_declarative_project_names_its_folder(tmp_path: Path) -> None:
    assert main(["pipeline", "init", str(tmp_path), "--template", "sdp"]) == 0

    assert f"storage: file://{tmp_path}/.spark" in (tmp_path / "spark-pipeline.yml").read_text()
    assert (tmp_path / "transformations" / "orders.py").exists()


def test_a_template_that_an_installation_has_compiled_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(templates._HERE, installed)
    compileall.compile_dir(installed / "sdp", quiet=2)
    assert list(installed.rglob("*.pyc"))
    monkeypatch.setattr(templates, "_HERE", installed)
    written = templates.write_project(tmp_path / "project", "sdp")
    assert {each.name for each in written} == {"orders.py", "spark-pipeline.yml"}


def test_a_wrong_file_ends_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE + 'paht = "x"\n')

    assert run("run", str(path), state=tmp_path) == 2

    problem = f"{path}: sinks.out: unknown key 'paht'; is 'path' meant?"
    assert capsys.readouterr().err == f"dragoman: {problem}\n"


def test_a_missing_topic_ends_with_2_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    path = tmp_path / "pipeline.toml"
    with EphemeralBroker() as broker:
        path.write_text(FILE.format(bootstrap=broker.bootstrap_servers))

        assert run("run", str(path), state=tmp_path) == 2

    assert "sources.orders: no topic 'orders' at" in capsys.readouterr().err
    status = StateFolder(tmp_path, "orders").status()
    assert status is not None
    assert status.state == "failed"
    assert "no topic 'orders'" in status.problem


def test_a_broker_that_is_not_there_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = ClientSettings(operation_timeout_s=0.2)
    monkeypatch.setattr("dragoman.pipelines.brokers._SETTINGS", impatient)
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE.format(bootstrap="127.0.0.1:1"))

    assert run("run", str(path), state=tmp_path) == 1

    assert "127.0.0.1:1" in capsys.readouterr().err


def test_an_address_on_the_command_line_wins_over_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE.format(bootstrap="127.0.0.1:1"))
    with EphemeralBroker() as broker:
        assert run("run", str(path), "-b", broker.bootstrap_servers, state=tmp_path) == 2
        # It was asked, and has no such topic.
        assert f"no topic 'orders' at {broker.bootstrap_servers}" in capsys.readouterr().err


def test_a_file_uses_a_context_only_if_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_CONTEXTS", str(tmp_path / "contexts.toml"))
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE.format(bootstrap="127.0.0.1:1"))
    with EphemeralBroker() as broker:
        address = broker.bootstrap_servers
        assert main(["context", "add", "here", "--bootstrap", address, "--use"]) == 0
        assert run("run", str(path), "--context", "here", state=tmp_path) == 2
        assert f"no topic 'orders' at {address}" in capsys.readouterr().err
        assert run("run", str(path), state=tmp_path) == 1
        assert "127.0.0.1:1" in capsys.readouterr().err


def test_an_address_for_a_project_of_spark_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "init", str(tmp_path), "--template", "sdp"]) == 0
    assert run("run", str(tmp_path), "-b", "h:1", state=tmp_path) == 2
    assert "names its brokers in its code" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("none.toml",), "No such file or directory"),
        (("none.toml", "--what", "is"), "unexpected '--what is': only jobs have options"),
        (("profile", "topic"), "expected --OPTION VALUE, got 'topic'"),
        (("tier", "--topic", "t"), "tier: 'root' is missing"),
        (("tier", "--topic=t", "--root=r", "--file-records=many"), "tier: file_records: "),
    ],
)
def test_wrong_usage_ends_with_2(
    arguments: tuple[str, ...],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("run", *arguments, state=tmp_path) == 2
    assert problem in capsys.readouterr().err


# ---- what is known


def test_pipelines_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = known(tmp_path, "a", state="done", parts=(PART,))
    second = known(tmp_path, "b", state="running")

    assert run("list", state=tmp_path) == 0
    assert run("list", "--output", "json", state=tmp_path) == 0

    out = capsys.readouterr().out
    table, _, listed = out.partition("[")
    assert "done" in table
    assert "80" in table
    # It is not locked: the process that ran it is gone.
    assert "died" in table
    found = msgspec.json.decode("[" + listed, type=list[Status])
    assert [status.name for status in found] == ["a", "b"]
    assert found[0] == first
    assert found[1].state == "died"
    assert second.state == "running"


def test_status_shows_parts_and_fails_with_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known(tmp_path, "a", state="failed", problem="sinks.out: no", parts=(PART,))

    assert run("status", "a", state=tmp_path) == 1
    out = capsys.readouterr().out
    assert "sinks.out: no" in out
    assert "1200" in out
    assert run("status", "a", "--output", "json", state=tmp_path) == 1
    assert json.loads(capsys.readouterr().out)["parts"][0]["lag_records"] == 7


def test_what_was_never_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status", "a", state=tmp_path) == 1
    assert "was never run here" in capsys.readouterr().err
    assert run("stop", "a", state=tmp_path) == 1
    assert "a is not running" in capsys.readouterr().err
    assert run("stop", "../a", state=tmp_path) == 2


# ---- while it runs


def test_a_job_without_batch_numbers_shows_none() -> None:
    part = Progress(part="tier", rows=1200, batches=3, lag_records=7, note="2 files")
    assert line(part) == "tier: 1,200 rows, 7 behind, 2 files"
    assert line(PART) == "out: batch 2, 1,200 rows, 80 rows/s, 7 behind, 15 ms a batch"


def test_few_lines_are_printed_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status(name="a", file="f", state="running", parts=(PART,))
    with StatusView() as view:
        for _ in range(5):
            view.show(status)
        view.show(msgspec.structs.replace(status, state="done"))

    assert capsys.readouterr().err == (f"a is running\n{line(PART)}\na is done\n{line(PART)}\n")


def test_a_terminal_shows_a_table() -> None:
    failed = msgspec.structs.replace(PART, part="[red]other", problem="no such \x1b[31m table")
    screen = StringIO()
    console = Console(width=120, file=screen)

    console.print(_table(Status(name="a", file="f", state="running", parts=(PART, failed))))

    shown = screen.getvalue()
    assert "a · running" in shown
    assert "1,200" in shown
    # Names and problems come from elsewhere: neither markup nor a terminal's commands.
    assert "[red]other" in shown
    assert "\x1b[31m" not in shown


def test_a_line_has_what_matters() -> None:
    assert line(PART) == "out: batch 2, 1,200 rows, 80 rows/s, 7 behind, 15 ms a batch"
    assert "state 5 rows" in line(msgspec.structs.replace(PART, state_rows=5))


# ---- over the API


def test_pipeline_is_started_and_listed_on_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EphemeralBroker(listeners=("kafka", "http")) as broker:
        server = f"http://{broker.address('http')}"
        path = tmp_path / "pipeline.toml"
        path.write_text(FILE.format(bootstrap=broker.bootstrap_servers))

        assert run("run", str(path), "--server", server, state=tmp_path) == 2
        capsys.readouterr()
        assert main(["pipeline", "list", "--server", server, "--output", "json"]) == 0
        (found,) = msgspec.json.decode(capsys.readouterr().out, type=list[Status])
        assert found == StateFolder(tmp_path, "orders").status()
        assert main(["pipeline", "status", "orders", "--server", server]) == 1
        assert main(["pipeline", "status", "other", "--server", server]) == 1
        assert f"other has not reported to {server}" in capsys.readouterr().err


def test_a_node_that_is_away_is_mentioned_once(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status(name="a", file="f", state="running")
    with StatusReports("http://127.0.0.1:1") as reports:
        reports.send(status)
        reports.send(msgspec.structs.replace(status, state="done"))

    assert capsys.readouterr().err.count("is not reported: cannot reach http://127.0.0.1:1") == 1


def test_the_last_report_is_repeated_while_nothing_is_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A node takes a pipeline for dead that says nothing, as during one long step of a job."""
    sent: list[object] = []
    thrice = threading.Event()

    def send(_: Remote, __: str, status: object) -> None:
        sent.append(status)
        if len(sent) == 3:
            thrice.set()

    monkeypatch.setattr(Remote, "send", send)
    monkeypatch.setattr("dragoman.cli.pipeline_status._AGAIN_S", 0.01)
    monkeypatch.setattr("dragoman.cli.pipeline_status._PAUSE_S", 0.01)
    status = known(tmp_path, "quiet")
    with StatusReports("http://127.0.0.1:1") as reports:
        reports.send(status)
        assert thrice.wait(30)
    assert set(map(repr, sent)) == {repr(status)}


def test_the_report_of_a_profile_is_printed_from_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.txt").write_text("somebody else's\n")

    def ran(*_: object, **__: object) -> int:
        (tmp_path / "profile-orders").mkdir(exist_ok=True)
        (tmp_path / "profile-orders" / "profile.txt").write_text("of the orders\n")
        return 0

    monkeypatch.setattr(pipeline, "_run", ran)
    assert run("run", "profile", "--topic", "orders", "--check", state=tmp_path) == 0
    assert capsys.readouterr().out == ""
    assert run("run", "profile", "--topic", "orders", state=tmp_path) == 0
    assert capsys.readouterr().out == "of the orders\n"
