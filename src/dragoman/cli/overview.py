"""What `dragoman top` shows: the nodes, protocols, topics and groups of a cluster at one moment.

It is made of the newest samples of all nodes' histories, the state of the cluster, and the health
checks of the node that answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.api.figure_values import FigureQuery, FigureRange
from dragoman.api.values import ClusterStatus, Health
from dragoman.cli.diagnosis.node import Probe
from dragoman.cli.output import Part, Table
from dragoman.cli.status import CommandError

TopicOrder: TypeAlias = Literal["in", "out", "size", "name"]
GroupOrder: TypeAlias = Literal["records", "seconds", "name"]


class NodeLoad(msgspec.Struct, frozen=True):
    node: int
    alive: bool
    cpu_cores: float | None
    resident_bytes: float | None
    disk_free_bytes: float | None
    loop_lag_p99_ms: float | None
    journal_sync_p99_ms: float | None


class ProtocolLoad(msgspec.Struct, frozen=True):
    """Rates per second."""

    protocol: str
    requests: float
    errors: float
    bytes_in: float
    bytes_out: float
    records_in: float
    records_out: float


class TopicLoad(msgspec.Struct, frozen=True):
    """Rates per second, of all protocols, and the size of the partitions."""

    topic: str
    bytes_in: float
    bytes_out: float
    records_in: float
    records_out: float
    size_bytes: float | None


class GroupLoad(msgspec.Struct, frozen=True):
    group: str
    lag_records: float
    lag_seconds: float | None


class Overview(msgspec.Struct, frozen=True):
    """Rates are of the last 15 seconds."""

    cluster: str
    #: Milliseconds since 1970, of the newest sample; null without one.
    sampled_ms: int | None
    nodes: tuple[NodeLoad, ...]
    protocols: tuple[ProtocolLoad, ...]
    #: The first, in the order that was asked for.
    topics: tuple[TopicLoad, ...]
    groups: tuple[GroupLoad, ...]
    #: What is wrong, a line each.
    problems: tuple[str, ...]


_RATES: Final = (
    "bytes_in_per_second",
    "bytes_out_per_second",
    "records_in_per_second",
    "records_out_per_second",
)
_OF_NODE: Final = (
    "cpu_cores",
    "resident_memory_bytes",
    "disk_free_bytes",
    "loop_lag_p99_seconds",
    "journal_sync_p99_seconds",
)
_NAMES: Final = (
    "requests_per_second",
    "request_errors_per_second",
    *_RATES,
    *(f"topic_{each}" for each in _RATES),
    "topic_log_bytes",
    "group_lag_records",
    "group_lag_seconds",
)
#: Two samples: the newest may not be there yet.
_RANGE: Final = "-45s"


class _Newest:
    """The newest value of every series, added up over the labels that are not asked for."""

    def __init__(self, found: FigureRange) -> None:
        self._values: dict[str, list[tuple[Mapping[str, str], int | None, float]]] = {}
        self.at: int | None = None
        for series in found.series:
            known = [each for each in enumerate(series.values) if each[1] is not None]
            if known:
                index, value = known[-1]
                assert value is not None
                self.at = max(self.at or 0, found.times[index])
                of_name = self._values.setdefault(series.name, [])
                of_name.append((series.labels, series.node, value))

    def by(self, name: str, label: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for labels, _, value in self._values.get(name, ()):
            sums[labels[label]] = sums.get(labels[label], 0.0) + value
        return sums

    def of_node(self, name: str, node: int, factor: float = 1) -> float | None:
        found = [value for _, of, value in self._values.get(name, ()) if of == node]
        return found[0] * factor if found else None


def overview(remote: Probe, rows_max: int, *, topics: TopicOrder, groups: GroupOrder) -> Overview:
    """Raises `CommandError`."""
    cluster = remote.get("/api/v1/cluster", ClusterStatus)
    path = "/api/v1/figures/query"
    found = remote.post(path, FigureQuery(names=_NAMES, begin=_RANGE, step_s=15), FigureRange)
    apart = FigureQuery(names=_OF_NODE, begin=_RANGE, step_s=15, per_node=True)
    newest, per_node = _Newest(found), _Newest(remote.post(path, apart, FigureRange))
    return Overview(
        cluster=cluster.cluster_id,
        sampled_ms=newest.at or per_node.at,
        nodes=tuple(_node(each.node_id, each.alive, per_node) for each in cluster.nodes),
        protocols=tuple(_protocols(newest)),
        topics=tuple(_topics(newest, topics)[:rows_max]),
        groups=tuple(_groups(newest, groups)[:rows_max]),
        problems=tuple(_problems(remote, cluster, found)),
    )


def _node(node: int, alive: bool, newest: _Newest) -> NodeLoad:
    return NodeLoad(
        node=node,
        alive=alive,
        cpu_cores=newest.of_node("cpu_cores", node),
        resident_bytes=newest.of_node("resident_memory_bytes", node),
        disk_free_bytes=newest.of_node("disk_free_bytes", node),
        loop_lag_p99_ms=newest.of_node("loop_lag_p99_seconds", node, 1000),
        journal_sync_p99_ms=newest.of_node("journal_sync_p99_seconds", node, 1000),
    )


def _protocols(newest: _Newest) -> Iterable[ProtocolLoad]:
    names = ("requests_per_second", "request_errors_per_second", *_RATES)
    columns = [newest.by(name, "protocol") for name in names]
    for protocol in sorted(set().union(*columns)):
        yield ProtocolLoad(protocol, *(each.get(protocol, 0.0) for each in columns))


def _topics(newest: _Newest, order: TopicOrder) -> list[TopicLoad]:
    rates = {name: newest.by(f"topic_{name}", "topic") for name in _RATES}
    sizes = newest.by("topic_log_bytes", "topic")
    found = [
        TopicLoad(
            topic,
            bytes_in=rates["bytes_in_per_second"].get(topic, 0.0),
            bytes_out=rates["bytes_out_per_second"].get(topic, 0.0),
            records_in=rates["records_in_per_second"].get(topic, 0.0),
            records_out=rates["records_out_per_second"].get(topic, 0.0),
            size_bytes=sizes.get(topic),
        )
        for topic in sorted(set(sizes).union(*rates.values()))
    ]
    match order:
        case "in":
            found.sort(key=lambda each: each.bytes_in, reverse=True)
        case "out":
            found.sort(key=lambda each: each.bytes_out, reverse=True)
        case "size":
            found.sort(key=lambda each: each.size_bytes or 0, reverse=True)
        case "name":
            pass
    return found


def _groups(newest: _Newest, order: GroupOrder) -> list[GroupLoad]:
    records = newest.by("group_lag_records", "group")
    seconds = newest.by("group_lag_seconds", "group")
    found = [GroupLoad(group, records[group], seconds.get(group)) for group in sorted(records)]
    if order == "records":
        found.sort(key=lambda each: each.lag_records, reverse=True)
    elif order == "seconds":
        found.sort(key=lambda each: each.lag_seconds or 0, reverse=True)
    return found


def _problems(remote: Probe, cluster: ClusterStatus, found: FigureRange) -> Iterable[str]:
    for node in cluster.nodes:
        if not node.alive:
            yield f"node {node.node_id} does not answer"
    for unreachable in found.unreachable:
        yield f"node {unreachable} shows no history"
    try:
        health = msgspec.json.decode(remote.ask("/readyz?format=json").body, type=Health)
    except (CommandError, msgspec.DecodeError):
        yield f"node {cluster.node_id} does not show its checks"
        return
    for check in health.checks:
        if check.status != "ok":
            detail = f": {check.detail}" if check.detail else ""
            yield f"node {cluster.node_id}: {check.name} {check.status}{detail}"
    for left_out in found.left_out:
        yield f"(others) stands for {left_out.count:,} of {left_out.budget}"


# ---- tables


def tables(of: Overview) -> Sequence[Part]:
    """The overview for people."""
    parts: list[Part] = [
        Table(
            ("NODE", "ALIVE", "CPU %", "MEMORY MB", "DISK FREE GB", "LOOP LAG ms", "SYNC ms"),
            [
                (
                    each.node,
                    each.alive,
                    _whole(each.cpu_cores, 0.01),
                    _whole(each.resident_bytes, 1e6),
                    _whole(each.disk_free_bytes, 1e9),
                    _whole(each.loop_lag_p99_ms),
                    _whole(each.journal_sync_p99_ms),
                )
                for each in of.nodes
            ],
        ),
        Table(
            ("PROTOCOL", "REQUESTS/s", "ERRORS/s", "IN KB/s", "OUT KB/s", "RECORDS IN/s", "OUT/s"),
            [
                (
                    each.protocol,
                    _whole(each.requests),
                    _whole(each.errors),
                    _whole(each.bytes_in, 1e3),
                    _whole(each.bytes_out, 1e3),
                    _whole(each.records_in),
                    _whole(each.records_out),
                )
                for each in of.protocols
            ],
        ),
        Table(
            ("TOPIC", "IN KB/s", "OUT KB/s", "RECORDS IN/s", "OUT/s", "SIZE MB"),
            [
                (
                    each.topic,
                    _whole(each.bytes_in, 1e3),
                    _whole(each.bytes_out, 1e3),
                    _whole(each.records_in),
                    _whole(each.records_out),
                    _whole(each.size_bytes, 1e6),
                )
                for each in of.topics
            ],
        ),
        Table(
            ("GROUP", "LAG RECORDS", "LAG s"),
            [
                (each.group, _whole(each.lag_records), _whole(each.lag_seconds))
                for each in of.groups
            ],
        ),
    ]
    if of.sampled_ms is None:
        parts.append("no samples yet: the first comes within 15 s of a node's start")
    return [*parts, "\n".join(of.problems) or "nothing is wrong"]


def _whole(value: float | None, unit: float = 1) -> int | None:
    return None if value is None else round(value / unit)
