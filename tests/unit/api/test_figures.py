"""Goal: one question about the history is answered for all nodes, within bounds.

Method: the services of two nodes in virtual time, with histories whose rows are written by hand.
Rights are in `tests/unit/security/test_http_rights.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import pytest

from dragoman import limits
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.figure_values import FigureQuery, FigureRange, LeftOut
from dragoman.api.figures import FigureService
from dragoman.api.node_service import serve_other_nodes
from dragoman.security.access import Caller
from dragoman.telemetry.history.figures import Key
from dragoman.telemetry.history.recorder import Recorder
from dragoman.telemetry.history.ring import Row
from dragoman.testing.memory import MemoryDisk
from worlds.http import ask
from worlds.two_nodes import Pair

CALLER = Caller()
ORDERS: Key = ("topic_bytes_in_per_second", "orders", "kafka")
LAG: Key = ("group_lag_seconds", "billing")
CPU: Key = ("cpu_cores",)


class Two:
    def __init__(self) -> None:
        self.pair = Pair()
        self.recorders: dict[int, Recorder] = {}
        for node, world in self.pair.worlds.items():
            broker, clock = world.broker, world.clock
            recorder = self.recorders[node] = Recorder(
                lambda: (), MemoryDisk(), world.scheduler, clock, lambda: False, clock.monotonic()
            )
            serve_other_nodes(broker, broker.leader_queues, lambda recorder=recorder: recorder)
        self.figures = FigureService(self.pair.one.broker)
        clock = self.pair.one.clock
        self.now = clock.wall_ms() // 1000

    def sample(self, node: int, ago_s: int, values: Mapping[Key, float]) -> None:
        columns = self.recorders[node].rings.columns
        for key in values:
            if key not in columns.index:
                columns.add(key)
        row = array("f", [values.get(key, float("nan")) for key in columns.keys])
        at = (self.now - ago_s) // 15 * 15
        self.recorders[node].rings.fine.rows.append(Row(at, columns, row))

    def query(self, query: FigureQuery) -> FigureRange:
        return ask(self.pair, self.figures.query_figures(CALLER, query))


@pytest.fixture
def two() -> Two:
    two = Two()
    for ago_s in (60, 45, 30, 15, 0):
        two.sample(1, ago_s, {ORDERS: 100.0, LAG: 3.0, CPU: 0.5})
        if ago_s != 30:
            two.sample(2, ago_s, {ORDERS: 20.0, LAG: 7.0, CPU: 0.25})
    return two


def test_values_of_nodes_are_combined_as_the_figure_says(two: Two) -> None:
    found = two.query(FigureQuery(begin="-1m", step_s=15))
    assert [(each.name, each.node, each.values[-1]) for each in found.series] == [
        ("cpu_cores", 1, 0.5),
        ("cpu_cores", 2, 0.25),
        ("group_lag_seconds", None, 7.0),
        ("topic_bytes_in_per_second", None, 120.0),
    ]
    assert found.series[-1].labels == {"topic": "orders", "protocol": "kafka"}
    assert found.series[-1].values == (120.0, 100.0, 120.0, 120.0)
    assert found.times[-1] - found.times[0] == 45_000
    assert found.unreachable == ()


def test_nodes_stay_apart_when_asked_for(two: Two) -> None:
    query = FigureQuery(names=("topic_bytes_in_per_second",), begin="-1m", step_s=15, per_node=True)
    found = two.query(query)
    assert [(each.node, each.values) for each in found.series] == [
        (1, (100.0, 100.0, 100.0, 100.0)),
        (2, (20.0, None, 20.0, 20.0)),
    ]


def test_series_are_found_by_their_labels(two: Two) -> None:
    def names(query: FigureQuery) -> list[str]:
        return [each.name for each in two.query(query).series]

    assert names(FigureQuery(topics=("orders",))) == ["topic_bytes_in_per_second"]
    assert names(FigureQuery(protocols=("kafka",))) == ["topic_bytes_in_per_second"]
    assert names(FigureQuery(protocols=("mlog",))) == []
    assert names(FigureQuery(groups=("billing",))) == ["group_lag_seconds"]
    assert names(FigureQuery(names=("cpu_cores",), nodes=(2,))) == ["cpu_cores"]


def test_series_are_listed_a_page_at_a_time(two: Two) -> None:
    def page(after: str) -> tuple[list[tuple[str, tuple[int, ...]]], str | None]:
        figures = two.figures.list_figures(CALLER, "", "", "", after, PageLimit(2))
        found = ask(two.pair, figures)
        return [(each.name, each.nodes) for each in found.items], found.next

    first, following = page("")
    assert first == [("cpu_cores", (1, 2)), ("group_lag_seconds", (1, 2))]
    assert following is not None
    assert page(following) == ([("topic_bytes_in_per_second", (1, 2))], None)


def test_what_is_combined_is_said(two: Two) -> None:
    two.recorders[2].sampler.left_out["topic traffic"] = 12
    expected = (LeftOut(budget="topic traffic", count=12),)
    assert two.query(FigureQuery()).left_out == expected
    page = ask(two.pair, two.figures.list_figures(CALLER, "", "", "", "", PageLimit(9)))
    assert page.left_out == expected


def test_series_of_another_release_are_not_shown(two: Two) -> None:
    two.sample(2, 0, {("figure_of_a_later_release",): 1.0, (*CPU, "of a later release"): 1.0})
    found = two.query(FigureQuery(begin="-1m", step_s=15))
    assert {each.name for each in found.series} == {
        "cpu_cores",
        "group_lag_seconds",
        "topic_bytes_in_per_second",
    }
    page = ask(two.pair, two.figures.list_figures(CALLER, "", "", "", "", PageLimit(9)))
    assert len(page.items) == 3


def test_a_step_is_chosen_that_fits_the_range(two: Two) -> None:
    assert two.query(FigureQuery(begin="@-5m", end=str(two.now * 1000))).step_s == 15
    steps = [two.query(FigureQuery(begin=begin)).step_s for begin in ("-5m", "-1h", "-6h", "-7d")]
    assert steps == [15, 15, 120, 3600]


def test_an_answer_is_bounded(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApiError, match=r"40320 points; one answer has 2100: ask for a longer step"):
        two.query(FigureQuery(begin="-7d", step_s=15))
    monkeypatch.setattr("dragoman.api.node_figures.HISTORY_VALUES_MAX", 500)
    with pytest.raises(ApiError, match=r"3 series of 240 points; one answer has"):
        two.query(FigureQuery(begin="-1h", step_s=15))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (FigureQuery(names=("nothing",)), "names: there is no figure 'nothing'"),
        (FigureQuery(step_s=7), "step_s: expected a multiple of 15, got 7"),
        (FigureQuery(step_s=-15), "step_s: expected a multiple of 15, got -15"),
        (FigureQuery(begin="-1m", end="-1h"), "no point is after `from` and up to `to`"),
        (FigureQuery(begin="yesterday"), "from: expected milliseconds since 1970"),
    ],
)
def test_a_query_without_sense_is_refused(two: Two, query: FigureQuery, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        two.query(query)
    assert refused.value.status == 400


def test_a_node_whose_history_has_not_begun_has_no_series() -> None:
    two = Two()
    broker = two.pair.worlds[2].broker
    serve_other_nodes(broker, broker.leader_queues)
    two.sample(1, 0, {CPU: 0.5})
    found = two.query(FigureQuery())
    assert [each.node for each in found.series] == [1]
    assert found.unreachable == ()


def test_a_node_of_a_release_without_a_history_is_named(two: Two) -> None:
    two.pair.worlds[2].broker.leader_queues.protocols.pop("http")
    found = two.query(FigureQuery(names=("cpu_cores",)))
    assert [each.node for each in found.series] == [1]
    assert found.unreachable == (2,)
    page = ask(two.pair, two.figures.list_figures(CALLER, "", "", "", "", PageLimit(9)))
    assert page.unreachable == (2,)


def test_a_week_of_coarse_samples_is_one_answer() -> None:
    assert 7 * 86_400 // limits.HISTORY_COARSE_S <= limits.HISTORY_POINTS_MAX
