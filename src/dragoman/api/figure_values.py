"""Values of the history, version 1 of the JSON API; see `values.py`."""

from __future__ import annotations

import msgspec


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What has no series of its own, and is combined under the name `(others)`."""

    #: `topic traffic`, `topic size`, `group` or `node`.
    budget: str
    #: How many topics, groups or others, on the node that combines the most.
    count: int


class FigureSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A series that nodes have samples of."""

    name: str
    labels: dict[str, str]
    unit: str
    #: Whether values of several nodes are added up (`sum`), their largest is taken (`max`), or they
    #: stay apart (`none`).
    over_nodes: str
    nodes: tuple[int, ...]


class FigurePage(msgspec.Struct, frozen=True, kw_only=True):
    #: In order of name and labels.
    items: tuple[FigureSeries, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None
    left_out: tuple[LeftOut, ...] = ()
    #: Nodes that did not answer, or are of a release without a history.
    unreachable: tuple[int, ...] = ()


class FigureQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which series, and of when."""

    #: Names of figures; empty: all.
    names: tuple[str, ...] = ()
    #: Topics, groups and protocols; empty: all, and also series without such a label.
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    #: Milliseconds since 1970, RFC 3339, or how long ago, such as `-15m` or `-1d12h`.
    begin: int | str = msgspec.field(default="-1h", name="from")
    #: The same, or `now`.
    end: int | str = msgspec.field(default="now", name="to")
    #: Seconds between two points: 15, or a multiple. 0: as fits about 240 points.
    step_s: int = 0
    #: Whether the series of each node stay apart.
    per_node: bool = False


class FigureValues(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    labels: dict[str, str]
    #: The node whose values these are; null: of all nodes together.
    node: int | None
    #: One for each time; null where there is no sample.
    values: tuple[float | None, ...]


class FigureRange(msgspec.Struct, frozen=True, kw_only=True):
    step_s: int
    #: Ends of the intervals, in milliseconds since 1970.
    times: tuple[int, ...]
    #: In order of name, labels and node.
    series: tuple[FigureValues, ...]
    left_out: tuple[LeftOut, ...] = ()
    #: Nodes that did not answer, or are of a release without a history.
    unreachable: tuple[int, ...] = ()
