"""A node made of plain lists, for everything that speaks to `NodeView`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from msgspec import Raw

from dragoman import __version__
from dragoman.api.app import create_app
from dragoman.api.pipelines import PipelineReports
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    ClusterStatus,
    ConfigValue,
    Elected,
    Election,
    FewCopies,
    Findings,
    GroupAssignment,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupSummary,
    ListenerStatus,
    MlogEvents,
    Moves,
    NewMoves,
    NewNode,
    NewTopic,
    NodeStatus,
    PartitionDescription,
    PartitionStatus,
    Told,
    TopicDescription,
    TopicSummary,
    Transfer,
)
from dragoman.broker.errors import UnknownCapture
from dragoman.captures.control import Finding, Status
from dragoman.captures.definition import Definition
from dragoman.config.topics import validate_topic_config
from dragoman.errors import BrokerError
from dragoman.telemetry.catalogue import Stats
from dragoman.world import SystemClock


class TopicExistsError(BrokerError):
    code = "topic_exists"


class UnknownTopicError(BrokerError):
    code = "unknown_topic"


class FakeNode:
    def __init__(self) -> None:
        self.ready = True
        #: Why clients should go elsewhere although it serves.
        self.reason = ""
        self.degraded = ""
        self.topics: dict[str, TopicDescription] = {}
        self.groups: dict[str, GroupDescription] = {}
        #: Raised by the next mutation or description.
        self.failure: Exception | None = None
        self.copies = 1
        self.few_copies: tuple[FewCopies, ...] = ()
        self.waiting_replicas = 0
        #: Requests that moves and elections take; and after how many they fail.
        self.slices = 1
        self.fails_after = -1
        self.pipelines = PipelineReports(SystemClock())
        self.captures: dict[str, CaptureDescription] = {}
        self.capture_status = Status(state="streaming")
        self.findings: tuple[Finding, ...] = (Finding("ok", "connected"),)
        #: What operators have asked for.
        self.asked: list[object] = []
        #: While unset, creation of a topic waits.
        self.may_create = asyncio.Event()
        self.may_create.set()
        self.allowed_hosts: tuple[str, ...] = ()

    def own_names(self) -> tuple[str, ...]:
        return ("node", "127.0.0.1")

    def is_serving(self) -> bool:
        return self.ready

    def degradation(self) -> str:
        return self.degraded

    def objection(self) -> str:
        return self.reason or ("" if self.ready else "the node is starting")

    def list_topics(self, after: str, limit: int) -> list[TopicSummary]:
        names = sorted(name for name in self.topics if name > after)[:limit]
        return [
            TopicSummary(
                name=name,
                partitions=len(self.topics[name].partitions),
                replication_factor=1,
                internal=False,
            )
            for name in names
        ]

    def describe_topic(self, name: str) -> TopicDescription | None:
        if self.failure is not None:
            raise self.failure
        return self.topics.get(name)

    async def create_topic(self, topic: NewTopic) -> TopicDescription:
        await self.may_create.wait()
        if self.failure is not None:
            raise self.failure
        if topic.name in self.topics:
            raise TopicExistsError(f"there is already a topic {topic.name!r}")
        validate_topic_config(topic.config)
        self.topics[topic.name] = self.make_topic(topic)
        return self.topics[topic.name]

    async def delete_topic(self, name: str) -> None:
        if name not in self.topics:
            raise UnknownTopicError(f"there is no topic {name!r}")
        del self.topics[name]

    def list_groups(self, after: str, limit: int) -> list[GroupSummary]:
        names = sorted(name for name in self.groups if name > after)[:limit]
        return [
            GroupSummary(group=name, protocol="kafka", state="stable", members=1) for name in names
        ]

    def describe_group(self, group: str) -> GroupDescription | None:
        return self.groups.get(group)

    def cluster_status(self) -> ClusterStatus:
        listener = ListenerStatus(name="kafka", bound="127.0.0.1:9092", advertised=None)
        return ClusterStatus(
            cluster_id="c1",
            node_id=1,
            controller=1,
            version=__version__,
            feature_level=2,
            ready=self.ready,
            durability="fsync",
            uptime_ms=1500,
            topics=len(self.topics),
            partitions=0,
            groups=len(self.groups),
            nodes=(NodeStatus(node_id=1, alive=True, listeners=(listener,), feature_level=2),),
            copies=self.copies,
            few_copies=self.few_copies,
        )

    def mlog_events(self) -> MlogEvents:
        return MlogEvents(items=(Raw(b'{"event_type":1,"data":{"topic":"a\\u003cb"}}'),))

    async def add_node(self, node: NewNode) -> Told:
        return self._asked(node)

    async def remove_node(self, node_id: int) -> Told:
        told = self._asked(node_id)
        # Those that wait are moved before the node is asked for again.
        waiting, self.waiting_replicas = self.waiting_replicas, 0
        return Told(detail=told.detail, waiting_replicas=waiting)

    async def transfer(self, wanted: Transfer) -> Told:
        return self._asked(wanted)

    async def elect(self, wanted: Election) -> Elected:
        self._asked(wanted)
        left = self._slice()
        return Elected(detail="done", elected=1, remaining=left)

    async def move(self, wanted: NewMoves) -> Moves:
        self._asked(wanted)
        left = self._slice()
        moved = PartitionStatus(topic="t", partition=left, leader=1, replicas=(1,), in_sync=(1,))
        return Moves(items=(moved,), remaining=left)

    def _slice(self) -> int:
        """One partition of those that are asked for; how many are left."""
        if self.fails_after == 0:
            raise TopicExistsError("no quorum")
        self.fails_after -= 1
        self.slices = max(0, self.slices - 1)
        return self.slices

    def _asked(self, wanted: object) -> Told:
        if self.failure is not None:
            raise self.failure
        self.asked.append(wanted)
        return Told(detail="done")

    async def list_captures(self, after: str, limit: int) -> list[CaptureDescription]:
        names = sorted(name for name in self.captures if name > after)[:limit]
        return [self.captures[name] for name in names]

    async def describe_capture(self, name: str) -> CaptureDescription:
        if name not in self.captures:
            raise UnknownCapture(f"there is no capture {name!r}")
        return self.captures[name]

    async def add_capture(self, definition: Definition) -> CaptureDescription:
        self._asked(definition)
        self.captures[definition.name] = CaptureDescription(
            name=definition.name,
            definition=definition,
            paused=False,
            node=1,
            status=self.capture_status,
            restarts=0,
            rows=3,
        )
        return self.captures[definition.name]

    async def remove_capture(self, name: str, *, keeps_slot: bool) -> Told:
        return self._asked((name, keeps_slot))

    async def command_capture(self, name: str, wanted: CaptureCommand) -> Told:
        return self._asked((name, wanted))

    async def check_capture(self, wanted: CaptureCheck) -> Findings:
        self._asked(wanted)
        return Findings(items=self.findings)

    def stats(self) -> Stats:
        return {"topics": len(self.topics), "ready": int(self.ready)}

    @staticmethod
    def make_topic(topic: NewTopic) -> TopicDescription:
        partitions = tuple(
            PartitionDescription(
                partition=index,
                leader=1,
                leader_epoch=0,
                replicas=(1,),
                in_sync=(1,),
                log_start_offset=0,
                high_watermark=5,
                log_end_offset=5,
                size_bytes=100,
            )
            for index in range(topic.partitions or 1)
        )
        config = tuple(
            ConfigValue(name=name, value=value, source="topic", effective=name != "flush.ms")
            for name, value in topic.config.items()
        )
        return TopicDescription(
            name=topic.name,
            topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
            internal=False,
            partitions=partitions,
            config=config,
            hidden_from=("kafka", "cursus") if "/" in topic.name else (),
        )

    def add_topic(self, name: str) -> None:
        self.topics[name] = self.make_topic(NewTopic(name=name))

    def add_group(self, group: str) -> None:
        assignment = GroupAssignment(topic="orders", partitions=(0, 1))
        self.groups[group] = GroupDescription(
            group=group,
            protocol="kafka",
            state="stable",
            generation=3,
            coordinator=1,
            members=(
                GroupMember(
                    member_id="m-1", client_id="c", host="127.0.0.1", assignment=(assignment,)
                ),
            ),
            offsets=(
                GroupOffset(
                    topic="orders", partition=0, committed_offset=2, log_end_offset=5, lag_records=3
                ),
                GroupOffset(
                    topic="gone",
                    partition=0,
                    committed_offset=9,
                    log_end_offset=None,
                    lag_records=None,
                ),
            ),
        )


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def client(node) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(node), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        yield client
