"""The history of the cluster: each node has its own, and one question goes to all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.figure_values import (
    FigurePage,
    FigureQuery,
    FigureRange,
    FigureSeries,
    FigureValues,
    LeftOut,
)
from dragoman.api.node_requests import (
    A_co,
    FigureKeys,
    FigurePoints,
    FigureSelection,
    ListFigures,
    NodeRequest,
    ReadFigures,
)
from dragoman.api.node_rpc import NodeCalls
from dragoman.api.times import time_ms_of
from dragoman.broker.work_queue import Steps, WorkQueue
from dragoman.cluster.metadata import MetadataImage
from dragoman.limits import HISTORY_FINE_S, HISTORY_POINTS_MAX, HISTORY_VALUES_MAX
from dragoman.net.future import settled
from dragoman.outcome import attempt, gather, start
from dragoman.rpc import Node, Rpc
from dragoman.security.access import Caller
from dragoman.telemetry.history.figures import FIGURES, Figure, Key, is_known
from dragoman.telemetry.history.ranges import steps_of
from dragoman.world import Clock

#: Steps that are chosen when a query names none, and points that it should have at most.
_STEPS_S: Final = (15, 30, 60, 120, 300, 600, 900, 1800, 3600)
_POINTS: Final = 240
#: Values that are combined in the time of an item of the work queue, a few microseconds.
_VALUES_PER_ITEM: Final = 8


class FigureBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def rpc(self) -> Rpc: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def work(self) -> WorkQueue: ...


class _Answers(NamedTuple):
    """What nodes have answered, and which have not."""

    of_node: dict[int, FigureKeys | FigurePoints]
    unreachable: tuple[int, ...]

    def left_out(self) -> tuple[LeftOut, ...]:
        counts: dict[str, int] = {}
        for answer in self.of_node.values():
            for budget, count in answer.left_out.items():
                counts[budget] = max(count, counts.get(budget, 0))
        return tuple(
            LeftOut(budget=budget, count=count) for budget, count in counts.items() if count
        )


class FigureService:
    def __init__(self, broker: FigureBroker) -> None:
        self._broker = broker
        self._calls = NodeCalls(broker.rpc)

    async def list_figures(
        self, caller: Caller, name: str, topic: str, group: str, after: str, limit: PageLimit
    ) -> FigurePage:
        """Series that the caller may not see are left out."""
        selection = FigureSelection(names=_one(name), topics=_one(topic), groups=_one(group))
        request = ListFigures(caller=caller, selection=selection)
        return await settled(self._list(request, after, limit))

    async def _list(self, request: ListFigures, after: str, limit: int) -> FigurePage:
        answers = await self._ask(request, self._broker.image.nodes)
        nodes: dict[Key, list[int]] = {}
        for node, answer in answers.of_node.items():
            assert isinstance(answer, FigureKeys)
            for key in answer.items:
                if is_known(key):
                    nodes.setdefault(key, []).append(node)
        # A name has no such character: the order of these texts is that of the keys.
        found = {"\x1f".join(key): key for key in nodes}
        texts = sorted(text for text in found if text > after)
        page = texts[:limit]
        return FigurePage(
            items=tuple(_series(found[text], nodes[found[text]]) for text in page),
            next=page[-1] if len(texts) > limit else None,
            left_out=answers.left_out(),
            unreachable=answers.unreachable,
        )

    async def query_figures(self, caller: Caller, query: FigureQuery) -> FigureRange:
        """Series that the caller may not see are left out."""
        unknown = [each for each in query.names if each not in FIGURES]
        if unknown:
            raise ApiError(400, "invalid_request", f"names: there is no figure {unknown[0]!r}")
        times = _times(query, self._broker.clock.wall_ms())
        request = ReadFigures(
            caller=caller,
            selection=FigureSelection(
                names=query.names,
                topics=query.topics,
                groups=query.groups,
                protocols=query.protocols,
            ),
            first=times.start,
            last=times[-1],
            step_s=times.step,
        )
        return await settled(self._query(request, times, query))

    async def _query(self, request: ReadFigures, times: range, query: FigureQuery) -> FigureRange:
        nodes = self._broker.image.nodes
        answers = await self._ask(
            request, [each for each in nodes if not query.nodes or each in query.nodes]
        )
        values: dict[tuple[Key, int], Sequence[float | None]] = {}
        too_many = 0
        for node, answer in answers.of_node.items():
            assert isinstance(answer, FigurePoints)
            too_many = max(too_many, answer.too_many)
            values |= {(key, node): found for key, found in answer.items if is_known(key)}
        series = max(too_many, len(values))
        if too_many or len(values) * len(times) > HISTORY_VALUES_MAX:
            text = (
                f"{series} series of {len(times)} points; one answer has {HISTORY_VALUES_MAX} "
                f"values: name figures and topics, or ask for a longer step"
            )
            raise ApiError(400, "invalid_request", text)
        return FigureRange(
            step_s=times.step,
            times=tuple(each * 1000 for each in times),
            series=await self._broker.work.run(_combined(values, per_node=query.per_node)),
            left_out=answers.left_out(),
            unreachable=answers.unreachable,
        )

    async def _ask(self, request: NodeRequest[A_co], nodes: Iterable[int]) -> _Answers:
        asked = sorted(nodes)
        answers = await gather(
            [start(attempt(self._calls.call(request, Node(each)))) for each in asked]
        )
        of_node: dict[int, FigureKeys | FigurePoints] = {
            node: answer
            for node, answer in zip(asked, answers, strict=True)
            if isinstance(answer, FigureKeys | FigurePoints)
        }
        return _Answers(of_node, tuple(each for each in asked if each not in of_node))


def _one(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


def _labels(figure: Figure, key: Key) -> dict[str, str]:
    return dict(zip(figure.labels, key[1:], strict=True))


def _series(key: Key, nodes: list[int]) -> FigureSeries:
    figure = FIGURES[key[0]]
    return FigureSeries(
        name=figure.name,
        labels=_labels(figure, key),
        unit=figure.unit,
        over_nodes=figure.over_nodes or "none",
        nodes=tuple(nodes),
    )


def _times(query: FigureQuery, now_ms: int) -> range:
    begin = time_ms_of("from", query.begin, now_ms) // 1000
    until_ms = now_ms if query.end == "now" else time_ms_of("to", query.end, now_ms)
    end = until_ms // 1000
    step = query.step_s or next(
        (each for each in _STEPS_S if (end - begin) // each <= _POINTS), _STEPS_S[-1]
    )
    if step < 0 or step % HISTORY_FINE_S:
        text = f"step_s: expected a multiple of {HISTORY_FINE_S}, got {query.step_s}"
        raise ApiError(400, "invalid_request", text)
    times = steps_of(begin, end, step)
    if not times:
        raise ApiError(400, "invalid_request", "no point is after `from` and up to `to`")
    if len(times) > HISTORY_POINTS_MAX:
        text = f"{len(times)} points; one answer has {HISTORY_POINTS_MAX}: ask for a longer step"
        raise ApiError(400, "invalid_request", text)
    return times


def _combined(
    values: dict[tuple[Key, int], Sequence[float | None]], *, per_node: bool
) -> Steps[tuple[FigureValues, ...]]:
    groups: dict[tuple[Key, int | None], list[Sequence[float | None]]] = {}
    for (key, node), found in sorted(values.items()):
        is_apart = per_node or FIGURES[key[0]].over_nodes is None
        groups.setdefault((key, node if is_apart else None), []).append(found)
    combined: list[FigureValues] = []
    for (key, only), columns in groups.items():
        figure = FIGURES[key[0]]
        reduce = max if figure.over_nodes == "max" else sum
        points = (
            [each for each in point if each is not None] for point in zip(*columns, strict=True)
        )
        combined.append(
            FigureValues(
                name=figure.name,
                labels=_labels(figure, key),
                node=only,
                values=tuple(reduce(known) if known else None for known in points),
            )
        )
        yield 1 + len(columns) * len(columns[0]) // _VALUES_PER_ITEM
    return tuple(combined)
