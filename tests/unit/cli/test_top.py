"""`dragoman top`: what is shown of answers, orders, forms, and a real node.

Method: answers as values; a node in this process for the commands.
"""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest

from dragoman.api.figure_values import FigureQuery, FigureRange, FigureValues, LeftOut
from dragoman.api.values import Check, ClusterStatus, Health, NodeStatus
from dragoman.cli.diagnosis.node import Answer, Probe
from dragoman.cli.main import main
from dragoman.cli.overview import GroupLoad, GroupOrder, Overview, TopicOrder, overview
from dragoman.testing import EphemeralBroker

TIMES = (1_800_000_000_000, 1_800_000_015_000)


def series(name: str, value: float | None, node: int | None = None, **labels: str) -> FigureValues:
    return FigureValues(name=name, labels=labels, node=node, values=(1.0, value))


SERIES = (
    series("bytes_in_per_second", 300.0, protocol="kafka"),
    series("requests_per_second", 7.0, protocol="mlog"),
    series("topic_bytes_in_per_second", 100.0, topic="a", protocol="kafka"),
    series("topic_bytes_in_per_second", 50.0, topic="a", protocol="mlog"),
    series("topic_bytes_in_per_second", None, topic="b", protocol="kafka"),
    series("topic_bytes_out_per_second", 90.0, topic="b", protocol="kafka"),
    series("topic_log_bytes", 5e6, topic="c"),
    series("group_lag_records", 9.0, group="slow"),
    series("group_lag_records", 2.0, group="old"),
    series("group_lag_seconds", 4.0, group="slow"),
    series("group_lag_seconds", 60.0, group="old"),
)
OF_NODE = (
    series("cpu_cores", 0.25, 1),
    series("loop_lag_p99_seconds", 0.002, 1),
)


class Node(Probe):
    """Answers that are given."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.checks: tuple[Check, ...] = ()

    def get(self, path: str, answer: type) -> object:  # type: ignore[override]
        nodes = (
            NodeStatus(node_id=1, alive=True, listeners=()),
            NodeStatus(node_id=2, alive=False, listeners=()),
        )
        return ClusterStatus(
            cluster_id="c",
            node_id=1,
            controller=1,
            version="1",
            feature_level=5,
            ready=True,
            durability="fsync",
            uptime_ms=1,
            topics=3,
            partitions=3,
            groups=2,
            nodes=nodes,
        )

    def post(self, path: str, body: FigureQuery, answer: type) -> object:  # type: ignore[override]
        return FigureRange(
            step_s=15,
            times=TIMES,
            series=OF_NODE if body.per_node else SERIES,
            left_out=(LeftOut(budget="topic traffic", count=1200),),
            unreachable=(2,),
        )

    def ask(self, path: str) -> Answer:
        health = Health("degraded", self.checks)
        return Answer(200, "", msgspec.json.encode(health))


def look(*, topics: TopicOrder = "in", groups: GroupOrder = "records", rows: int = 10) -> Overview:
    return overview(Node(), rows, topics=topics, groups=groups)


def test_rates_of_a_topic_are_of_all_its_protocols() -> None:
    first = look().topics[0]
    assert (first.topic, first.bytes_in, first.size_bytes) == ("a", 150.0, None)


def test_the_newest_value_that_there_is_counts() -> None:
    (found,) = (each for each in look().topics if each.topic == "b")
    assert found.bytes_in == 1.0


def test_topics_and_groups_have_the_order_asked_for() -> None:
    assert [each.topic for each in look(topics="out").topics] == ["b", "a", "c"]
    assert [each.topic for each in look(topics="size", rows=1).topics] == ["c"]
    assert [each.topic for each in look(topics="name").topics] == ["a", "b", "c"]
    assert look().groups == (GroupLoad("slow", 9.0, 4.0), GroupLoad("old", 2.0, 60.0))
    assert [each.group for each in look(groups="seconds").groups] == ["old", "slow"]
    assert [each.group for each in look(groups="name").groups] == ["old", "slow"]


def test_nodes_and_protocols_are_shown_without_samples() -> None:
    found = look()
    assert [(each.node, each.alive, each.cpu_cores) for each in found.nodes] == [
        (1, True, 0.25),
        (2, False, None),
    ]
    assert [(each.protocol, each.requests, each.bytes_in) for each in found.protocols] == [
        ("kafka", 0.0, 300.0),
        ("mlog", 7.0, 0.0),
    ]
    assert found.sampled_ms == TIMES[1]


def test_what_is_wrong_is_said() -> None:
    node = Node()
    node.checks = (Check("disk", "failed", "the disk is full"), Check("clock", "ok", "fine"))
    assert overview(node, 10, topics="in", groups="records").problems == (
        "node 2 does not answer",
        "node 2 shows no history",
        "node 1: disk failed: the disk is full",
        "(others) stands for 1,200 of topic traffic",
    )


@pytest.fixture(scope="module")
def server() -> object:
    with EphemeralBroker() as broker:
        yield broker.http_url


def test_a_node_is_shown_in_every_form(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--server", server]) == 0
    shown = capsys.readouterr().out
    assert "PROTOCOL" in shown
    assert "no samples yet" in shown
    assert main(["top", "--output", "json", "--server", server]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["node"] for each in found["nodes"]] == [1]
    assert main(["top", "--output", "csv", "--server", server]) == 0
    assert next(csv.reader(io.StringIO(capsys.readouterr().out)))[0] == "topic"


def test_a_pipe_gets_one_overview_after_the_other(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        assert seconds == 3.0
        looks += 1
        if looks == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("dragoman.cli.top.time.sleep", sleep)
    assert main(["top", "--interval", "3", "--server", server]) == 130
    assert capsys.readouterr().out.count("PROTOCOL") == 2


def test_a_screen_goes_on_when_the_node_comes_back_and_ends_with_q(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rich.console import Console

    from dragoman.cli import top
    from dragoman.cli.status import CommandError

    answers: list[object] = [look(), CommandError("cannot reach it"), look()]
    keys = iter(["", "x", "q"])

    def next_look() -> Overview:
        answer = answers.pop(0)
        if isinstance(answer, CommandError):
            raise answer
        assert isinstance(answer, Overview)
        return answer

    monkeypatch.setattr(top, "_no_key", lambda _: next(keys))
    shown = io.StringIO()
    top._screen(next_look, 1.0, Console(file=shown, force_terminal=True, width=100))
    assert answers == []
    assert "cannot reach it" in shown.getvalue()
    assert "PROTOCOL" in shown.getvalue()


@pytest.mark.parametrize("wrong", [["--interval", "0"], ["--rows", "0"], ["--sort", "weight"]])
def test_wrong_options_are_usage_errors(wrong: list[str]) -> None:
    assert main(["top", *wrong]) == 2
