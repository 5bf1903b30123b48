"""COMMIT: the next offset that a group is to read of a partition, answered when it is durable.

Anybody may commit for a group, member or not, forwards or backwards (spec, section 5), unless the
group's members speak another protocol. Like records (`publish.py`), commits go to the node that
takes them: clients of this protocol know no coordinators, and pay for every `not leader`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dragoman.broker.errors import CoordinatorLoading, CoordinatorNotAvailable
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import GROUPS_LOADING_PAUSE_S
from dragoman.net.framed import Place
from dragoman.outcome import start
from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker.constants import OFFSET_MAX
from dragoman.protocols.minibroker.errors import BAD_COMMIT_OFFSET
from dragoman.protocols.minibroker.handlers.groups import OWNER
from dragoman.protocols.minibroker.handlers.refusals import Refused
from dragoman.protocols.minibroker.handlers.topics import (
    require_group,
    require_partition,
    use_topic,
)
from dragoman.protocols.minibroker.messages import Commit, Committed
from dragoman.security.authorizer import Operation
from dragoman.types import Offset, Partition, TopicName

if TYPE_CHECKING:
    from dragoman.protocols.minibroker.handlers.session import MinibrokerSession


def commit(session: MinibrokerSession, request: Commit, place: Place) -> None:
    if request.offset > OFFSET_MAX:
        raise Refused(BAD_COMMIT_OFFSET)
    group = require_group(session, request.group)
    coordination = session.service.broker.coordination

    def committed(asked: CommitRequest, error: DragomanError | None) -> None:
        if isinstance(error, CoordinatorLoading | CoordinatorNotAvailable) and not place.is_done:
            # Right after a start clients come back before groups do, and what is refused they do
            # not try again.
            scheduler = session.service.broker.scheduler
            scheduler.call_later(GROUPS_LOADING_PAUSE_S, send, asked)
        elif error is not None:
            place.reply(session.refusal(error))
        else:
            place.reply(codec.encode(Committed(offset=request.offset)))
            subscription = session.subscriptions.get(request.topic)
            if subscription is not None and subscription.group == group:
                subscription.committed(request.partition, request.offset)

    def send(asked: CommitRequest) -> None:
        start(coordination.groups.commit_anywhere(asked)).then(partial(committed, asked))

    def store(topic: TopicMetadata) -> None:
        require_partition(topic, request.partition)
        offset = OffsetCommit(
            topic=TopicName(topic.name),
            partition=Partition(request.partition),
            offset=Offset(request.offset),
        )
        send(CommitRequest(group_id=group, offsets=(offset,), owner=OWNER))

    use_topic(session, place, request.topic, Operation.READ, store)
