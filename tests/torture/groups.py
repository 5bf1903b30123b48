"""Torture of one group: members come, leave, crash and freeze while records arrive and the broker
is killed; the judge then reads what all of them wrote down.

Checked:

- in one generation (member epoch with KIP-848) no partition belongs to two members, neither by the
  members' own word nor by what the broker says about the group;
- a member that gives up a partition in good order has had it alone until then;
- an acknowledged commit is never lost: a later request for the committed offset returns it or a
  later one, and no later commit goes behind it;
- after the storm every partition has one owner, both sides agree who it is, everything is read, and
  the committed offsets are the ends of the partitions.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from protocols.kafka_socket import KafkaSocket
from torture import judge
from torture.member import GROUP, HEARTBEAT_MS, SESSION_MS, TOPIC
from torture.stage import WAIT_S, ClientProcess, Feeder, Node, moments

#: State of a group, and the partitions of its members.
Description: TypeAlias = tuple[str, dict[str, list[int]]]
#: Clients of one group have to agree on how they share partitions.
MIXTURES = {
    "range": ("confluent", "kafka-python", "aiokafka"),
    "cooperative-sticky": ("confluent", "kafka-python"),
    "consumer": ("confluent",),
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    protocol: str
    seed: int
    members: int = 20
    partitions: int = 32
    seconds: float = 60.0
    broker_kills: int = 4
    records_per_second: int = 400


class Figures(msgspec.Struct, kw_only=True):
    started: int = 0
    left: int = 0
    crashed: int = 0
    frozen: int = 0
    broker_kills: int = 0
    #: Commits sent in the name of a member, with a generation that is over.
    ghosts: int = 0
    descriptions: int = 0
    generations: int = 0
    commits: int = 0
    refused: int = 0
    resumed: int = 0
    lost: int = 0
    records: int = 0

    def __str__(self) -> str:
        return ", ".join(
            f"{getattr(self, name)} {name.replace('_', ' ')}" for name in self.__struct_fields__
        )


class Torture:
    def __init__(self, directory: Path, plan: Plan) -> None:
        self.figures = Figures()
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._directory = directory
        self._clients = itertools.cycle(MIXTURES[plan.protocol])
        self._all: list[ClientProcess] = []
        self._present: list[ClientProcess] = []
        self._node = Node(directory / "data")
        self._node.create_topic(TOPIC, plan.partitions)

    def run(self) -> Figures:
        plan = self._plan
        feeder = Feeder(self._node.servers, TOPIC, plan.partitions, plan.records_per_second)
        try:
            self._storm()
            feeder.stop()
            self._settle()
            self._part()
            self._judge()
        finally:
            feeder.abandon()
            for member in self._present:
                member.crash()
            self._node.abandon()
        self.figures.records = feeder.delivered
        self.figures.broker_kills = self._node.kills
        return self.figures

    # ---- the storm

    def _storm(self) -> None:
        for _ in range(self._plan.members):
            self._start()
        kills = moments(self._random, self._plan.seconds, self._plan.broker_kills)
        end = time.monotonic() + self._plan.seconds
        while time.monotonic() < end:
            if kills and time.monotonic() >= kills[0]:
                kills.pop(0)
                self._node.kill()
            for member in self._present:
                member.thaw_when_due()
            self._change()
            self._check_description()
            self._haunt()
            time.sleep(self._random.uniform(0.1, 1.2))
        for _ in kills:
            self._node.kill()
        for member in self._present:
            member.thaw_when_due(now=True)

    def _start(self) -> None:
        path = self._directory / f"member-{len(self._all):03}.jsonl"
        arguments = (next(self._clients), self._plan.protocol, self._node.servers)
        member = ClientProcess("torture.member", arguments, path)
        self._all.append(member)
        self._present.append(member)
        self.figures.started += 1

    def _change(self) -> None:
        """A fault hits a client or the broker."""
        awake = [each for each in self._present if each.thaws_at is None]
        if len(self._present) < self._plan.members and self._random.random() < 0.6:
            self._start()
            return
        victim = self._random.choice(awake)
        match self._random.choice(("leave", "crash", "freeze", "freeze")):
            case "leave":
                self._present.remove(victim)
                victim.leave()
                self.figures.left += 1
            case "crash":
                self._present.remove(victim)
                victim.crash()
                self.figures.crashed += 1
            case "freeze" if len(awake) > self._plan.members // 2:
                # Some wake up before the others have noticed, some long after.
                victim.freeze(self._random.uniform(0.5, 2.5) * SESSION_MS / 1000)
                self.figures.frozen += 1

    def _haunt(self) -> None:
        """Commits as a member would that has slept through a rebalance; clients notice too soon."""
        places = [each for member in self._all for each in _places(member.diary.read_on())]
        latest: dict[str, int] = {}
        for each in places:
            if not each["is_assigned"]:
                continue
            known = latest.get(each["member_id"], -1)
            latest[each["member_id"]] = max(known, each["generation"])
        ghosts = [
            (each["member_id"], each["generation"], each["partitions"][0])
            for each in places
            if each["partitions"] and 0 <= each["generation"] < latest.get(each["member_id"], 0)
        ]
        if ghosts:
            self._node.ask(partial(_commit_as, *self._random.choice(ghosts)))
            self.figures.ghosts += 1

    # ---- what the broker says

    def _described(self) -> Description:
        is_consumer_group = self._plan.protocol == "consumer"
        return self._node.ask(_consumer_group if is_consumer_group else _classic_group)

    def _check_description(self) -> str:
        state, assigned = self._described()
        # Between two generations a classic group shows what it had, which means nothing.
        if self._plan.protocol == "consumer" or state == "Stable":
            everything = [index for indexes in assigned.values() for index in indexes]
            assert len(everything) == len(set(everything)), (state, assigned)
            self.figures.descriptions += 1
        return state

    def _committed(self) -> dict[int, int]:
        return self._node.committed(GROUP, TOPIC, self._plan.partitions)

    # ---- afterwards

    def _settle(self) -> None:
        while len(self._present) < self._plan.members:
            self._start()
        ends = {
            partition: high_watermark
            for partition, (high_watermark, _) in self._node.ends(
                TOPIC, self._plan.partitions
            ).items()
        }
        deadline = time.monotonic() + WAIT_S
        while True:
            state, assigned = self._described()
            server_side = sorted(sorted(each) for each in assigned.values())
            client_side = sorted(_owned(each.diary.read_on()) for each in self._present)
            owned = sorted(partition for each in client_side for partition in each)
            is_settled = (
                state == "Stable"
                and owned == list(range(self._plan.partitions))
                and server_side == client_side
                and self._committed() == ends
            )
            if is_settled:
                return
            assert time.monotonic() < deadline, (
                f"{state}; owned {owned}; the broker says {assigned}; "
                f"committed {self._committed()} of {ends}"
            )
            for member in self._present:
                assert member.process.poll() is None, f"{member.name} has ended"
            time.sleep(0.2)

    def _part(self) -> None:
        """All leave in good order; what was committed stays, also over one more kill."""
        before = self._committed()
        for member in self._present:
            member.leave()
        for member in self._all:
            member.finish()
        self._present.clear()
        self._node.kill()
        assert self._committed() == before
        assert self._described()[0] in ("Empty", "Dead")
        self._node.stop()

    def _judge(self) -> None:
        for member in self._all:
            assert member.ended_well, member.name
        diaries = {member.name: member.diary.read_on() for member in self._all}
        judge.check_faults(diaries)
        judge.check_tenures(diaries, {member.name: _silences(member) for member in self._all})
        count = self.figures
        count.generations = judge.check_generations(diaries)
        count.resumed = judge.check_commits(diaries)
        kinds = Counter(entry["kind"] for entries in diaries.values() for entry in entries)
        count.commits, count.refused, count.lost = (
            kinds[kind] for kind in ("committed", "refused", "lost")
        )


def _silences(member: ClientProcess) -> list[tuple[float, float]]:
    """When it was frozen for longer than a session may lack heartbeats."""
    shortest = (SESSION_MS - 2 * HEARTBEAT_MS) / 1000
    return [(begin, end) for begin, end in member.frozen if end - begin >= shortest]


def _places(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a member has said about its place in the group."""
    return [entry for entry in entries if entry["kind"] in ("owns", "lost")]


def _owned(entries: list[dict[str, Any]]) -> list[int]:
    """A member's last word."""
    said = _places(entries)
    return sorted(said[-1]["partitions"]) if said else []


# ---- questions to the coordinator


def _consumer_group(client: KafkaSocket) -> tuple[int, Description]:
    request = m.ConsumerGroupDescribeRequest([GROUP])
    group = client.ask(request, 0, m.ConsumerGroupDescribeResponse).groups[0]
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return 0, ("Empty", {})  # No member has joined yet.
    return group.error_code, (
        group.group_state,
        {
            member.member_id: [
                index for topic in member.assignment.topic_partitions for index in topic.partitions
            ]
            for member in group.members
        },
    )


def _classic_group(client: KafkaSocket) -> tuple[int, Description]:
    request = m.DescribeGroupsRequest([GROUP])
    group = client.ask(request, 5, m.DescribeGroupsResponse).groups[0]
    return group.error_code, (
        group.group_state,
        {member.member_id: _assigned(member.member_assignment) for member in group.members},
    )


def _commit_as(
    member_id: str, generation: int, partition: int, client: KafkaSocket
) -> tuple[int, None]:
    """An error unless the commit is refused as it must be."""
    part = m.OffsetCommitRequestPartition(partition_index=partition, committed_offset=0)
    request = m.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[m.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
    )
    answer = client.ask(request, 9, m.OffsetCommitResponse)
    error = answer.topics[0].partitions[0].error_code
    if error == ErrorCode.NONE:
        return ErrorCode.UNKNOWN_SERVER_ERROR, None
    return (error if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else 0), None


def _assigned(data: bytes) -> list[int]:
    if not data:
        return []
    message = codec.decode_versioned(m.ConsumerProtocolAssignment, data)
    return [index for topic in message.assigned_partitions for index in topic.partitions]


def run(directory: Path, plan: Plan) -> Figures:
    directory.mkdir(parents=True, exist_ok=True)
    return Torture(directory, plan).run()


__all__ = ["Figures", "Plan", "run"]
