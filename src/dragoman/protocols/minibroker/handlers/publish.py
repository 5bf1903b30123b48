"""PUB: a record to the partition of its key, answered when it is durable.

In the original one node takes all writes, and the others answer `not leader`, upon which a client
waits 250 ms and tries its next address (spec, section 9). Here every node leads some partitions:
keys would send every client from node to node all the time. So a record goes to the leader of its
partition, and `not leader` is kept for when that node cannot be reached from here: then another
address is the client's only way.

Records without a key go to all partitions in turn, wherever these are led.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.cluster.metadata import NO_LEADER, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.log.batch import Record
from dragoman.protocols.minibroker.codec import published_frame
from dragoman.protocols.minibroker.constants import KEY_BYTES_MAX
from dragoman.protocols.minibroker.errors import KEY_TOO_LARGE
from dragoman.protocols.minibroker.handlers.refusals import Refused
from dragoman.protocols.minibroker.handlers.topics import make_topic, usable_topic
from dragoman.protocols.minibroker.messages import Publish
from dragoman.protocols.minibroker.routing import fnv1a_32
from dragoman.protocols.session import Place
from dragoman.security.authorizer import Operation

if TYPE_CHECKING:
    from dragoman.protocols.minibroker.handlers.session import MinibrokerSession

# Looked up once: members of enumerations are slow to find.
_WRITE = Operation.WRITE


def publish(session: MinibrokerSession, request: Publish, place: Place) -> None:
    if len(request.key) > KEY_BYTES_MAX:
        raise Refused(KEY_TOO_LARGE)
    topic = usable_topic(session, request.topic, _WRITE)
    if topic is None:
        make_topic(
            session, place, request.topic, lambda made: _append(session, made, request, place)
        )
    else:
        _append(session, topic, request, place)


def _append(
    session: MinibrokerSession, topic: TopicMetadata, request: Publish, place: Place
) -> None:
    """A key of no bytes is none: in the log it is null."""
    service, key = session.service, request.key
    broker = service.broker
    turn = fnv1a_32(key) if key else service.next_turn(topic.name)
    partition = turn % len(topic.partitions)
    if not key and topic.partitions[partition].leader == NO_LEADER:
        # Any will do for it: rather one that some node leads.
        led = [each.index for each in topic.partitions if each.leader != NO_LEADER]
        partition = led[turn % len(led)] if led else partition

    def placed(offset: int, error: DragomanError | None) -> None:
        place.reply(published_frame(partition, offset) if error is None else session.refusal(error))

    record = Record(key=key or None, value=request.payload, timestamp=broker.clock.wall_ms())
    broker.relaying.add(topic.partitions[partition], record, placed)
