"""The structs that nodes send each other and keep in replicated logs, and smallest values of them.

`PYTHONPATH=tests python -m protocols.internode_structs` prints what `tests/unit/level_N.json`
holds, with a mark behind fields that may be left out: run it when a level is released, and keep the
file beside the earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

from msgspec import inspect

from dragoman.broker.changes import Proposal, ProposalReply
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.broker.staged_writes.publication import Destination, Piece, Publication, Target
from dragoman.captures.control import Resume, Rewind, Snapshot, Status, TableProgress
from dragoman.captures.supervisor import CaptureState
from dragoman.cluster.events import Event, Member, PartitionPlacement
from dragoman.net.peer_frames import Hello
from dragoman.raft.messages import Message as VotersMessage
from dragoman.replication.messages import Fetched, InSyncChange, Position
from dragoman.replication.messages import Message as CopiesMessage
from dragoman.rpc import Refused, answer_type
from dragoman.security.access import Caller, Principal
from dragoman.security.rules import Rule
from dragoman.security.users import ApiToken, ScramVerifier, SealedSecret, User
from worlds.broker import World

_served = World(start=False).broker.registry.request_types
ROOTS = {
    "events": Event,
    "voters": VotersMessage,
    "copies": CopiesMessage,
    "changes": Proposal | ProposalReply,
    "requests": reduce(or_, _served),
    "replies": reduce(or_, map(answer_type, _served), Refused),
    "hello": Hello,
}
#: What `level_N.json` calls structs that are not tagged with that name. The classes may be renamed.
NAMES: dict[type, str] = {
    PartitionPlacement: "PartitionPlacement",
    Member: "Member",
    Rule: "Rule",
    User: "User",
    ScramVerifier: "ScramVerifier",
    SealedSecret: "SealedSecret",
    ApiToken: "ApiToken",
    Position: "Position",
    Fetched: "Fetched",
    InSyncChange: "InSyncChange",
    Proposal: "Proposal",
    ProposalReply: "ProposalReply",
    CommitRequest: "CommitRequest",
    OffsetCommit: "OffsetCommit",
    Publication: "Publication",
    Destination: "Destination",
    Target: "Target",
    Piece: "Piece",
    CaptureState: "CaptureState",
    Resume: "Resume",
    Rewind: "Rewind",
    Snapshot: "Snapshot",
    Status: "Status",
    TableProgress: "TableProgress",
    Hello: "Hello",
    Caller: "Caller",
    Principal: "Principal",
}


def name_of(kind: Any) -> str:
    return NAMES.get(kind) or str(kind.__struct_config__.tag)


def _nested(found: inspect.Type) -> Iterator[inspect.Type]:
    for name in ("types", "item_types"):
        yield from getattr(found, name, ())
    for name in ("item_type", "key_type", "value_type", "type"):
        one = getattr(found, name, None)
        if isinstance(one, inspect.Type):
            yield one
    for field in getattr(found, "fields", ()):
        yield field.type


def structs(root: Any) -> dict[str, inspect.StructType]:
    """By name, all that are in values of a type."""
    found: dict[str, inspect.StructType] = {}
    todo = (
        [inspect.type_info(root)]
        if isinstance(root, type)
        else list(inspect.multi_type_info(root.__args__))
    )
    while todo:
        each = todo.pop()
        if isinstance(each, inspect.StructType):
            if name_of(each.cls) in found:
                continue
            found[name_of(each.cls)] = each
        todo += _nested(each)
    return dict(sorted(found.items()))


def smallest(found: inspect.Type) -> Any:
    """A value of that type as it is encoded, with the fields that have to be there."""
    match found:
        case inspect.StructType():
            return fields(found, [each.encode_name for each in found.fields if each.required])
        case inspect.UnionType():
            return smallest(found.types[0])
        case inspect.LiteralType():
            return found.values[0]
        case inspect.EnumType():
            return next(iter(found.cls)).value
        case inspect.TupleType():
            return [smallest(each) for each in found.item_types]
        case inspect.ListType() | inspect.VarTupleType():
            return []
        case inspect.DictType():
            return {}
        case inspect.StrType():
            return ""
        case inspect.BytesType():
            return b""
        case inspect.BoolType():
            return False
        case inspect.NoneType():
            return None
        case inspect.IntType() | inspect.FloatType():
            return 0
    raise AssertionError(f"no smallest value of {found}")


def fields(struct: inspect.StructType, names: list[str]) -> Any:
    """A struct as it is encoded, with these fields."""
    types = {each.encode_name: each.type for each in struct.fields}
    values = {name: smallest(types[name]) for name in names}
    if struct.array_like:
        return [*([struct.tag] if struct.tag is not None else []), *values.values()]
    return {**({struct.tag_field: struct.tag} if struct.tag_field else {}), **values}


def description() -> dict[str, dict[str, str]]:
    return {
        root: {
            name: " ".join(
                f"{each.encode_name}{'' if each.required else '?'}" for each in struct.fields
            )
            for name, struct in structs(kind).items()
        }
        for root, kind in ROOTS.items()
    }


if __name__ == "__main__":
    print(json.dumps(description(), indent=1))
