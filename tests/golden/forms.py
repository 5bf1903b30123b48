"""The encodings of nodes: what is encoded, with which function, and how it is read again.

A form that is a union has vectors of each of its members; that they are complete is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import msgspec

from dragoman.broker import changes
from dragoman.broker.delayed import records as delayed
from dragoman.broker.delayed.state import Batch
from dragoman.broker.groups import records as groups
from dragoman.broker.refusal_names import ERROR_BY_NAME
from dragoman.broker.staged_writes import records as publications
from dragoman.broker.staged_writes.publication import Writer
from dragoman.broker.transactions import records as transactions
from dragoman.broker.transactions.state import Transaction
from dragoman.captures import control
from dragoman.captures.definition import Definition, read_definition
from dragoman.cdc import position
from dragoman.cdc.snapshot.state import TableState, kept, states_of
from dragoman.cluster import events
from dragoman.cluster.codec import encode_image, event_batch, events_in, restore_image
from dragoman.cluster.etcd import layout
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import DragomanError
from dragoman.log import manifest, node
from dragoman.net import peer_frames
from dragoman.pipelines.jobs.current_rows import Pending
from dragoman.pipelines.jobs.replay import Plan
from dragoman.pipelines.jobs.table_updates import Made
from dragoman.pipelines.jobs.tier_manifest import Manifest as TierManifest
from dragoman.pipelines.state import Status as PipelineStatus
from dragoman.protocols.cursus.handlers import relayed as cursus
from dragoman.protocols.cursus.handlers.state import StoredProducer, StoredSnapshot
from dragoman.protocols.rocketmq.handlers import rpc as rocketmq
from dragoman.protocols.rocketmq.handlers import topics as rocketmq_topic
from dragoman.raft import messages as raft
from dragoman.raft.snapshots import Snapshot, decode_snapshot, encode_snapshot
from dragoman.replication import messages as replication
from dragoman.rpc import Refusals, Refused, answer_type
from worlds.broker import World

#: The name that a value has outside of its encoding, where it has one: the record's key.
NAME = "name"


class Form(NamedTuple):
    kinds: tuple[type, ...]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _union(
    union: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any] | None = None
) -> Form:
    kinds = get_args(union) or (union,)
    return Form(kinds, encode, decode or (lambda data: msgspec.msgpack.decode(data, type=union)))


def _msgpack(union: Any) -> Form:
    return _union(union, msgspec.msgpack.encode)


def _json(union: Any) -> Form:
    return _union(union, msgspec.json.encode, lambda data: msgspec.json.decode(data, type=union))


def _node_file(data: bytes) -> Any:
    return msgspec.json.decode(data.partition(b"\n")[0], type=node.NodeState)


def _rocketmq_topic(data: bytes) -> Any:
    config = {rocketmq_topic.ATTRIBUTES_KEY: data.decode()}
    return rocketmq_topic.attributes_of(SimpleNamespace(config=config))  # type: ignore[arg-type]


def _delayed(kind: Any) -> Form:
    return Form((kind,), delayed.encode_value, lambda data: delayed.decode_value(kind, data))


class Frame(NamedTuple):
    """A frame between nodes, as values that compare."""

    kind: peer_frames.Kind
    service: int
    number: int
    header: bytes
    body: bytes


def _frame(frame: Frame) -> bytes:
    pieces = peer_frames.frame(frame.kind, frame.service, frame.number, frame.header, (frame.body,))
    return b"".join(pieces)


def _read_frame(data: bytes) -> Frame:
    found = peer_frames.take_apart(bytearray(data[4:]))
    header, body = bytes(found.header), bytes(found.body)
    return Frame(found.kind, found.service, found.number, header, body)


def _image(data: bytes) -> MetadataImage:
    image = MetadataImage()
    assert restore_image(image, data) == IMAGE_VERSION
    return image


def same(one: object, other: object) -> bool:
    """Whether they are equal, also where the class defines no equality."""
    if isinstance(one, DragomanError):
        return _parts(one) == _parts(other)
    if isinstance(one, MetadataImage) and isinstance(other, MetadataImage):
        return encode_image(one, IMAGE_VERSION) == encode_image(other, IMAGE_VERSION)
    return type(one) is type(other) and one == other


def _parts(error: object) -> tuple[object, ...]:
    assert isinstance(error, DragomanError)
    return type(error), error.args, vars(error)


_registry = World(start=False).broker.registry
_refusals = Refusals(ERROR_BY_NAME)
#: How many entries have led to the image of the vectors.
IMAGE_VERSION = 9
FORMS: dict[str, Form] = {
    # ---- the metadata and its quorum
    "metadata": _union(events.Event, events.encode_event, events.decode_event),
    "raft": _union(raft.Message, raft.encode_message, raft.decode_message),
    "image": Form((MetadataImage,), lambda image: encode_image(image, IMAGE_VERSION), _image),
    "raft-entry": Form((list,), lambda found: bytes(event_batch(found)), events_in),
    "raft-snapshot": _union(Snapshot, encode_snapshot, decode_snapshot),
    "ballot": _union(node.Ballot, node.ballot_entry_data, node.read_ballot),
    "etcd-head": _union(layout.Head, layout.to_json, layout.read_head),
    "etcd-holder": _union(layout.Holder, layout.to_json, layout.read_holder),
    "etcd-snapshot": _union(layout.SnapshotHead, layout.to_json, layout.read_snapshot_head),
    "etcd-entry": _union(layout.Entry, layout.encode_entry, layout.read_entry),
    # ---- between nodes
    "frame": Form((Frame,), _frame, _read_frame),
    "hello": _msgpack(peer_frames.Hello),
    "proposal": _msgpack(changes.Proposal),
    "proposal-reply": _msgpack(changes.ProposalReply),
    "replication": _union(
        replication.Message, replication.encode_message, replication.decode_message
    ),
    "neighbour-request": _union(
        reduce(or_, _registry.request_types), msgspec.msgpack.encode, _registry.decode_request
    ),
    "neighbour-reply": _msgpack(reduce(or_, map(answer_type, _registry.request_types), Refused)),
    "refusal": Form(
        tuple(ERROR_BY_NAME.values()),
        lambda error: msgspec.msgpack.encode(_refusals.encode(error)),
        lambda data: _refusals.decode(msgspec.msgpack.decode(data, type=Refused)),
    ),
    "cursus": _union(
        cursus.Relayed, msgspec.msgpack.encode, lambda data: cursus.decode(memoryview(data))
    ),
    "rocketmq": _union(
        rocketmq.Request, rocketmq.encode, lambda data: rocketmq.decode_request(memoryview(data))
    ),
    "rocketmq-listing": _msgpack(rocketmq.Listing),
    "rocketmq-queues": _msgpack(rocketmq.Queues),
    "rocketmq-number": _msgpack(rocketmq.Number),
    "rocketmq-count": _msgpack(rocketmq.Count),
    "rocketmq-groups": _msgpack(rocketmq.GroupRows),
    "rocketmq-client-answer": _msgpack(rocketmq.ClientAnswer),
    "rocketmq-producers": _msgpack(rocketmq.Producers),
    # ---- captures: the node, and the process that captures
    "capture-command": _union(control.Command, control.encode_line, control.decode_command),
    "capture-report": _union(control.Report, control.encode_line, control.decode_report),
    "capture-finding": _union(control.Finding, control.encode_line, control.decode_finding),
    "capture-definition": _union(Definition, msgspec.json.encode, read_definition),
    "capture-position": _union(
        position.Position,
        position.encode_position,
        lambda data: msgspec.json.decode(data, type=position.Position),
    ),
    "capture-table": Form(
        (TableState,),
        lambda state: msgspec.json.encode(kept({NAME: state})),
        lambda data: states_of(msgspec.json.decode(data))[NAME],
    ),
    # ---- internal topics
    "group-key": _union(groups.Key, msgspec.msgpack.encode, groups.decode_key),
    "group-offset": _msgpack(groups.CommittedOffset),
    "group-value": _msgpack(groups.GroupValue | groups.ConsumerGroupValue),
    "group-member": _msgpack(groups.StoredConsumerMember),
    "group-target": _msgpack(groups.StoredTarget),
    "transaction": Form(
        (Transaction,),
        lambda value: transactions.to_record(value).value,
        lambda data: transactions.decode_value(NAME, data),
    ),
    "deferred-record": _delayed(delayed.Stored),
    "deferred-release": _delayed(delayed.Release),
    "deferred-batch": _delayed(Batch),
    "publication": Form(
        (Writer,),
        lambda value: publications.to_record(value)[1],
        lambda data: publications.decode_value(NAME, data),
    ),
    "cursus-producer": _json(StoredProducer),
    "cursus-snapshot": _json(StoredSnapshot),
    "rocketmq-topic": Form(
        (rocketmq_topic.Attributes,),
        lambda value: rocketmq_topic.written(value).encode(),
        _rocketmq_topic,
    ),
    # ---- files
    "node-file": Form(
        (node.NodeState,), lambda state: node.node_replacement(state).data, _node_file
    ),
    "manifest": Form(
        (manifest.Manifest,),
        manifest.encode_manifest,
        lambda data: manifest.decode_manifest(data, "manifest.json"),
    ),
    "pipeline-status": _json(PipelineStatus),
    "tier-manifest": _json(TierManifest),
    "replay-plan": _json(Plan),
    "materialized-row": _json(Pending),
    "materialized-table": _json(Made),
}
