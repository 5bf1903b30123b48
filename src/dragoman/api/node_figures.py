"""Requests about the history for callers of the HTTP API on other nodes: the part of this node.

A caller sees the series of the topics, groups, captures and pipelines that it may describe; all
other series, and what is combined of several topics, are for those who may describe the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Protocol

from dragoman.api.node_requests import (
    FigureKeys,
    FigurePoints,
    FigureSelection,
    ListFigures,
    ReadFigures,
)
from dragoman.api.node_rpc import NodeHandlers
from dragoman.broker.work_queue import Steps, WorkQueue
from dragoman.limits import HISTORY_VALUES_MAX
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.security.authorizer import Authorizer

if TYPE_CHECKING:
    from dragoman.telemetry.history.figures import Key
    from dragoman.telemetry.history.recorder import Recorder

_RESOURCES = {
    "topic": Resource.TOPIC,
    "group": Resource.GROUP,
    "capture": Resource.CAPTURE,
    "pipeline": Resource.PIPELINE,
}
#: Items of the work queue: a few microseconds each.
_KEYS_AT_ONCE = 200
_POINTS_ITEMS = 200


class NodeBroker(Protocol):
    """What the handlers use of the broker."""

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def work(self) -> WorkQueue: ...


class NodeFigures:
    def __init__(self, broker: NodeBroker, history: Callable[[], Recorder | None]) -> None:
        self._broker = broker
        self._history = history

    def serve(self, handlers: NodeHandlers) -> None:
        handlers.serve(ListFigures, self._list)
        handlers.serve(ReadFigures, self._read)

    async def _list(self, request: ListFigures) -> FigureKeys:
        history = self._history()
        if history is None:
            return FigureKeys()
        return await self._broker.work.run(self._listed(history, request))

    def _listed(self, history: Recorder, request: ListFigures) -> Steps[FigureKeys]:
        keys = yield from self._selected(history, request.caller, request.selection)
        return FigureKeys(items=tuple(keys), left_out=self._left_out(history, request.caller))

    async def _read(self, request: ReadFigures) -> FigurePoints:
        history = self._history()
        if history is None:
            return FigurePoints()
        return await self._broker.work.run(self._values(history, request))

    def _values(self, history: Recorder, request: ReadFigures) -> Steps[FigurePoints]:
        # Imported here: it was loaded with the history.
        from dragoman.telemetry.history.ranges import points

        keys = yield from self._selected(history, request.caller, request.selection)
        times = range(request.first, request.last + 1, request.step_s)
        if len(keys) * len(times) > HISTORY_VALUES_MAX:
            return FigurePoints(too_many=len(keys))
        work = points(history.rings, keys, times)
        while True:
            try:
                next(work)
            except StopIteration as stop:
                values: list[list[float | None]] = stop.value
                break
            yield _POINTS_ITEMS
        return FigurePoints(
            items=tuple(zip(keys, map(tuple, values), strict=True)),
            left_out=self._left_out(history, request.caller),
        )

    def _selected(
        self, history: Recorder, caller: Caller, selection: FigureSelection
    ) -> Steps[list[Key]]:
        """The series that are wanted, and that the caller may see, in order."""
        known = list(history.rings.series())
        names, wanted = _wanted(selection)
        yield len(known) // 10
        seen: list[Key] = []
        for first in range(0, len(known), _KEYS_AT_ONCE):
            some = known[first : first + _KEYS_AT_ONCE]
            seen += self._seen(caller, [each for each in some if _is_selected(each, names, wanted)])
            yield _KEYS_AT_ONCE
        return sorted(seen)

    def _seen(self, caller: Caller, keys: Iterable[Key]) -> list[Key]:
        authorizer = self._broker.authorizer
        of_cluster = self._sees_cluster(caller)
        subjects: dict[Resource, set[str]] = {each: set() for each in _RESOURCES.values()}
        known = [(key, *_subject(key)) for key in keys]
        for _, resource, name in known:
            if resource is not None:
                subjects[resource].add(name)
        shown = {
            resource: authorizer.allowed_among(caller, Operation.DESCRIBE, resource, names)
            for resource, names in subjects.items()
            if names
        }
        return [
            key
            for key, resource, name in known
            if (of_cluster if resource is None else name in shown[resource])
        ]

    def _sees_cluster(self, caller: Caller) -> bool:
        return self._broker.authorizer.may(
            caller, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME
        )

    def _left_out(self, history: Recorder, caller: Caller) -> dict[str, int]:
        """Who may not see the series of the others may not count them, either."""
        if not self._sees_cluster(caller):
            return {}
        return {str(budget): count for budget, count in history.sampler.left_out.items()}


def _subject(key: Key) -> tuple[Resource | None, str]:
    """What a series is about; None: the cluster."""
    from dragoman.telemetry.history.figures import FIGURES, OTHERS

    figure = FIGURES.get(key[0])
    if figure is None or figure.subject == "cluster" or OTHERS in key:
        return None, ""
    return _RESOURCES[figure.subject], key[figure.subject_index]


def _wanted(selection: FigureSelection) -> tuple[Set[str], Mapping[str, Set[str]]]:
    """The names of figures and the values of labels; without any, all are wanted. As sets, because
    a query may have as many as a body has room for.
    """
    labels = {
        "topic": selection.topics,
        "group": selection.groups,
        "protocol": selection.protocols,
    }
    return frozenset(selection.names), {
        label: frozenset(values) for label, values in labels.items() if values
    }


def _is_selected(key: Key, names: Set[str], wanted: Mapping[str, Set[str]]) -> bool:
    from dragoman.telemetry.history.figures import FIGURES, is_known

    if not is_known(key) or (names and key[0] not in names):
        return False
    labels = dict(zip(FIGURES[key[0]].labels, key[1:], strict=True))
    return all(labels.get(label) in values for label, values in wanted.items())
