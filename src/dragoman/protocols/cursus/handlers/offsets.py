"""FETCH_OFFSET, COMMIT_OFFSET, BATCH_COMMIT, and COMMIT of the first protocol page.

A committed offset is the next one to read, and never goes back. Only the member to whom a partition
is assigned may commit it, in the present generation. COMMIT names neither member nor generation.
"""

from __future__ import annotations

from dragoman.broker.groups.direct import DirectGroup
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.errors import DragomanError
from dragoman.outcome import Acknowledge
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.consume import committed_offset
from dragoman.protocols.cursus.handlers.groups import (
    OWNER,
    check_generation,
    find_member,
    open_group,
)
from dragoman.protocols.cursus.handlers.policy import is_pattern
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import Arguments, Call, as_number
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import GroupId, MemberId, Offset, Partition, ProducerId, TopicName


def handle_fetch_offset(call: Call) -> None:
    group, topic = GroupId(call.require("group")), call.require("topic")
    call.authorize(Operation.READ, Resource.GROUP, group)
    found = committed_offset(call.service, group, topic, call.number("partition"))
    if call.service.broker.coordination.groups.table.get(group) is None:
        raise Refusal(f"group_not_found group={group}")
    call.ok(f"offset={found or 0}")


def handle_commit_offset(call: Call) -> None:
    call.require("partition")
    offsets = {call.number("partition"): call.number("offset")}
    # COMMIT names no member: any client may send it.
    is_members = call.command.word != "COMMIT"
    group = open_group(call, to_join=not is_members)
    request = commit_request(call, group, offsets, is_members=is_members)
    commit(call.service, request, call.acknowledge())


handle_commit = handle_commit_offset


def handle_batch_commit(call: Call) -> None:
    offsets = parse_offsets(call)
    request = commit_request(call, open_group(call), offsets)
    commit(call.service, request, call.acknowledge(f"batched={len(offsets)}"))


def parse_offsets(call: Arguments) -> dict[int, int]:
    """The last word: `P0:2,P1:1`. Raises `Refusal`."""
    offsets: dict[int, int] = {}
    text = call.get("offsets") or call.command.last
    entries = [each for each in text.split(",") if each] if "=" not in text else []
    for entry in entries:
        name, colon, value = entry.partition(":")
        if not colon:
            raise Refusal(f"invalid_batch_commit_entry entry={quoted(entry)}")
        partition = as_number(name[1:]) if name[:1] == "P" else None
        if partition is None:
            raise Refusal(f"invalid_partition entry={quoted(entry)}")
        offset = as_number(value)
        if offset is None:
            raise Refusal(f"invalid_offset entry={quoted(entry)}")
        if partition in offsets:
            where = f"group={call.get('group')} topic={call.get('topic')}"
            raise Refusal(f"duplicate_partition partition={partition} {where}")
        offsets[partition] = offset
    if not offsets:
        raise Refusal("no_valid_offsets")
    return offsets


def commit_request(
    call: Arguments,
    group: DirectGroup,
    offsets: dict[int, int],
    *,
    is_members: bool = True,
    producer_id: int | None = None,
) -> CommitRequest:
    """Raises `Refusal` for a commit that goes back, or that the member may not make."""
    topic, group_id = TopicName(call.get("topic")), group.group_id
    member_id = _check_owner(call, group, offsets) if is_members else MemberId("")
    under_way = call.service.commits_under_way
    for index, offset in offsets.items():
        if not is_pattern(topic):
            call.service.partition(call.service.topic(topic), index)
        coming = under_way.get((group_id, topic, index), ())
        current = max([*coming, committed_offset(call.service, group_id, topic, index) or 0])
        if offset < current:
            reason = quoted(
                f"offset regression group={group_id} topic={topic} partition={index} "
                f"current={current} got={offset}"
            )
            raise Refusal(f"offset_regression reason={reason}")
    return CommitRequest(
        group_id=group_id,
        offsets=tuple(
            OffsetCommit(topic=topic, partition=Partition(index), offset=Offset(offset))
            for index, offset in offsets.items()
        ),
        member_id=member_id,
        generation=group.generation if is_members else -1,
        producer_id=None if producer_id is None else ProducerId(producer_id),
        owner=OWNER,
    )


def _check_owner(call: Arguments, group: DirectGroup, offsets: dict[int, int]) -> MemberId:
    """The member that the command names, if the partitions are assigned to it. Raises `Refusal`."""
    member = find_member(call, group)
    check_generation(call, group)
    for partition in offsets:
        if partition not in member.assigned:
            raise Refusal(
                f"NOT_OWNER partition={partition} member={member.member_id} "
                f"group={group.group_id} generation={group.generation}"
            )
    return member.member_id


def commit(service: CursusService, request: CommitRequest, done: Acknowledge) -> None:
    """Commit offsets; `done` is called when all are durable, or with why one of them is refused."""
    under_way = service.commits_under_way
    places = {(request.group_id, each.topic, each.partition): each for each in request.offsets}
    for place, each in places.items():
        under_way.setdefault(place, []).append(each.offset)

    def committed(prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
        for place, each in places.items():
            under_way[place].remove(each.offset)
            if not under_way[place]:
                del under_way[place]
        refused = next(iter(prepared.errors), None) if prepared is not None else None
        if refused is not None:
            offset = places[request.group_id, *refused].offset
            error = Refusal(f"invalid_offset value={offset}")
        done(error)

    service.broker.coordination.groups.commit(request, committed)
