"""What the HTTP API needs of a node. The composition root provides it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dragoman.api.pipelines import PipelineReports
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    ClusterStatus,
    Elected,
    Election,
    Findings,
    GroupDescription,
    GroupSummary,
    MlogEvents,
    Moves,
    NewMoves,
    NewNode,
    NewTopic,
    Told,
    TopicDescription,
    TopicSummary,
    Transfer,
)
from dragoman.captures.definition import Definition
from dragoman.telemetry.catalogue import Stats


class NodeView(Protocol):
    """A node as the API sees it. Nothing here may block the loop.

    A refusal is a `DragomanError`; its `code` reaches the caller and decides the HTTP status
    (`problems.py`). Every other exception is a fault of the node and becomes a 500.
    """

    def is_serving(self) -> bool:
        """Whether the node has started and does not stop. Else only health and metrics answer."""
        ...

    def objection(self) -> str:
        """Why clients should go to other nodes; empty: they need not."""
        ...

    def own_names(self) -> Iterable[str]:
        """Names under which this node knows itself to be reached."""
        ...

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Others under which its operator lets it be reached (`config/hosts.py`)."""
        ...

    def degradation(self) -> str:
        """What a node that serves clients lacks all the same; empty: nothing."""
        ...

    def list_topics(self, after: str, limit: int) -> list[TopicSummary]:
        """At most `limit` topics with names above `after`, in order of name."""
        ...

    def describe_topic(self, name: str) -> TopicDescription | None: ...

    async def create_topic(self, topic: NewTopic) -> TopicDescription:
        """Returns when the topic is durable and can be written to."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Returns when the deletion is durable. An unknown topic is a refusal."""
        ...

    def list_groups(self, after: str, limit: int) -> list[GroupSummary]:
        """At most `limit` groups with names above `after`, in order of name."""
        ...

    def describe_group(self, group: str) -> GroupDescription | None: ...

    def cluster_status(self) -> ClusterStatus: ...

    def mlog_events(self) -> MlogEvents: ...

    async def add_node(self, node: NewNode) -> Told: ...

    async def remove_node(self, node_id: int) -> Told: ...

    async def transfer(self, wanted: Transfer) -> Told: ...

    async def move(self, wanted: NewMoves) -> Moves:
        """Returns the moves that have begun, and how many there was no time for."""
        ...

    async def elect(self, wanted: Election) -> Elected: ...

    async def list_captures(self, after: str, limit: int) -> list[CaptureDescription]:
        """At most `limit` captures with names above `after`, in order of name."""
        ...

    async def describe_capture(self, name: str) -> CaptureDescription: ...

    async def add_capture(self, definition: Definition) -> CaptureDescription:
        """Returns when it is agreed on; it starts soon."""
        ...

    async def remove_capture(self, name: str, *, keeps_slot: bool) -> Told: ...

    async def command_capture(self, name: str, wanted: CaptureCommand) -> Told: ...

    async def check_capture(self, wanted: CaptureCheck) -> Findings:
        """What stands in the way of capturing a database."""
        ...

    @property
    def pipelines(self) -> PipelineReports: ...

    def stats(self) -> Stats:
        """A snapshot for the metrics; every name in it is in the catalogue."""
        ...
