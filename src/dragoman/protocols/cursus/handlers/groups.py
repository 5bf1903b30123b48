"""JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP and what is asked about groups and coordinators.

A group reads one topic, or one pattern, as long as it is Cursus's. A join raises the generation;
other members learn of it with their next heartbeat or commit. Members that join again under the id
they were given are the same member, not another one: published clients do so after every change,
and each would otherwise drive the others out in turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import CoordinatorNotAvailable, UnknownMember
from dragoman.broker.groups import State
from dragoman.broker.groups.direct import DirectGroup, DirectMember, DirectRules
from dragoman.cluster.metadata import TopicMetadata
from dragoman.outcome import acknowledged
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import topics_named
from dragoman.protocols.cursus.handlers.session import Arguments, Call
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import GroupId, MemberId, TopicName

OWNER: Final = "cursus"
#: What GROUP_STATUS calls the states of a group with members; all others are stable.
_STATES: Final = {
    State.PREPARING_REBALANCE: "Rebalancing",
    State.COMPLETING_REBALANCE: "Rebalancing",
}
#: Go's zero time.
NEVER: Final = "0001-01-01T00:00:00Z"
_LISTED_NAME: Final = re.compile(r"[^\s,]+")


def share(members: Sequence[MemberId], count: int) -> Mapping[MemberId, tuple[int, ...]]:
    """Ranges in the order of the member ids; the first members get one partition more when the
    partitions cannot be shared evenly.
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
    """The group that a command names beside a topic. Raises `Refusal`."""
    group_id = GroupId(call.require("group"))
    call.require("topic")
    call.authorize(Operation.READ, Resource.GROUP, group_id)
    return group_id


def open_group(call: Arguments, *, to_join: bool = False) -> DirectGroup:
    """The group that a command names, for the topic that it names. Raises `Refusal`."""
    group_id = _group_to_read(call)
    topic, broker = TopicName(call.get("topic")), call.service.broker
    broker.coordination.groups.require(group_id)
    known = broker.coordination.groups.table.get(group_id)
    if not to_join and (known is None or not isinstance(known.membership, DirectGroup)):
        if known is not None:
            known.require_owner(OWNER)
        raise Refusal(f"group_not_found group={group_id}")
    topics, settings = broker.image.topics, broker.settings
    if to_join and not topics_named(topics, topic):
        raise Refusal(f"topic_not_found topic={topic}")
    rules = DirectRules(
        share,
        settings.cursus_session_timeout_ms / 1000,
        settings.cursus_session_check_interval_ms / 1000,
        lambda name: _partition_count(topics, name),
    )
    group = broker.coordination.groups.direct(group_id, OWNER, rules)
    bound = group.bound_to
    # The topic that it is bound to may have been deleted, and its members may have left.
    is_free = to_join and not group.has_members and bound and not topics_named(topics, bound)
    if bound is None or (is_free and bound != topic):
        group.bind(topic)
    elif bound != topic:
        raise Refusal(f"topic_not_assigned_to_group expected={bound} actual={topic}")
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
    """Raises `Refusal` unless the command names the present generation."""
    call.require("generation")
    generation = call.number("generation")
    if generation == group.generation:
        return
    who = f"group={group.group_id} member={call.get('member')}"
    if call.command.is_positional and call.command.word == "HEARTBEAT":
        # What the first protocol page tells clients to expect.
        raise Refusal(f"REBALANCE_REQUIRED generation={group.generation} {who}")
    raise Refusal(f"GEN_MISMATCH current={group.generation} requested={generation} {who}")


def _present(call: Call) -> tuple[DirectGroup, DirectMember]:
    """The group and the member that a command names, in the present generation; the command counts
    as a heartbeat. Raises `Refusal`.
    """
    group = open_group(call)
    member = find_member(call, group)
    check_generation(call, group)
    group.heartbeat(member.member_id)
    return group, member


def _assigned(group: DirectGroup, member: DirectMember) -> str:
    # Java's client takes nothing but digits and blanks between the brackets.
    partitions = " ".join(map(str, member.assigned))
    return f"generation={group.generation} member={member.member_id} assignments=[{partitions}]"


async def handle_find_coordinator(call: Call) -> None:
    kind, key = CoordinatorKind.GROUP, call.get("group")
    if not key:
        key = call.require("transactional_id", "missing_coordinator_key command=FIND_COORDINATOR")
        kind = CoordinatorKind.TRANSACTION
    broker = call.service.broker
    node = await broker.coordination.find_coordinator(kind, key)
    address = call.host_and_port(node)
    if address is None:
        raise CoordinatorNotAvailable(f"node {node} has no listener like this one")
    # A single broker of the original calls itself so.
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
    """With four random digits, as the original adds them; with more where they are taken."""
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
    """Published clients name no generation; one that is named is checked."""
    group = open_group(call)
    member = _by_client_name(call, group) or find_member(call, group)
    if "generation" in call.command.arguments:
        check_generation(call, group)
    group.leave(member.member_id)
    call.ok(f"group={group.group_id} member={member.member_id} left=true")


def _by_client_name(call: Call, group: DirectGroup) -> DirectMember | None:
    """The first protocol page lets clients leave under the name that they joined with."""
    if not call.command.is_positional:
        return None
    name = call.get("member")
    found = [each for each in group.members.values() if each.member_id.rpartition("-")[0] == name]
    return found[0] if len(found) == 1 else None


async def handle_register_group(call: Call) -> None:
    await call.service.coordinated(CoordinatorKind.GROUP, _group_to_read(call))
    group = open_group(call, to_join=True)
    reply = f"group={group.group_id} topic={group.bound_to} registered=true"
    await acknowledged(group.write_down)
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
    """RFC 3339 with nine digits behind the point, as Go writes it."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(wall_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall_ms % 1000 * 1_000_000:09}Z"


def handle_list_groups(call: Call) -> None:
    """Groups whose names contain no blanks and no commas, which other protocols allow."""
    coordination = call.service.broker.coordination
    coordination.require_loaded(CoordinatorKind.GROUP)
    names = sorted(
        each.group_id
        for each in coordination.groups.table.listings()
        if _LISTED_NAME.fullmatch(each.group_id)
        and call.is_allowed(Operation.DESCRIBE, Resource.GROUP, each.group_id)
    )
    call.ok(f"count={len(names)} groups={','.join(names)}")


def _ignore(*_: object) -> None:
    """Cursus pushes nothing to members: they learn of changes when they ask."""
