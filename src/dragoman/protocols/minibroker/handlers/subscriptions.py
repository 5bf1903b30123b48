"""Subscriptions of a connection: the partitions that they read, and their group memberships."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dragoman.broker.errors import UnknownTopic
from dragoman.broker.groups.remote_members import FirstAssigned, MemberSpec
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import MEMBER_JOIN_RETRY_S
from dragoman.log.batch import Record
from dragoman.net.channel import Channel
from dragoman.outcome import attempt, ignore, pause, start
from dragoman.protocols.minibroker import codec, errors
from dragoman.protocols.minibroker.handlers.delivery import Pusher, Recipient, Stream, Window
from dragoman.protocols.minibroker.handlers.service import OWNER, MinibrokerService
from dragoman.protocols.minibroker.messages import Rebalanced
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import GroupId, TopicName


class Subscriber(Recipient, Protocol):
    """The session that subscribes."""

    channel: Channel
    pusher: Pusher
    caller: Caller

    @property
    def service(self) -> MinibrokerService: ...

    def authorize(self, operation: Operation, resource: Resource, name: str, /) -> None:
        """Raises `NotAuthorized`."""
        ...

    def evicted(self) -> None:
        """Called when the group has evicted this member."""
        ...


class Subscription:
    """A subscription to one partition, without a group. Raises `NotAuthorized`; the connection ends
    when the client loses the right to read.
    """

    group: GroupId | None = None

    def __init__(self, session: Subscriber, topic: str) -> None:
        self.topic = topic
        self._session = session
        # The client may have lost the right while the topic was looked up.
        self._authorize()
        grants = session.service.broker.grants
        self._grant = grants.hold(self._authorize, self._revoked)
        self._window: Window | None = None
        self._streams: dict[int, Stream] = {}
        session.service.subscriptions.add(self)

    def read(self, partition: PartitionMetadata, offset: int) -> None:
        """Push the records of this partition from `offset` on; deleted ones are skipped."""
        session = self._session
        readers = session.service.broker.readers
        stream = Stream(session.pusher, readers, partition, offset, self._window, self._count_sent)
        self._streams[partition.index] = stream
        stream.begin()

    def _count_sent(self, records: Sequence[Record]) -> None:
        self._session.service.sent[self.topic].add_records(records)

    def _authorize(self) -> None:
        self._session.authorize(Operation.READ, Resource.TOPIC, self.topic)

    def _revoked(self, error: DragomanError) -> None:
        self._session.end(str(error))

    def committed(self, partition: int, offset: int) -> None:
        """Called when the client has committed `offset` as the next one to read."""
        if self._window is not None:
            self._window.committed(partition, offset)

    def close(self) -> None:
        self._session.service.subscriptions.discard(self)
        self._grant.release()
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        if self._window is not None:
            self._window.close()


class GroupSubscription(Subscription):
    """A subscription to the partitions that the group assigns to this member."""

    def __init__(self, session: Subscriber, topic: str, group: GroupId) -> None:
        self.group: GroupId = group
        super().__init__(session, topic)
        service = session.service
        self._broker = service.broker
        self._window: Window = Window(service.broker.scheduler, session.pusher)
        self._assigned: tuple[int, ...] = ()
        self._is_closed = False
        spec = MemberSpec(
            group_id=group,
            owner=OWNER,
            topic=TopicName(topic),
            client_host=session.channel.peer_address[0],
            session_timeout_s=service.heartbeat_timeout_s,
            caller=session.caller,
        )
        self._member = service.broker.group_members.open(spec, self)

    def _authorize(self) -> None:
        super()._authorize()
        self._session.authorize(Operation.READ, Resource.GROUP, self.group)

    def join(self, first_assigned: FirstAssigned) -> None:
        self._member.join(first_assigned)

    def heartbeat(self) -> None:
        self._member.heartbeat()

    def take(self, partitions: tuple[int, ...]) -> None:
        """Read exactly these partitions. Partitions that were already being read continue."""
        self._assigned = partitions
        for partition in self._streams.keys() - set(partitions):
            self._streams.pop(partition).close()
            self._window.forget(partition)
        start(self._read_committed()).then(ignore)

    async def _read_committed(self) -> None:
        """Read new partitions from the group's committed offsets."""
        coordination = self._broker.coordination
        while not self._is_closed and set(self._assigned) - self._streams.keys():
            found = await attempt(coordination.groups.committed(self.group, TopicName(self.topic)))
            if isinstance(found, DragomanError):
                # The group is between two coordinators.
                await pause(self._broker.scheduler, MEMBER_JOIN_RETRY_S)
                continue
            if not self._is_closed:
                self._begin(found)
            return

    def _begin(self, committed: dict[int, int]) -> None:
        self._window.commits = self._window.commits or bool(committed)
        for partition in self._assigned:
            if partition not in self._streams:
                self._read_from(partition, committed.get(partition, 0))

    def _read_from(self, partition: int, offset: int) -> None:
        topic = self._broker.image.topics.get(self.topic)
        if topic is None or partition >= len(topic.partitions):
            gone = UnknownTopic(f"there is no partition {partition} of topic {self.topic!r}")
            self._session.end(errors.reader_failed(self.topic, partition, str(gone)))
            return
        self.read(topic.partitions[partition], offset)

    # ---- events of the membership

    def assigned(self, partitions: tuple[int, ...]) -> None:
        message = Rebalanced(topic=self.topic, group=self.group, partitions=partitions)
        self._session.pusher.announce(self.topic, codec.encode(message))
        self.take(partitions)

    def evicted(self) -> None:
        self._session.evicted()

    def turned_away(self, error: DragomanError) -> None:
        self._session.end(str(error))

    def close(self) -> None:
        self._is_closed = True
        super().close()
        self._session.pusher.forget(self.topic)
        self._member.leave()
