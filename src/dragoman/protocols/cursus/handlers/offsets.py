"""FETCH_OFFSET, COMMIT_OFFSET, BATCH_COMMIT, and COMMIT of the first protocol page.

A committed offset is the next one to read, and never goes back. Only the member to whom a partition
is assigned may commit it, in the present generation; COMMIT knows neither.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.groups import TopicPartition
from dragoman.broker.groups.direct import DirectGroup
from dragoman.broker.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.errors import DragomanError
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.consume import is_pattern
from dragoman.protocols.cursus.handlers.groups import (
    OWNER,
    check_generation,
    find_member,
    open_group,
)
from dragoman.protocols.cursus.handlers.service import authorize
from dragoman.protocols.cursus.handlers.session import Call, as_number
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import GroupId, MemberId, Offset, Partition, ProducerId, TopicName


def handle_fetch(call: Call) -> None:
    group = GroupId(call.require("group", "missing_group command=FETCH_OFFSET"))
    topic = TopicName(call.require("topic", "missing_topic command=FETCH_OFFSET"))
    authorize(call, Operation.READ, Resource.GROUP, group)
    partition = call.number("partition")
    coordination = call.service.broker.coordination
    coordination.require_groups()
    if coordination.groups.get(group) is None:
        raise Refusal(f"group_not_found group={group}")
    found = coordination.offsets.committed(group, topic, Partition(partition))
    call.ok(f"offset={0 if found is None else found.offset}")


def handle_commit(call: Call) -> None:
    word = call.command.word
    call.require("partition", f"missing_partition command={word}")
    partition = call.number("partition")
    offset = call.number("offset")
    # COMMIT is anybody's: it names no member.
    group = open_group(call, to_join=word == "COMMIT")
    request = _request(call, group, {partition: offset}, is_members=word != "COMMIT")
    commit(call, request, lambda: call.ok())


def handle_batch_commit(call: Call) -> None:
    offsets = parse_offsets(call)
    group = open_group(call)
    request = _request(call, group, offsets, is_members=True)
    commit(call, request, lambda: call.ok(f"batched={len(offsets)}"))


def parse_offsets(call: Call) -> dict[int, int]:
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


def _request(
    call: Call, group: DirectGroup, offsets: dict[int, int], *, is_members: bool
) -> CommitRequest:
    member_id, generation = MemberId(""), -1
    if is_members:
        member_id, generation = check_owner(call, group, offsets), group.generation
    return commit_request(call, group, offsets, member_id, generation)


def check_owner(call: Call, group: DirectGroup, offsets: dict[int, int]) -> MemberId:
    """The member that the command names, if the partitions are its own. Raises `Refusal`."""
    member = find_member(call, group)
    check_generation(call, group)
    for partition in offsets:
        if partition not in member.assigned:
            raise Refusal(
                f"NOT_OWNER partition={partition} member={member.member_id} "
                f"group={group.group_id} generation={group.generation}"
            )
    return member.member_id


def commit_request(
    call: Call,
    group: DirectGroup,
    offsets: dict[int, int],
    member_id: MemberId,
    generation: int,
    producer_id: int | None = None,
) -> CommitRequest:
    """Raises `Refusal` for a commit that goes back."""
    topic = TopicName(call.get("topic"))
    if not is_pattern(topic):
        for partition in offsets:
            call.service.replica(call.service.topic(topic), partition)
    committed = call.service.broker.coordination.offsets.all_committed(group.group_id)
    under_way = call.service.commits_under_way
    for index, offset in offsets.items():
        found = committed.get((topic, Partition(index)))
        coming = under_way.get((group.group_id, topic, index), ())
        current = max([*coming, 0 if found is None else found.offset])
        if offset < current:
            reason = quoted(
                f"offset regression group={group.group_id} topic={topic} partition={index} "
                f"current={current} got={offset}"
            )
            raise Refusal(f"offset_regression reason={reason}")
    return CommitRequest(
        group_id=group.group_id,
        offsets=tuple(
            OffsetCommit(topic=topic, partition=Partition(index), offset=Offset(offset))
            for index, offset in offsets.items()
        ),
        member_id=member_id,
        generation=generation,
        producer_id=None if producer_id is None else ProducerId(producer_id),
        owner=OWNER,
    )


def commit(call: Call, request: CommitRequest, then: Callable[[], None]) -> None:
    """Write the offsets down; `then` answers when they are durable."""
    under_way = call.service.commits_under_way
    places = [(request.group_id, each.topic, each.partition) for each in request.offsets]
    for place, each in zip(places, request.offsets, strict=True):
        under_way.setdefault(place, []).append(each.offset)

    def done(prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
        for place, each in zip(places, request.offsets, strict=True):
            under_way[place].remove(each.offset)
            if not under_way[place]:
                del under_way[place]
        refused: TopicPartition | None = None
        if prepared is not None and prepared.errors:
            refused, error = next(iter(prepared.errors.items()))
        if error is not None:
            offsets = {(each.topic, each.partition): each.offset for each in request.offsets}
            if refused is not None:
                error = Refusal(f"invalid_offset value={offsets[refused]}")
            call.refuse(error)
        else:
            then()

    call.service.broker.coordination.commit(request, done)
