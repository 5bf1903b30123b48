"""Decisions about leaders, in-sync sets and moves, as events to be committed.

Pure: each method reads the image and returns events, or raises a refusal. Only the controller runs
it. The rules (replication.md, section 4):

- A leader comes from the in-sync set or the eligible replicas, on a live node. The first replica is
  preferred. Any other leader requires `elect_unclean`, an operator's request.
- A change of the in-sync set is granted only if the requesting leader knows the newest epochs of
  the partition and every member is a node's current incarnation.
- A member that leaves while too few remain for any commit is *eligible*: it has everything
  committed, since nothing can have been committed since. It ceases to be eligible when it returns
  without its data, when its copy is damaged, or when enough replicas are in sync again.
- A node that registers again has left every in-sync set with its old incarnation.
- A move adds the new replicas, waits until they are in sync, then drops the old ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dragoman.cluster.events import (
    FIRST_LEVEL,
    LEVEL_IN_FORCE,
    Event,
    FeatureLevelChanged,
    Member,
    NodeFenced,
    NodeRegistered,
    PartitionChanged,
)
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata
from dragoman.replication.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    UnknownTopic,
)
from dragoman.replication.messages import Decision, InSyncChange, Registration


class Decisions:
    def __init__(self, image: MetadataImage, *, has_voters: bool = True) -> None:
        """`has_voters`: whether the nodes themselves are the quorum of the metadata."""
        self._image = image
        self._has_voters = has_voters

    # ---- nodes

    def is_live(self, node_id: int) -> bool:
        return node_id in self._image.nodes and node_id not in self._image.fenced

    def is_current(self, member: Member) -> bool:
        """Whether this is the node's current incarnation, and not one from before a restart."""
        return self._image.nodes.get(member.node_id) == member.incarnation

    def register(self, request: Registration) -> list[Event]:
        known = self._image.registrations.get(request.node_id)
        last = self._image.nodes.get(request.node_id, 0)
        # Only the directory is compared: a newer start may be the second one of a new disk.
        # Single-node releases did not record it.
        is_same_directory = known is not None and known.directory in ("", request.directory)
        is_new = known is None or not is_same_directory or known.life != request.life
        votes_from = known.voter_directory if known is not None else ""
        registered = NodeRegistered(
            node_id=request.node_id,
            incarnation=last + 1 if is_new else last,
            directory=request.directory,
            life=request.life,
            addresses=request.addresses,
            rack=request.rack,
            voter_directory=votes_from or request.directory,
            feature_level=request.feature_level,
        )
        events: list[Event] = []
        if is_new or request.node_id in self._image.fenced or registered != known:
            events.append(registered)
        member = Member(request.node_id, registered.incarnation)
        for partition in self._image.partitions.values():
            if request.node_id in partition.replicas:
                if is_same_directory and _is_alone(partition):
                    # No remaining node has a more complete copy.
                    continue
                draft = _Draft(self, partition, back=member)
                if is_new:
                    is_sound = partition.partition_id not in request.damaged
                    is_kept = is_same_directory and request.is_intact and is_sound
                    draft.drop(request.node_id, is_kept=is_kept)
                events += draft.finished()
        return events

    def raise_level(self) -> list[Event]:
        """Raise the cluster's level to one that all nodes support. It never goes back."""
        level = min(self._image.known_levels().values(), default=FIRST_LEVEL)
        # Before the membership is committed, older nodes may still be missing here. Without a
        # membership, nodes are those that have registered.
        is_complete = bool(self._image.voters) or not self._has_voters
        if not is_complete or level <= self._image.feature_level:
            return []
        return [FeatureLevelChanged(feature=LEVEL_IN_FORCE, level=level)]

    def fence(self, member: Member) -> list[Event]:
        """Fence a node. Its data is not lost."""
        if not self.is_current(member) or member.node_id in self._image.fenced:
            return []
        events: list[Event] = [NodeFenced(node_id=member.node_id, incarnation=member.incarnation)]
        for partition in self._image.partitions.values():
            if member.node_id in partition.replicas:
                draft = _Draft(self, partition, gone=member.node_id)
                draft.drop(member.node_id, is_kept=True)
                events += draft.finished()
        return events

    def settle(self, partitions: Iterable[PartitionMetadata]) -> list[Event]:
        """Settle partitions created while a node left or returned, whose creator did not know that.
        Absent or restarted members leave the in-sync set.
        """
        events: list[Event] = []
        for partition in partitions:
            if _is_alone(partition):
                continue
            draft = _Draft(self, partition)
            for member in partition.members:
                if not self.is_live(member.node_id):
                    # Nothing was committed without it, whatever it has.
                    draft.drop(member.node_id, is_kept=True)
            events += draft.finished()
        return events

    def hand_over(self, member: Member) -> list[Event]:
        """Move the leaderships of a stopping node to others, before it stops."""
        if not self.is_current(member):
            return []
        events: list[Event] = []
        for partition in self._image.partitions.values():
            others = [each for each in partition.in_sync if each != member.node_id]
            if member.node_id in partition.in_sync and any(map(self.is_live, others)):
                draft = _Draft(self, partition, gone=member.node_id)
                draft.drop(member.node_id, is_kept=True)
                events += draft.finished()
        return events

    # ---- requests of leaders

    def change_in_sync(self, leader: Member, change: InSyncChange) -> tuple[Decision, list[Event]]:
        partition = self._image.partitions.get(change.partition_id)
        if partition is None or not self._is_newest(partition, leader, change):
            return Decision.CONFLICT, []
        nodes = [each.node_id for each in change.in_sync]
        is_sound = (
            leader in change.in_sync
            and len(set(nodes)) == len(nodes)
            and all(node in partition.replicas and self.is_live(node) for node in nodes)
            and all(map(self.is_current, change.in_sync))
        )
        if not is_sound:
            return Decision.REFUSED, []
        draft = _Draft(self, partition)
        for member in partition.members:
            if member.node_id not in nodes:
                draft.drop(member.node_id, is_kept=self.is_current(member))
        draft.members = list(change.in_sync)
        draft.eligible = [node for node in draft.eligible if node not in nodes]
        # A change to the current state also invalidates all earlier requests.
        return Decision.ACCEPTED, draft.finished(always=True)

    def _is_newest(
        self, partition: PartitionMetadata, leader: Member, change: InSyncChange
    ) -> bool:
        """The comparison of compare-and-set."""
        return (
            partition.leader == leader.node_id
            and self.is_current(leader)
            and partition.leader_epoch == change.leader_epoch
            and partition.partition_epoch == change.partition_epoch
        )

    # ---- requests of operators

    def elect_preferred(self, partition: PartitionMetadata) -> list[Event]:
        """Elect the first replica, if it is in sync and live."""
        preferred = partition.replicas[0]
        member = Member(preferred, self._image.nodes.get(preferred, NO_LEADER))
        if partition.leader == preferred or not self.is_live(preferred):
            return []
        if member not in partition.members:
            return []
        draft = _Draft(self, partition)
        draft.leader = preferred
        return draft.finished()

    def relieve(self, node_id: int) -> list[Event]:
        """Move this node's leaderships to other nodes, as far as possible; it stays in sync."""
        events: list[Event] = []
        for partition in self._image.held_by(node_id):
            others = [n for n in partition.replicas if n in partition.in_sync and n != node_id]
            able = [each for each in others if self.is_live(each)]
            if partition.leader == node_id and able:
                draft = _Draft(self, partition)
                draft.leader = able[0]
                events += draft.finished()
        return events

    def balance(self, changes_max: int) -> list[Event]:
        """Return partitions to their preferred leaders, a bounded number at a time."""
        events: list[Event] = []
        for partition in self._image.partitions.values():
            if len(events) >= changes_max:
                break
            events += self.elect_preferred(partition)
        return events

    def reassign(self, partition_id: int, replicas: Sequence[int]) -> list[Event]:
        """Begin to move a partition to these nodes. A move to the original ones is cancelled."""
        partition = self.partition(partition_id)
        is_known = all(node in self._image.nodes for node in replicas)
        if not replicas or len(set(replicas)) != len(replicas) or not is_known:
            raise InvalidReplicaAssignment(f"{list(replicas)} is not a list of known nodes")
        if tuple(replicas) == partition.replicas and not partition.target:
            return []
        draft = _Draft(self, partition)
        if _is_alone(partition):
            # The restarts of a sole replica were not recorded.
            draft.members = [Member(partition.leader, self.incarnation(partition.leader))]
        draft.before = partition.before or partition.replicas
        draft.target = tuple(replicas)
        draft.replicas = (*replicas, *(each for each in partition.replicas if each not in replicas))
        return draft.finished()

    def cancel_move(self, partition_id: int) -> list[Event]:
        """Keep the replicas from before the move, and drop the new ones."""
        partition = self.partition(partition_id)
        if not partition.target:
            raise NoReassignmentInProgress("no replica of it is being moved")
        draft = _Draft(self, partition)
        draft.replicas = partition.before
        draft.target = draft.before = ()
        draft.keep_only(draft.replicas)
        return draft.finished()

    def finish_moves(self) -> list[Event]:
        """Complete moves whose new replicas are all in sync: drop the old replicas."""
        events: list[Event] = []
        for partition in self._image.moving.values():
            if all(node in partition.in_sync for node in partition.target):
                draft = _Draft(self, partition)
                draft.replicas = partition.target
                draft.target = draft.before = ()
                draft.keep_only(partition.target)
                events += draft.finished()
        return events

    def elect_unclean(self, partition_id: int, node_id: int) -> list[Event]:
        """Elect a replica that may lack committed records, which are then lost for good."""
        partition = self.partition(partition_id)
        if node_id not in partition.replicas or not self.is_live(node_id):
            raise InvalidReplicaAssignment(f"node {node_id} has no replica, or is not there")
        if partition.leader != NO_LEADER:
            raise ElectionNotNeeded(f"node {partition.leader} leads")
        draft = _Draft(self, partition)
        draft.leader = node_id
        draft.members = [Member(node_id, self._image.nodes[node_id])]
        draft.eligible = []
        draft.is_unclean = True
        return draft.finished()

    def partition(self, partition_id: int) -> PartitionMetadata:
        partition = self._image.partitions.get(partition_id)
        if partition is None:
            raise UnknownTopic(f"there is no partition with id {partition_id}")
        return partition

    def incarnation(self, node_id: int) -> int:
        return self._image.nodes[node_id]


def _is_alone(partition: PartitionMetadata) -> bool:
    """A new partition with a single replica, which leads."""
    return partition.replicas == (partition.leader,)


class _Draft:
    """A partition that is changed step by step; the result is one event."""

    def __init__(
        self,
        controller: Decisions,
        partition: PartitionMetadata,
        *,
        back: Member | None = None,
        gone: int = NO_LEADER,
    ) -> None:
        """`back` and `gone`: nodes whose return or loss is not in the image yet."""
        self._controller = controller
        self._partition = partition
        self._back = back
        self._gone = gone
        self.leader = partition.leader
        self.members = list(partition.members)
        self.eligible = list(partition.eligible)
        self.replicas = partition.replicas
        self.target = partition.target
        self.before = partition.before
        self.is_unclean = False
        if _is_alone(partition) and self._is_there(partition.leader):
            # While a leader is the sole replica, its incarnations are not recorded.
            self.members = [Member(partition.leader, self._incarnation(partition.leader))]
        self._drop_earlier_lives()

    def _drop_earlier_lives(self) -> None:
        """Remove members that restarted while the partition was created. Nothing was committed
        without them, whatever they have.
        """
        for member in list(self.members):
            if self._incarnation(member.node_id) != member.incarnation:
                self.drop(member.node_id, is_kept=True)

    def drop(self, node_id: int, *, is_kept: bool) -> None:
        """Remove a member from the in-sync set; `is_kept`: with all its data, so perhaps
        eligible.
        """
        was_member = any(each.node_id == node_id for each in self.members)
        self.members = [each for each in self.members if each.node_id != node_id]
        if not is_kept:
            self.eligible = [each for each in self.eligible if each != node_id]
        elif was_member and node_id not in self.eligible:
            self.eligible.append(node_id)

    def keep_only(self, nodes: Sequence[int]) -> None:
        self.members = [each for each in self.members if each.node_id in nodes]
        self.eligible = [each for each in self.eligible if each in nodes]

    def finished(self, *, always: bool = False) -> list[Event]:
        """The event, if there is any change, with a valid leader."""
        self._elect()
        partition = self._partition
        if len(self.members) >= partition.min_insync:
            self.eligible = []
        is_same = (
            self.leader == partition.leader
            and tuple(self.members) == partition.members
            and tuple(self.eligible) == partition.eligible
            and self.replicas == partition.replicas
            and self.target == partition.target
        )
        if is_same and not always:
            return []
        return [
            PartitionChanged(
                partition_id=partition.partition_id,
                leader=self.leader,
                leader_epoch=partition.leader_epoch + self._is_new_leadership(),
                partition_epoch=partition.partition_epoch + 1,
                replicas=self.replicas,
                in_sync=tuple(self.members),
                eligible=tuple(self.eligible),
                target=self.target,
                before=self.before,
                is_unclean=self.is_unclean,
            )
        ]

    def _elect(self) -> None:
        """Keep a valid leader; otherwise elect the first valid replica, or none."""
        in_sync = [each.node_id for each in self.members if self._is_there(each.node_id)]
        if self.leader in in_sync:
            return
        self.leader = NO_LEADER
        for node_id in self.replicas:
            if node_id in in_sync:
                self.leader = node_id
                return
        for node_id in self.replicas:
            if node_id in self.eligible and self._is_there(node_id):
                self.leader = node_id
                # All in-sync members are gone, and stay eligible.
                self.members = [Member(node_id, self._incarnation(node_id))]
                self.eligible.remove(node_id)
                return

    def _is_there(self, node_id: int) -> bool:
        if self._back is not None and node_id == self._back.node_id:
            return True
        return node_id != self._gone and self._controller.is_live(node_id)

    def _incarnation(self, node_id: int) -> int:
        if self._back is not None and node_id == self._back.node_id:
            return self._back.incarnation
        return self._controller.incarnation(node_id)

    def _is_new_leadership(self) -> bool:
        """Whether the leader is another node, or another incarnation of the same node."""
        if self.leader != self._partition.leader:
            return True
        before = [each for each in self._partition.members if each.node_id == self.leader]
        return before != [each for each in self.members if each.node_id == self.leader]
