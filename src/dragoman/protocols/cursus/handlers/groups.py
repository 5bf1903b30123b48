"""JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP and what is asked about groups and coordinators.

A group reads one topic, or one pattern, as long as it is Cursus's. A join raises the generation;
other members learn of it with their next heartbeat or commit. Members that join again under the id
they were given are the same member, not another one: published clients do so after every change,
and each would otherwise drive the others out in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dragoman.broker.errors import UnknownMember
from dragoman.broker.groups.direct import DirectGroup, DirectMember, DirectRules
from dragoman.cluster.metadata import TopicMetadata
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.consume import is_pattern, matching
from dragoman.protocols.cursus.handlers.service import authorize
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import GroupId, MemberId, TopicName

OWNER: Final = "cursus"


def share(members: Sequence[MemberId], count: int) -> Mapping[MemberId, tuple[int, ...]]:
    """Ranges in order of the member ids; the first get one more where it does not come out even."""
    least, extra = divmod(count, len(members)) if members else (0, 0)
    shares = {}
    start = 0
    for index, member in enumerate(sorted(members)):
        end = start + least + (index < extra)
        shares[member] = tuple(range(start, end))
        start = end
    return shares


def open_group(call: Call, *, to_join: bool = False) -> DirectGroup:
    """The group that a command names, for the topic that it names. Raises `Refusal`."""
    word = call.command.word
    group_id = GroupId(call.require("group", f"missing_group command={word}"))
    topic = TopicName(call.require("topic", f"missing_topic command={word}"))
    authorize(call, Operation.READ, Resource.GROUP, group_id)
    broker = call.service.broker
    broker.coordination.require_groups()
    known = broker.coordination.groups.get(group_id)
    if not to_join and (known is None or not isinstance(known.membership, DirectGroup)):
        if known is not None:
            known.require_owner(OWNER)
        raise Refusal(f"group_not_found group={group_id}")
    topics = broker.image.topics

    def partition_count(name: TopicName) -> int:
        found = _matching(topics, name)
        return max((len(each.partitions) for each in found), default=0)

    settings = broker.settings
    if to_join and not _matching(topics, topic):
        raise Refusal(f"topic_not_found topic={topic}")
    group = broker.coordination.direct_group(
        group_id,
        OWNER,
        DirectRules(
            share,
            settings.cursus_session_timeout_ms / 1000,
            settings.cursus_session_check_interval_ms / 1000,
            partition_count,
        ),
    )
    if group.bound_to is None:
        group.bound_to = topic
    elif group.bound_to != topic:
        if not group.has_members and to_join and not _matching(topics, group.bound_to):
            # What it was bound to is gone, and so are its readers.
            group.bound_to = topic
        else:
            expected, actual = group.bound_to, topic
            raise Refusal(f"topic_not_assigned_to_group expected={expected} actual={actual}")
    return group


def _matching(topics: dict[str, TopicMetadata], name: str) -> list[TopicMetadata]:
    if is_pattern(name):
        return matching(topics, name)
    return [topics[name]] if name in topics else []


def find_member(call: Call, group: DirectGroup) -> DirectMember:
    name = call.require("member", f"missing_member command={call.command.word}")
    try:
        return group.require(MemberId(name))
    except UnknownMember:
        raise Refusal(f"member_not_found member={name} group={group.group_id}") from None


def check_generation(call: Call, group: DirectGroup) -> None:
    """Raises `Refusal` unless the command names the present generation."""
    word, member = call.command.word, call.get("member")
    call.require("generation", f"missing_generation command={word}")
    generation = call.number("generation")
    if generation == group.generation:
        return
    who = f"group={group.group_id} member={member}"
    if call.command.is_positional and word == "HEARTBEAT":
        # What the first protocol page tells clients to expect.
        raise Refusal(f"REBALANCE_REQUIRED generation={group.generation} {who}")
    raise Refusal(f"GEN_MISMATCH current={group.generation} requested={generation} {who}")


def _assigned(group: DirectGroup, member: DirectMember, more: str = "") -> str:
    # Java's client takes nothing but digits and blanks between the brackets.
    partitions = " ".join(map(str, member.assigned))
    return (
        f"generation={group.generation} member={member.member_id} assignments=[{partitions}]{more}"
    )


def handle_find_coordinator(call: Call) -> None:
    kind = "group"
    if not call.get("group"):
        call.require("transactional_id", "missing_coordinator_key command=FIND_COORDINATOR")
        kind = "transaction"
    host, port = call.session.address()
    # A single broker of the original calls itself so.
    nodes, node = call.service.broker.image.nodes, call.service.broker.node_id
    name = "standalone" if len(nodes) == 1 else str(node)
    call.ok(f"coordinator_id={name} coordinator_type={kind} host={host} port={port}")


def handle_join(call: Call) -> None:
    wanted = call.require("member", "missing_member command=JOIN_GROUP")
    group = open_group(call, to_join=True)
    topic = TopicName(call.get("topic"))
    resumes = "generation" in call.command.arguments
    known = group.members.get(MemberId(wanted))
    if known is not None:
        group.heartbeat(known.member_id)
        call.ok(_assigned(group, known, " resumed=true" if resumes else ""))
        return
    if resumes:
        raise Refusal(f"member_not_found member={wanted} group={group.group_id}")
    random = call.service.broker.random
    member_id = MemberId(f"{wanted}-{random.randrange(10_000):04}")
    while member_id in group.members:
        member_id = MemberId(f"{wanted}-{random.randrange(10_000):04}")
    member = DirectMember(
        member_id,
        topic,
        client_host=call.session.channel.peer_address[0],
        on_assigned=_unheard,
        on_evicted=_unheard,
    )
    group.join(member)
    call.ok(_assigned(group, member))


def handle_sync(call: Call) -> None:
    group = open_group(call)
    member = find_member(call, group)
    check_generation(call, group)
    group.heartbeat(member.member_id)
    call.ok(_assigned(group, member))


def handle_heartbeat(call: Call) -> None:
    group = open_group(call)
    member = find_member(call, group)
    check_generation(call, group)
    group.heartbeat(member.member_id)
    call.ok(f"member={member.member_id} generation={group.generation}")


def handle_leave(call: Call) -> None:
    """Published clients name no generation; then it is not asked for."""
    group = open_group(call)
    if call.command.is_positional:
        member = _by_client_name(call, group)
    else:
        member = find_member(call, group)
    if "generation" in call.command.arguments:
        check_generation(call, group)
    group.leave(member.member_id)
    call.ok(f"group={group.group_id} member={member.member_id} left=true")


def _by_client_name(call: Call, group: DirectGroup) -> DirectMember:
    """The first protocol page lets clients leave under the name that they joined with."""
    name = call.get("member")
    found = [
        each
        for member_id, each in group.members.items()
        if member_id == name or member_id[:-5] == name
    ]
    return found[0] if len(found) == 1 else find_member(call, group)


def handle_register(call: Call) -> None:
    group = open_group(call, to_join=True)
    call.ok(f"group={group.group_id} topic={group.bound_to} registered=true")


def handle_status(call: Call) -> None:
    group_id = call.require("group", "missing_group command=GROUP_STATUS")
    authorize(call, Operation.DESCRIBE, Resource.GROUP, group_id)
    broker = call.service.broker
    broker.coordination.require_groups()
    known = broker.coordination.groups.get(GroupId(group_id))
    if known is None:
        raise Refusal(f"group_not_found group={group_id}")
    group = known.membership
    listing = broker.coordination.groups.describe(GroupId(group_id))
    topic = (group.bound_to if isinstance(group, DirectGroup) else None) or ""
    direct = group.members if isinstance(group, DirectGroup) else {}
    now_ms, now = broker.clock.wall_ms(), broker.clock.monotonic()
    status = {
        "status": "OK",
        "group_name": group_id,
        "topic_name": topic,
        "state": str(listing.state),
        "generation": listing.generation,
        "member_count": len(listing.members),
        "partition_count": sum(
            len(each.partitions) for each in _matching(broker.image.topics, topic)[:1]
        ),
        "members": [
            {
                "member_id": each.member_id,
                "last_heartbeat": _time(now_ms - int((now - each.last_seen) * 1000)),
                "assignments": each.assigned,
            }
            for each in direct.values()
        ],
        "last_rebalance": _time(group.assigned_ms if isinstance(group, DirectGroup) else 0),
    }
    call.json(msgspec.json.encode(status))


def _time(wall_ms: int) -> str:
    """RFC 3339 with nine digits behind the point, as Go writes it."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(wall_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall_ms % 1000 * 1_000_000:09}Z"


def handle_list(call: Call) -> None:
    broker = call.service.broker
    broker.coordination.require_groups()
    names = sorted(
        each.group_id
        for each in broker.coordination.groups.listings()
        if broker.authorizer.is_allowed(
            call.session.principal, Operation.DESCRIBE, Resource.GROUP, each.group_id
        )
    )
    call.ok(f"count={len(names)} groups={','.join(names)}")


def _unheard(*_: object) -> None:
    """Cursus has no push to members: they find out when they ask."""
