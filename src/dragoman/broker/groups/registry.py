"""All groups of a node, whatever the protocol of their members.

Owns the table of groups and the rule that binds them: a group with live members belongs to one
protocol, its owner; a join or commit of another is refused with `ForeignGroup` until the group is
empty. The committed offsets stay with the group under any owner.

How members are kept depends on the protocol. Kafka's two are built in: `join`, `sync`, `heartbeat`
and `leave` are the calls of the first, `consumer_heartbeat` that of the second (KIP-848), and a
group with members may change from one to the other. Another protocol brings its own `Membership`
and enters it with `claim`.

The table is rebuilt from records of the internal topic, a partition at a time: `load` each, in the
order of the log, then `resume` those of the partition. Changes of offsets, and removals, are
prepared as records, made durable by the caller, and take effect by `apply`, so that what is in
memory is always what a replay would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar, assert_never

from dragoman import limits
from dragoman.broker.directory import only_partition
from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    ForeignGroup,
    GroupMaxSizeReached,
    GroupNotFound,
    GroupRequestTooLarge,
    InconsistentProtocol,
    InvalidGroupId,
    NonEmptyGroup,
    RebalanceInProgress,
    TooManyGroups,
    UnknownMember,
)
from dragoman.broker.groups.classic import ClassicGroup, check_join
from dragoman.broker.groups.consumer.classic_members import ClassicMembers
from dragoman.broker.groups.consumer.conversion import names_of, read_members, take_in
from dragoman.broker.groups.consumer.group import ConsumerGroup
from dragoman.broker.groups.consumer.messages import (
    JOIN,
    ConsumerGroupDescription,
    HeartbeatRequest,
    Reply,
    check_heartbeat,
    member_bytes,
)
from dragoman.broker.groups.consumer.replay import MemberReplay
from dragoman.broker.groups.direct import DirectGroup, DirectRules
from dragoman.broker.groups.group import Group, GroupMemory, Membership
from dragoman.broker.groups.messages import (
    GroupDescription,
    GroupListing,
    Joined,
    JoinReply,
    JoinRequest,
    LeavingMember,
    State,
    Synced,
    SyncReply,
    SyncRequest,
)
from dragoman.broker.groups.ports import (
    CONSUMER_PROTOCOL_TYPE,
    Catalog,
    Dialect,
    GroupPorts,
    GroupSettings,
    NamedPartitions,
    NoTopics,
    OwnConfig,
    Persist,
    ReadSubscription,
    no_config,
    subscriptions_read_by,
    unreadable,
)
from dragoman.broker.groups.records import (
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerTargetKey,
    GroupKey,
    GroupValue,
    OffsetKey,
    StagedKey,
    StateRecord,
    decode_group,
    decode_key,
    decode_offset,
    record,
)
from dragoman.broker.groups.waits import Parked
from dragoman.broker.patterns import Patterns
from dragoman.errors import BrokerError, FormatError
from dragoman.types import GroupId, MemberId
from dragoman.world import Clock, Random, Scheduler

AnyMembership = TypeVar("AnyMembership", bound=Membership)


class Groups:
    def __init__(
        self,
        *,
        scheduler: Scheduler,
        clock: Clock,
        random: Random,
        persist: Persist,
        settings: GroupSettings | None = None,
        read_subscription: ReadSubscription | None = None,
        catalog: Catalog | None = None,
        dialect: Dialect | None = None,
        own_config: OwnConfig = no_config,
        partition_of: Callable[[GroupId], int] = only_partition,
    ) -> None:
        """`partition_of` maps a group to a partition of the internal topic."""
        if read_subscription is None:
            read_subscription = unreadable if dialect is None else subscriptions_read_by(dialect)
        self._ports = GroupPorts(
            settings=settings or GroupSettings(),
            scheduler=scheduler,
            clock=clock,
            random=random,
            persist=persist,
            read_subscription=read_subscription,
            catalog=catalog or NoTopics(),
            dialect=dialect,
            own_config=own_config,
            patterns=Patterns(),
            became_idle=self._discard_if_blank,
            became_classic=self._became_classic,
        )
        self._groups: dict[GroupId, Group] = {}
        self._partition_of = partition_of
        #: By partition, the groups in the table.
        self._kept_in: dict[int, dict[GroupId, None]] = {}
        #: Loaded and not yet resumed.
        self._to_resume: set[GroupId] = set()
        self._member_replay = MemberReplay(partition_of)
        self._last_sequence = 0
        self._memory = GroupMemory(
            lambda: sum(group.held_bytes for group in self._groups.values()), clock
        )

    # ---- the table

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    @property
    def settings(self) -> GroupSettings:
        return self._ports.settings

    @property
    def clock(self) -> Clock:
        return self._ports.clock

    def get(self, group_id: GroupId) -> Group | None:
        return self._groups.get(group_id)

    def require(self, group_id: GroupId) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise GroupNotFound(f"no group {group_id!r}")
        return group

    def require_place(self, group_id: GroupId) -> None:
        """Raises unless the group exists or may be created."""
        if group_id in self._groups:
            return
        check_group_id(group_id)
        self.take_memory(limits.GROUP_OVERHEAD_BYTES + len(group_id))
        if len(self._groups) >= limits.GROUPS_MAX:
            raise TooManyGroups(f"this node keeps at most {limits.GROUPS_MAX} groups")

    def take_memory(self, size: int) -> None:
        """Reserve memory for a request. Raises `TooManyGroups`."""
        self._memory.take(size)

    def _get_or_make(self, group_id: GroupId) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id)
            self._kept_in.setdefault(self._partition_of(group_id), {})[group_id] = None
        return group

    def next_sequence(self) -> int:
        """The order of a commit among all commits; see `CommittedOffset.sequence`."""
        self._last_sequence += 1
        return self._last_sequence

    def listings(self) -> tuple[GroupListing, ...]:
        return tuple(
            GroupListing(
                group_id=group.group_id,
                kind=ClassicGroup.kind if group.membership is None else group.membership.kind,
                owner=group.owner,
                state=State.EMPTY if group.membership is None else group.membership.state,
                protocol_type="" if group.membership is None else group.membership.protocol_type,
            )
            for group in self._groups.values()
        )

    def describe(self, group_id: GroupId) -> GroupDescription:
        """Raises `GroupNotFound`."""
        membership = self.require(group_id).membership
        if membership is not None:
            return membership.describe()
        return GroupDescription(
            group_id=group_id,
            kind=ClassicGroup.kind,
            owner=None,
            state=State.EMPTY,
            generation=0,
            protocol_type="",
            protocol="",
            leader=None,
            members=(),
        )

    def assignments(self, group_id: GroupId) -> dict[MemberId, NamedPartitions]:
        """What each member of Kafka's two protocols may read, as far as it is known.

        Raises `GroupNotFound`.
        """
        consumer, dialect = self.consumer_group(group_id), self._ports.dialect
        if consumer is not None:
            return {
                each.member_id: names_of(each.assigned, self._ports.catalog)
                for each in consumer.describe_members().members
            }
        described = self.describe(group_id)
        if dialect is None or described.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return {}
        read = (
            (each.member_id, dialect.read_assignment(each.assignment)) for each in described.members
        )
        return {member_id: named for member_id, named in read if named is not None}

    def claim(
        self,
        group_id: GroupId,
        owner: str,
        membership_type: type[AnyMembership],
        build: Callable[[int], AnyMembership],
    ) -> AnyMembership:
        """The members of a group that is `owner`'s, or free to become so.

        `build` makes the membership when there is none of this owner and type yet; it gets the
        last generation, from which the new one continues, so that generations never repeat. Raises
        `ForeignGroup`, and `InconsistentProtocol` when the owner's live members are of another
        type.
        """
        if not group_id:
            raise InvalidGroupId("a group with members needs a name")
        self.require_place(group_id)
        group = self._get_or_make(group_id)
        group.require_owner(owner)
        current = group.membership
        if isinstance(current, membership_type) and current.owner == owner:
            return current
        generation = 0
        if current is not None:
            if current.has_members:
                raise InconsistentProtocol(f"group {group_id!r} is of kind {current.kind!r}")
            generation = current.generation
            current.stop(UnknownMember(f"group {group_id!r} changed hands"))
        built = build(generation)
        group.membership = built
        return built

    def direct(self, group_id: GroupId, owner: str, rules: DirectRules) -> DirectGroup:
        """The group as one whose members the broker assigns. Raises what `claim` raises."""
        group = self.claim(
            group_id,
            owner,
            DirectGroup,
            lambda generation: DirectGroup(group_id, owner, self._ports, generation),
        )
        group.rules = rules
        return group

    # ---- Kafka's classic groups

    def join(self, request: JoinRequest, reply: JoinReply) -> Parked[Joined] | None:
        """Answers through `reply`, now or later; never raises.

        Returns the request while it waits: call its `abandon()` when the connection is lost.
        """
        try:
            self.take_memory(check_join(request, self._ports.settings))
            group = self._classic_to_join(request)
        except BrokerError as error:
            reply(error)
            return None
        parked = group.join(request, reply)
        self._discard_if_blank(request.group_id)
        return parked

    def sync(self, request: SyncRequest, reply: SyncReply) -> Parked[Synced] | None:
        """Answers through `reply`, and returns the request while it waits, like `join`."""
        try:
            group = self._classic(request.group_id)
            if request.assignments:
                self.take_memory(sum(len(assignment) for _, assignment in request.assignments))
        except BrokerError as error:
            reply(error)
            return None
        return group.sync(request, reply)

    def heartbeat(
        self,
        group_id: GroupId,
        member_id: MemberId,
        generation: int,
        instance_id: str | None = None,
    ) -> None:
        """Raises unless the member is current and need not join again."""
        self._classic(group_id).heartbeat(member_id, generation, instance_id)

    def leave(
        self, group_id: GroupId, leaving: Sequence[LeavingMember]
    ) -> list[BrokerError | None]:
        """One result per name. Raises only what concerns the whole request."""
        if len(leaving) > limits.GROUP_LEAVE_MEMBERS_MAX:
            raise GroupRequestTooLarge(f"{len(leaving)} members in one request")
        try:
            group = self._classic(group_id)
        except UnknownMember as error:
            return [error.with_traceback(None)] * len(leaving)
        return group.leave(leaving)

    def _classic(self, group_id: GroupId) -> ClassicGroup | ClassicMembers:
        group = self._groups.get(group_id)
        membership = None if group is None else group.membership
        if type(membership) is ClassicGroup:
            return membership
        if type(membership) is ConsumerGroup:
            return membership.classic
        if not group_id:
            raise InvalidGroupId("a group with members needs a name")
        if membership is not None and membership.has_members:
            raise ForeignGroup(group_id, membership.owner)
        raise UnknownMember(f"group {group_id!r} has no members")

    def _classic_to_join(self, request: JoinRequest) -> ClassicGroup | ClassicMembers:
        group_id, owner = request.group_id, request.owner
        group = self._groups.get(group_id)
        if request.member_id and group is None:
            raise UnknownMember(f"group {group_id!r} has no members")
        if group is not None and group.owner == owner:
            membership = group.membership
            if type(membership) is ConsumerGroup:
                return membership.classic
        return self.claim(
            group_id,
            owner,
            ClassicGroup,
            lambda generation: ClassicGroup(group_id, owner, self._ports, generation),
        )

    # ---- Kafka's consumer groups

    def consumer_heartbeat(self, request: HeartbeatRequest, reply: Reply) -> None:
        """Join, continue in or leave a consumer group. Answers through `reply`, now or later."""
        if request.epoch > JOIN and request.is_bare and request.instance_id is None:
            # Most heartbeats only show that a member is alive, and need no checks.
            known = self.consumer_group(request.group_id)
            if known is not None:
                known.heartbeat(request, reply)
                return
        try:
            self._check_heartbeat(request)
            if request.topics is not None:
                self.take_memory(member_bytes(request))
            group = self._consumer(request)
        except BrokerError as error:
            reply(error)
            return
        group.heartbeat(request, reply)
        self._discard_if_blank(request.group_id)

    def describe_consumer(self, group_id: GroupId) -> ConsumerGroupDescription:
        """Raises `GroupNotFound`, also for a group of another kind."""
        return self._require_consumer(group_id).describe_members()

    def consumer_group(self, group_id: GroupId) -> ConsumerGroup | None:
        """None for a group of another kind, too."""
        group = self._groups.get(group_id)
        membership = None if group is None else group.membership
        return membership if type(membership) is ConsumerGroup else None

    def _require_consumer(self, group_id: GroupId) -> ConsumerGroup:
        group = self.consumer_group(group_id)
        if group is None:
            self.require(group_id)
            raise GroupNotFound(f"group {group_id!r} is not a consumer group")
        return group

    def _consumer(self, request: HeartbeatRequest) -> ConsumerGroup:
        group_id, owner = request.group_id, request.owner
        if request.epoch != JOIN:
            return self._require_consumer(group_id)
        group = self._groups.get(group_id)
        if group is not None and group.owner == owner:
            membership = group.membership
            if type(membership) is ClassicGroup:
                return self._upgrade(group, membership)
        return self.claim(
            group_id,
            owner,
            ConsumerGroup,
            lambda epoch: ConsumerGroup(group_id, owner, self._ports, epoch),
        )

    def _upgrade(self, group: Group, classic: ClassicGroup) -> ConsumerGroup:
        """Convert a classic group to a consumer group. Raises `GroupNotFound` if that is
        impossible.
        """
        ports = self._ports
        may = ports.settings.group_consumer_migration_policy in ("upgrade", "bidirectional")
        if not may or ports.dialect is None or classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise GroupNotFound(f"group {group.group_id!r} is not a consumer group")
        value = classic.snapshot()
        if len(value.members) >= ports.settings.group_consumer_max_size:
            raise GroupMaxSizeReached(f"group {group.group_id!r} has no place for more members")
        carried = read_members(value, ports.dialect, ports.catalog)
        consumer = ConsumerGroup(group.group_id, classic.owner, ports, classic.generation)
        take_in(consumer, carried)
        group.membership = consumer
        classic.stop(RebalanceInProgress(f"group {group.group_id!r} changed its protocol"))
        return consumer

    def _became_classic(self, group_id: GroupId, value: GroupValue) -> None:
        group = self._groups[group_id]
        classic = ClassicGroup.restore(group_id, value, self._ports)
        group.membership = classic
        classic.resume()
        classic.ask_all_to_join()

    def _check_heartbeat(self, request: HeartbeatRequest) -> None:
        check_heartbeat(request, self._ports.settings.group_consumer_assignors)
        if request.pattern:
            # Refused before anything changes.
            self._ports.patterns.get(request.pattern)

    # ---- records

    def load(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of the internal topic. Raises `FormatError` for one of a newer
        release.
        """
        name = decode_key(key)
        match name:
            case GroupKey():
                if value is None:
                    self._remove_membership(name.group_id)
                else:
                    self._load_membership(name.group_id, decode_group(value, name.group_id))
            case ConsumerMemberKey() | ConsumerTargetKey():
                self._member_replay.load(name, value)
            case OffsetKey() | StagedKey():
                self._load_offset(name, value)
            case _:
                assert_never(name)

    def resume(self, partition: int = 0) -> None:
        """A partition is loaded: the sessions of its groups' members begin."""
        members = self._member_replay.take(partition)
        for group_id in list(self._kept_in.get(partition, ())):
            group = self._groups.get(group_id)
            if group_id not in self._to_resume or group is None or group.membership is None:
                continue
            self._to_resume.discard(group_id)
            found = members.get(group_id)
            if isinstance(group.membership, ConsumerGroup) and found is not None:
                group.membership.restore_members(found.members, found.targets)
            group.membership.resume()

    def apply(self, records: Iterable[StateRecord]) -> None:
        """Apply prepared records that are now durable, in the order of their append."""
        for each in records:
            self.load(each.key, each.value)

    def prepare_delete(self, group_id: GroupId) -> tuple[StateRecord, ...]:
        """Records that remove an empty group and its offsets. Nothing changes until `apply`."""
        group = self.require(group_id)
        if group.owner is not None:
            raise NonEmptyGroup(f"group {group_id!r} has members")
        ledger = group.ledger
        committed = [record(OffsetKey(group_id, *name), None) for name in ledger.committed]
        staged = [
            record(StagedKey(group_id, producer_id, *name), None)
            for producer_id in ledger.producers
            for name in ledger.staged(producer_id)
        ]
        members: Iterable[StateRecord] = ()
        if isinstance(group.membership, ConsumerGroup):
            members = group.membership.left_overs()
        return (*committed, *staged, *members, record(GroupKey(group_id), None))

    def unload(self, group_id: GroupId, error: BrokerError) -> None:
        """Forget a group that another node coordinates from now on; its records stay."""
        group = self._groups.pop(group_id, None)
        if group is None:
            return
        self._to_resume.discard(group_id)
        partition = self._partition_of(group_id)
        del self._kept_in[partition][group_id]
        if not self._kept_in[partition]:
            del self._kept_in[partition]
        if group.membership is not None:
            group.membership.stop(error)

    def unload_partition(self, partition: int, error: BrokerError) -> None:
        """Forget all groups of a partition, whether they were resumed or not; see `unload`."""
        self._member_replay.take(partition)
        for group_id in list(self._kept_in.get(partition, ())):
            self.unload(group_id, error)

    def close(self) -> None:
        """The node stops: redirect the waiting requests to another node."""
        for group_id in list(self._groups):
            self.unload(group_id, CoordinatorNotAvailable("this node stops"))

    def _load_membership(self, group_id: GroupId, value: GroupValue | ConsumerGroupValue) -> None:
        if isinstance(value, GroupValue) and value.kind not in (
            ClassicGroup.kind,
            DirectGroup.kind,
        ):
            raise FormatError(f"group {group_id!r} is of kind {value.kind!r}, unknown here")
        group = self._get_or_make(group_id)
        assert group.membership is None or group_id in self._to_resume, "loading precedes service"
        if isinstance(value, GroupValue):
            is_direct = value.kind == DirectGroup.kind
            restore = DirectGroup.restore if is_direct else ClassicGroup.restore
            group.membership = restore(group_id, value, self._ports)
        else:
            group.membership = ConsumerGroup.restore(group_id, value, self._ports)
        self._to_resume.add(group_id)

    def _remove_membership(self, group_id: GroupId) -> None:
        group = self._groups.get(group_id)
        if group is None or group.membership is None:
            return
        # Members may have come since the removal was prepared. They stay, and the record of their
        # first generation will follow the tombstone.
        if group_id in self._to_resume or group.membership.is_idle:
            group.membership.stop(CoordinatorNotAvailable(f"group {group_id!r} was removed"))
            group.membership = None
            self._discard_if_blank(group_id)

    def _load_offset(self, key: OffsetKey | StagedKey, value: bytes | None) -> None:
        if value is None and key.group_id not in self._groups:
            return
        ledger = self._get_or_make(key.group_id).ledger
        partition = (key.topic, key.partition)
        offset = None if value is None else decode_offset(value, key)
        if offset is not None:
            self._last_sequence = max(self._last_sequence, offset.sequence)
        match key:
            case OffsetKey():
                if offset is None:
                    ledger.forget(partition)
                else:
                    ledger.commit(partition, offset)
            case StagedKey():
                if offset is None:
                    ledger.unstage(key.producer_id, partition)
                else:
                    ledger.stage(key.producer_id, partition, offset)
            case _:
                assert_never(key)
        if offset is None:
            self._discard_if_blank(key.group_id)

    def _discard_if_blank(self, group_id: GroupId) -> None:
        group = self._groups.get(group_id)
        if group is not None and group.is_blank:
            self.unload(group_id, CoordinatorNotAvailable(f"group {group_id!r} was removed"))


def check_group_id(group_id: str) -> None:
    """Raises `InvalidGroupId` for one that is too long."""
    bytes_max = limits.GROUP_ID_BYTES_MAX
    # No character takes more than four bytes, so short ones need no encoding to be measured.
    if len(group_id) * 4 > bytes_max and len(group_id.encode()) > bytes_max:
        raise InvalidGroupId(f"a group id has at most {bytes_max} bytes")
