"""Groups and their offsets: joining, heartbeats, queries about groups and coordinators, commits.

A group reads one topic, or one pattern, while Cursus members own it. A join increments the
generation, and other members notice with their next heartbeat or commit. A member that rejoins with
its assigned id stays the same member: published clients rejoin after every change, and would
otherwise evict each other forever.

A committed offset is the next one to read, and never moves back. Only the owner of a partition may
commit it, in the current generation. COMMIT, of the first protocol page, names neither member nor
generation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import CoordinatorNotAvailable, UnknownMember
from dragoman.broker.groups import State
from dragoman.broker.groups.direct import DirectGroup, DirectMember, DirectRules
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.outcome import Acknowledge
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.consume import committed_offset
from dragoman.protocols.cursus.handlers.policy import is_pattern, topics_named
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import Arguments, Call, as_number
from dragoman.security.access import Operation, Resource
from dragoman.types import GroupId, MemberId, Offset, Partition, ProducerId, TopicName

OWNER: Final = "cursus"
#: Names of GROUP_STATUS for the states of a group with members; any other state is stable.
_STATES: Final = {
    State.PREPARING_REBALANCE: "Rebalancing",
    State.COMPLETING_REBALANCE: "Rebalancing",
}
#: Go's zero time.
NEVER: Final = "0001-01-01T00:00:00Z"
_LISTED_NAME: Final = re.compile(r"[^\s,]+")


def share(members: Sequence[MemberId], count: int) -> Mapping[MemberId, tuple[int, ...]]:
    """Assign ranges of partitions in member id order. If they do not divide evenly, the first
    members get one more partition each.
    """
    least, extra = divmod(count, len(members)) if members else (0, 0)
    shares = {}
    start = 0
    for index, member in enumerate(sorted(members)):
        end = start + least + (index < extra)
        shares[member] = tuple(range(start, end))
        start = end
    return shares


def _group_to_read(call: Arguments) -> GroupId:
    """The group that a command with a topic names. Raises `Refusal`."""
    group_id, topic = GroupId(call.require("group")), call.require("topic")
    call.authorize(Operation.READ, Resource.GROUP, group_id)
    if not is_pattern(topic):
        call.authorize(Operation.READ, Resource.TOPIC, topic)
    return group_id


def open_group(call: Arguments, *, to_join: bool = False) -> DirectGroup:
    """The group that a command names, bound to the topic that it names. Raises `Refusal`."""
    group_id = _group_to_read(call)
    topic, broker = TopicName(call.get("topic")), call.service.broker
    broker.coordination.groups.require(group_id)
    known = broker.coordination.groups.table.get(group_id)
    if not to_join and (known is None or not isinstance(known.membership, DirectGroup)):
        if known is not None:
            known.require_owner(OWNER)
        raise Refusal(f"group_not_found group={group_id}")
    topics, settings = broker.image.topics, broker.settings
    # A pattern says nothing about topics that the client may not read.
    readable = partial(call.may, Operation.READ, Resource.TOPIC)
    if to_join and not any(readable(each.name) for each in topics_named(topics, topic)):
        raise Refusal(f"topic_not_found topic={topic}")
    rules = DirectRules(
        share,
        settings.cursus_session_timeout_ms / 1000,
        settings.cursus_session_check_interval_ms / 1000,
        lambda name: _partition_count(topics, name),
    )
    group = broker.coordination.groups.direct(group_id, OWNER, rules)
    bound = group.bound_to
    # A group without members whose topic was deleted may be bound to another topic.
    is_free = to_join and not group.has_members and bound and not topics_named(topics, bound)
    if bound is None or (is_free and bound != topic):
        group.bind(topic)
    elif bound != topic:
        # Like patterns, groups reveal no topic that the client may not describe.
        is_known = call.may(Operation.DESCRIBE, Resource.TOPIC, bound)
        expected = f" expected={bound}" if is_known else ""
        raise Refusal(f"topic_not_assigned_to_group{expected} actual={topic}")
    return group


def _partition_count(topics: dict[str, TopicMetadata], name: str) -> int:
    """Partitions of the largest topic that a pattern matches."""
    return max((len(each.partitions) for each in topics_named(topics, name)), default=0)


def find_member(call: Arguments, group: DirectGroup) -> DirectMember:
    name = call.require("member")
    try:
        return group.require(MemberId(name))
    except UnknownMember:
        raise Refusal(f"member_not_found member={name} group={group.group_id}") from None


def check_generation(call: Arguments, group: DirectGroup) -> None:
    """Raises `Refusal` unless the command names the current generation."""
    call.require("generation")
    generation = call.number("generation")
    if generation == group.generation:
        return
    who = f"group={group.group_id} member={call.get('member')}"
    if call.command.is_positional and call.command.word == "HEARTBEAT":
        # The error of the first protocol page.
        raise Refusal(f"REBALANCE_REQUIRED generation={group.generation} {who}")
    raise Refusal(f"GEN_MISMATCH current={group.generation} requested={generation} {who}")


def _present(call: Call) -> tuple[DirectGroup, DirectMember]:
    """The group and the member that a command names, in the current generation. The command counts
    as a heartbeat. Raises `Refusal`.
    """
    group = open_group(call)
    member = find_member(call, group)
    check_generation(call, group)
    group.heartbeat(member.member_id)
    return group, member


def _assigned(group: DirectGroup, member: DirectMember) -> str:
    # The Java client accepts only digits and blanks between the brackets.
    partitions = " ".join(map(str, member.assigned))
    return f"generation={group.generation} member={member.member_id} assignments=[{partitions}]"


async def handle_find_coordinator(call: Call) -> None:
    kind, key = CoordinatorKind.GROUP, call.get("group")
    if not key:
        key = call.require("transactional_id", "missing_coordinator_key command=FIND_COORDINATOR")
        kind = CoordinatorKind.TRANSACTION
    is_group = kind is CoordinatorKind.GROUP
    resource = Resource.GROUP if is_group else Resource.TRANSACTIONAL_ID
    call.authorize(Operation.DESCRIBE, resource, key)
    broker = call.service.broker
    node = await broker.coordination.find_coordinator(kind, key)
    address = call.host_and_port(node)
    if address is None:
        raise CoordinatorNotAvailable(f"node {node} has no listener like this one")
    # The name that a single broker of the original uses.
    name = "standalone" if len(broker.image.nodes) == 1 else str(node)
    host, port = address
    call.ok(f"coordinator_id={name} coordinator_type={kind.value} host={host} port={port}")


async def handle_join_group(call: Call) -> None:
    wanted = call.require("member")
    await call.service.coordinated(CoordinatorKind.GROUP, _group_to_read(call))
    group = open_group(call, to_join=True)
    resumes = "generation" in call.command.arguments
    known = group.members.get(MemberId(wanted))
    if known is not None:
        group.heartbeat(known.member_id)
        call.ok(_assigned(group, known) + (" resumed=true" if resumes else ""))
        return
    if resumes:
        raise Refusal(f"member_not_found member={wanted} group={group.group_id}")
    member = DirectMember(
        _new_member_id(call, group, wanted),
        TopicName(call.get("topic")),
        client_host=call.session.channel.peer_address[0],
        on_assigned=_ignore,
        on_evicted=_ignore,
    )
    group.join(member)
    call.ok(_assigned(group, member))


def _new_member_id(call: Call, group: DirectGroup, wanted: str) -> MemberId:
    """A member id with four random digits, as in the original, or with more if it is taken."""
    random = call.service.broker.random
    digits = 4
    while True:
        member_id = MemberId(f"{wanted}-{random.randrange(10**digits):0{digits}}")
        if member_id not in group.members:
            return member_id
        digits += 1


def handle_sync_group(call: Call) -> None:
    call.ok(_assigned(*_present(call)))


def handle_heartbeat(call: Call) -> None:
    group, member = _present(call)
    call.ok(f"member={member.member_id} generation={group.generation}")


def handle_leave_group(call: Call) -> None:
    """Remove a member. Published clients name no generation; if one is named, it is checked."""
    group = open_group(call)
    member = _by_client_name(call, group) or find_member(call, group)
    if "generation" in call.command.arguments:
        check_generation(call, group)
    group.leave(member.member_id)
    call.ok(f"group={group.group_id} member={member.member_id} left=true")


def _by_client_name(call: Call, group: DirectGroup) -> DirectMember | None:
    """The member by the name with which it joined, which the first protocol page allows."""
    if not call.command.is_positional:
        return None
    name = call.get("member")
    found = [each for each in group.members.values() if each.member_id.rpartition("-")[0] == name]
    return found[0] if len(found) == 1 else None


async def handle_register_group(call: Call) -> None:
    await call.service.coordinated(CoordinatorKind.GROUP, _group_to_read(call))
    group = open_group(call, to_join=True)
    reply = f"group={group.group_id} topic={group.bound_to} registered=true"
    await group.store()
    call.ok(reply)


handle_subscribe = handle_register_group


def handle_group_status(call: Call) -> None:
    group_id = GroupId(call.require("group"))
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group_id)
    broker = call.service.broker
    broker.coordination.groups.require(group_id)
    known = broker.coordination.groups.table.get(group_id)
    if known is None:
        reason = quoted(f"group '{group_id}' not found")
        raise Refusal(f"group_status_failed reason={reason}")
    group = known.membership if isinstance(known.membership, DirectGroup) else None
    topic = "" if group is None else group.bound_to or ""
    listing = broker.coordination.groups.table.describe(group_id)
    now_ms, now = broker.clock.wall_ms(), broker.clock.monotonic()
    status = {
        "status": "OK",
        "group_name": group_id,
        "topic_name": topic,
        "state": _STATES.get(listing.state, "Stable") if listing.members else "Dead",
        "generation": listing.generation,
        "member_count": len(listing.members),
        "partition_count": _partition_count(broker.image.topics, topic),
        "members": [
            {
                "member_id": each.member_id,
                "last_heartbeat": go_time(now_ms - int((now - each.last_seen) * 1000)),
                "assignments": each.assigned,
            }
            for each in (group.members.values() if group is not None else ())
        ],
        "last_rebalance": NEVER if group is None else go_time(group.assigned_ms),
    }
    call.json(msgspec.json.encode(status))


def go_time(wall_ms: int) -> str:
    """RFC 3339 with nine decimals, as Go writes it."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(wall_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall_ms % 1000 * 1_000_000:09}Z"


def handle_list_groups(call: Call) -> None:
    """List the groups, except names with blanks or commas, which other protocols allow."""
    coordination = call.service.broker.coordination
    coordination.require_loaded(CoordinatorKind.GROUP)
    listed = {each.group_id for each in coordination.groups.table.listings()}
    names = sorted(filter(_LISTED_NAME.fullmatch, call.session.describable(Resource.GROUP, listed)))
    call.ok(f"count={len(names)} groups={','.join(names)}")


def _ignore(*_: object) -> None:
    """Do nothing: Cursus members learn about changes from the replies to their commands."""


def handle_fetch_offset(call: Call) -> None:
    group, topic = GroupId(call.require("group")), call.require("topic")
    call.authorize(Operation.READ, Resource.GROUP, group)
    call.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)
    found = committed_offset(call.service, group, topic, call.number("partition"))
    if call.service.broker.coordination.groups.table.get(group) is None:
        raise Refusal(f"group_not_found group={group}")
    call.ok(f"offset={found or 0}")


def handle_commit_offset(call: Call) -> None:
    call.require("partition")
    offsets = {call.number("partition"): call.number("offset")}
    # COMMIT names no member, so any client may send it.
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
    """Offsets by partition from the last word: `P0:2,P1:1`. Raises `Refusal`."""
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
    """Raises `Refusal` for an offset that moves back, or a partition of another member."""
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
    """The member that the command names, if it owns the partitions. Raises `Refusal`."""
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
    """Commit offsets. `done` is called when all are durable, or with the error of one of them."""
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
