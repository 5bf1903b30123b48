"""OffsetCommit (8), versions 2 to 9, and OffsetFetch (9), versions 1 to 9: committed offsets.

Nothing committed is offset -1 without an error, also for a group that does not exist.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.broker.errors import UnknownTopic
from dragoman.broker.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.errors import BrokerError, DragomanError
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.groups import OWNER, open_groups
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from dragoman.security.authorizer import Operation
from dragoman.types import Epoch, GroupId, MemberId, Offset, Partition, TopicName


def handle_commit(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, OffsetCommitRequest)
    image = call.service.broker.image
    errors: dict[tuple[str, int], DragomanError] = {}
    commits: list[OffsetCommit] = []
    for topic in request.topics:
        known = image.topics.get(topic.name)
        for each in topic.partitions:
            if known is None or each.partition_index >= len(known.partitions):
                where = f"{topic.name}-{each.partition_index}"
                errors[topic.name, each.partition_index] = UnknownTopic(f"there is no {where}")
                continue
            commits.append(
                OffsetCommit(
                    topic=TopicName(topic.name),
                    partition=Partition(each.partition_index),
                    offset=Offset(each.committed_offset),
                    leader_epoch=Epoch(each.committed_leader_epoch),
                    metadata=each.committed_metadata or "",
                )
            )

    def done(prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
        if not call.is_done:
            call.reply(_committed(request, errors, prepared, error))

    try:
        open_groups(call, request.group_id)
    except DragomanError as error:
        done(None, error)
        return
    call.service.broker.coordination.commit(
        CommitRequest(
            group_id=GroupId(request.group_id),
            offsets=tuple(commits),
            member_id=MemberId(request.member_id),
            generation=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
            retention_ms=request.retention_time_ms if request.retention_time_ms >= 0 else None,
            owner=OWNER,
        ),
        done,
    )


def _committed(
    request: OffsetCommitRequest,
    errors: dict[tuple[str, int], DragomanError],
    prepared: PreparedOffsets | None,
    error: DragomanError | None,
) -> OffsetCommitResponse:
    refused: dict[tuple[str, int], DragomanError] = dict(errors)
    if prepared is not None:
        refused |= {(str(topic), index): each for (topic, index), each in prepared.errors.items()}

    def code(topic: str, index: int) -> int:
        found = refused.get((topic, index), error)
        return 0 if found is None else wire_code(found)

    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=code(topic.name, each.partition_index),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class _Found(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    error_code: int


def handle_fetch(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, OffsetFetchRequest)
    if call.version >= 8:
        groups = [_group(call, each, request.require_stable) for each in request.groups]
        call.reply(OffsetFetchResponse(groups=groups))
        return
    wanted = (
        None
        if request.topics is None
        else [(topic.name, topic.partition_indexes) for topic in request.topics]
    )
    try:
        found = _find(call, request.group_id, wanted, request.require_stable)
    except BrokerError as error:
        call.reply(_refused(call, request, wire_code(error)))
        return
    call.reply(
        OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=each.offset,
                            committed_leader_epoch=each.leader_epoch,
                            metadata=each.metadata,
                            error_code=each.error_code,
                        )
                        for index, each in partitions
                    ],
                )
                for topic, partitions in found
            ]
        )
    )


def _refused(call: Call, request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
    """Version 1 has no place for an error of the whole group: each partition carries it."""
    if call.version >= 2:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _group(
    call: Call, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    wanted = (
        None
        if asked.topics is None
        else [(topic.name, topic.partition_indexes) for topic in asked.topics]
    )
    try:
        found = _find(call, asked.group_id, wanted, require_stable)
    except BrokerError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=wire_code(error))
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[
            OffsetFetchResponseGroupTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponseGroupPartition(
                        partition_index=index,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for index, each in partitions
                ],
            )
            for topic, partitions in found
        ],
    )


def _find(
    call: Call,
    group_id: str,
    wanted: list[tuple[str, list[int]]] | None,
    require_stable: bool,
) -> list[tuple[str, list[tuple[int, _Found]]]]:
    open_groups(call, group_id, Operation.DESCRIBE)
    offsets = call.service.broker.coordination.offsets
    group = GroupId(group_id)
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(offsets.all_committed(group)):
            by_topic.setdefault(topic, []).append(partition)
        wanted = list(by_topic.items())

    def one(name: str, index: int) -> _Found:
        topic, partition = TopicName(name), Partition(index)
        if require_stable and offsets.has_unstable(group, topic, partition):
            return _Found(-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = offsets.committed(group, topic, partition)
        if committed is None:
            return _Found(-1, -1, "", 0)
        return _Found(committed.offset, committed.leader_epoch, committed.metadata, 0)

    return [(name, [(index, one(name, index)) for index in indexes]) for name, indexes in wanted]
