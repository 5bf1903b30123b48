"""One subscription of a connection: the partitions it reads, and for a group its membership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.broker.errors import UnknownMember
from dragoman.broker.groups.direct import DirectMember
from dragoman.broker.replica import Replica
from dragoman.errors import DragomanError
from dragoman.protocols.minibroker import codec, errors
from dragoman.protocols.minibroker.handlers.groups import OWNER
from dragoman.protocols.minibroker.handlers.pushing import Stream
from dragoman.protocols.minibroker.handlers.window import Window
from dragoman.protocols.minibroker.messages import Rebalanced
from dragoman.types import GroupId, Partition, TopicName

if TYPE_CHECKING:
    from dragoman.protocols.minibroker.handlers.session import MinibrokerSession


class Subscription:
    """To one partition, for one connection alone."""

    group: GroupId | None = None

    def __init__(self, session: MinibrokerSession, topic: str) -> None:
        self.topic = topic
        self._session = session
        self._window: Window | None = None
        self._streams: dict[int, Stream] = {}

    def read(self, replica: Replica, offset: int) -> None:
        """Push what this partition has from `offset` on; what was deleted is passed over."""
        partition = replica.metadata.index
        stream = Stream(self._session.pusher, self.topic, replica, offset, self._window)
        self._streams[partition] = stream
        stream.begin()

    def committed(self, partition: int, offset: int) -> None:
        """The client has dealt with everything below `offset`."""
        if self._window is not None:
            self._window.committed(partition, offset)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        if self._window is not None:
            self._window.close()


class GroupSubscription(Subscription):
    """To whatever partitions the group gives this member."""

    def __init__(self, session: MinibrokerSession, topic: str, group: GroupId) -> None:
        """Raises what claiming the group raises."""
        super().__init__(session, topic)
        self.group = group
        service = session.service
        self._coordination = service.broker.coordination
        self._direct = self._coordination.direct_group(group, OWNER, service.rules)
        self._member = DirectMember(
            service.new_member_id(),
            TopicName(topic),
            client_host=session.channel.peer_address[0],
            on_assigned=self._assigned,
            on_evicted=session.evicted,
        )
        committed = self._coordination.offsets.all_committed(group)
        self._window: Window = Window(
            service.broker.scheduler,
            session.pusher,
            commits=any(name == topic for name, _ in committed),
        )

    def join(self) -> tuple[int, ...]:
        return self._direct.join(self._member)

    def heartbeat(self) -> None:
        self._direct.heartbeat(self._member.member_id)

    def take(self, partitions: tuple[int, ...]) -> None:
        """Read these and no others; those that stay go on where they are."""
        for partition in self._streams.keys() - set(partitions):
            self._streams.pop(partition).close()
            self._window.forget(partition)
        for partition in partitions:
            if partition not in self._streams:
                self._read_committed(partition)

    def _read_committed(self, partition: int) -> None:
        assert self.group is not None
        try:
            replica = self._session.service.broker.find(self.topic, partition)
        except DragomanError as error:
            self._session.end(errors.reader_failed(self.topic, partition, str(error)))
            return
        name = (TopicName(self.topic), Partition(partition))
        committed = self._coordination.offsets.all_committed(self.group).get(name)
        self.read(replica, 0 if committed is None else committed.offset)

    def _assigned(self, partitions: tuple[int, ...]) -> None:
        assert self.group is not None
        told = Rebalanced(topic=self.topic, group=self.group, partitions=partitions)
        self._session.pusher.announce(self.topic, codec.encode(told))
        self.take(partitions)

    def close(self) -> None:
        super().close()
        self._session.pusher.forget(self.topic)
        try:
            self._direct.leave(self._member.member_id)
        except UnknownMember:
            # Evicted, or the node stops.
            return
