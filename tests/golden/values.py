"""One value of each kind with everything in it, and one with as little as there can be.

Names are a form (`forms.py`), a tag where the form has several, and what is in it. Once encoded in
`vectors.json` a value stays as it is: a new field gets a value of its own, in a new vector.
"""

from __future__ import annotations

from typing import Any

from dragoman import errors
from dragoman.api import values as api_values
from dragoman.broker import (
    changes,
    cluster_key,
    leader_queues,
    readers,
    replica_ends,
)
from dragoman.broker import errors as refusals
from dragoman.broker.delayed import records as delayed
from dragoman.broker.delayed import state as delayed_state
from dragoman.broker.delayed import store as delayed_store
from dragoman.broker.delayed import targets as delayed_targets
from dragoman.broker.groups import coordinator as group_coordinator
from dragoman.broker.groups import offsets, remote_members
from dragoman.broker.groups import records as groups
from dragoman.broker.refusal_names import ERROR_BY_NAME
from dragoman.broker.staged_writes import destinations, publication, staging_topic
from dragoman.broker.staged_writes import service as staged_writes
from dragoman.broker.transactions import participants
from dragoman.broker.transactions import state as transactions
from dragoman.captures import control
from dragoman.captures import definition as captures
from dragoman.captures import service as capture_service
from dragoman.captures.supervisor import CaptureState
from dragoman.cdc import position as capture_position
from dragoman.cdc.snapshot.state import TableState
from dragoman.cluster import events, metadata
from dragoman.cluster.etcd import layout as etcd
from dragoman.log import manifest, node, producer
from dragoman.net import peer_frames
from dragoman.pipelines.jobs import current_rows, replay, table_updates
from dragoman.pipelines.jobs import tier_manifest as tier
from dragoman.protocols.cursus import messages as cursus_messages
from dragoman.protocols.cursus.handlers import relayed as cursus
from dragoman.protocols.cursus.handlers import state as cursus_state
from dragoman.protocols.rocketmq import bodies as rocketmq_bodies
from dragoman.protocols.rocketmq.handlers import rpc as rocketmq
from dragoman.protocols.rocketmq.handlers import topics as rocketmq_topic
from dragoman.raft import membership
from dragoman.raft import messages as raft
from dragoman.raft import snapshots as raft_snapshots
from dragoman.replication import messages as replication
from dragoman.rpc import Done, Refused
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.rules import Pattern, Permission, Rule
from dragoman.security.users import ApiToken, ScramVerifier, SealedSecret, User
from golden.forms import Frame


def _image(names: tuple[str, ...]) -> metadata.MetadataImage:
    image = metadata.MetadataImage()
    for name in names:
        image.apply(_PLAIN[f"metadata {name} full"])
    return image


_IMAGE_EVENTS = (
    "ClusterCreated",
    "NodeAdded",
    "NodeRegistered",
    "TopicCreated",
    "ProducerIdsReserved",
    "NodeConfigChanged",
    "GroupConfigChanged",
    "ClientQuotaChanged",
    "FeatureLevelChanged",
    "CaptureDefined",
    "VotersChanged",
)
_SECURITY_EVENTS = (
    "CaptureChanged",
    "UserChanged",
    "LoginSecretSet",
    "RulesChanged",
    "SecurityModeChanged",
    "ClusterKeyChanged",
)
#: Refusals that have more than a text.
_REFUSALS = (
    errors.CorruptionError("file", 1, "why"),
    errors.NotControllerError(2),
    refusals.NotLeader("why", 3),
    refusals.InvalidRecord("why", (4, 5)),
    refusals.PublishedRecordsLost(6, 7),
    refusals.ForeignGroup("group", "cursus"),
    refusals.MemberIdRequired("member"),
    refusals.NotCoordinator("why", 8),
    producer.OutOfOrderSequenceError(1, 2, 3, 4),
    producer.DuplicateSequenceError(1, 2, 3, 4),
    producer.InvalidProducerEpochError(1, 2, 3),
)
_MORE = {type(error): error for error in _REFUSALS}
CALLER = Caller(Principal("text 90", "text 91"), "text 92", is_proven=True)
_PLAIN: dict[str, Any] = {
    # ---- metadata
    "metadata ClusterCreated full": events.ClusterCreated(cluster_id="text 1"),
    "metadata ClusterCreated default": events.ClusterCreated(cluster_id=""),
    "metadata TopicCreated full": events.TopicCreated(
        name="text 1",
        topic_id=b"\x02\x00\xff",
        partitions=(
            events.PartitionPlacement(partition_id=3, replicas=(4, 5)),
            events.PartitionPlacement(partition_id=6, replicas=(7, 8)),
        ),
        config={"text 9": "text 10", "text 11": "text 12"},
        is_internal=True,
        created_ms=13,
    ),
    "metadata TopicCreated default": events.TopicCreated(name="", topic_id=b"", partitions=()),
    "metadata TopicDeleted full": events.TopicDeleted(topic_id=b"\x01\x00\xff"),
    "metadata TopicDeleted default": events.TopicDeleted(topic_id=b""),
    "metadata PartitionsAdded full": events.PartitionsAdded(
        topic_id=b"\x01\x00\xff",
        partitions=(
            events.PartitionPlacement(partition_id=2, replicas=(3, 4)),
            events.PartitionPlacement(partition_id=5, replicas=(6, 7)),
        ),
    ),
    "metadata PartitionsAdded default": events.PartitionsAdded(topic_id=b"", partitions=()),
    "metadata TopicConfigChanged full": events.TopicConfigChanged(
        topic_id=b"\x01\x00\xff", config={"text 2": "text 3", "text 4": "text 5"}
    ),
    "metadata TopicConfigChanged default": events.TopicConfigChanged(topic_id=b"", config={}),
    "metadata LeaderChanged full": events.LeaderChanged(
        partition_id=1, leader=2, leader_epoch=3, in_sync=(4, 5), partition_epoch=6
    ),
    "metadata LeaderChanged default": events.LeaderChanged(
        partition_id=0, leader=0, leader_epoch=0, in_sync=(), partition_epoch=0
    ),
    "metadata PartitionChanged full": events.PartitionChanged(
        partition_id=1,
        leader=2,
        leader_epoch=3,
        partition_epoch=4,
        replicas=(5, 6),
        in_sync=(events.Member(node_id=7, incarnation=8), events.Member(node_id=9, incarnation=10)),
        eligible=(11, 12),
        target=(13, 14),
        before=(15, 16),
        is_unclean=True,
    ),
    "metadata PartitionChanged default": events.PartitionChanged(
        partition_id=0, leader=0, leader_epoch=0, partition_epoch=0, replicas=(), in_sync=()
    ),
    "metadata ProducerIdsReserved full": events.ProducerIdsReserved(next_id=1),
    "metadata ProducerIdsReserved default": events.ProducerIdsReserved(next_id=0),
    "metadata NodeAdded full": events.NodeAdded(node_id=1, address="text 2"),
    "metadata NodeAdded default": events.NodeAdded(node_id=0, address=""),
    "metadata NodeRemoved full": events.NodeRemoved(node_id=1),
    "metadata NodeRemoved default": events.NodeRemoved(node_id=0),
    "metadata NodeRegistered full": events.NodeRegistered(
        node_id=1,
        incarnation=2,
        directory="text 3",
        life="text 4",
        addresses={"text 5": "text 6", "text 7": "text 8"},
        rack="text 9",
        voter_directory="text 10",
        feature_level=11,
    ),
    "metadata NodeRegistered default": events.NodeRegistered(node_id=0, incarnation=0),
    "metadata NodeFenced full": events.NodeFenced(node_id=1, incarnation=2),
    "metadata NodeFenced default": events.NodeFenced(node_id=0, incarnation=0),
    "metadata NodeConfigChanged full": events.NodeConfigChanged(
        config={"text 1": "text 2", "text 3": "text 4"}, node_id=5
    ),
    "metadata NodeConfigChanged default": events.NodeConfigChanged(config={}),
    "metadata GroupConfigChanged full": events.GroupConfigChanged(
        group_id="text 1", config={"text 2": "text 3", "text 4": "text 5"}
    ),
    "metadata GroupConfigChanged default": events.GroupConfigChanged(group_id="", config={}),
    "metadata ClientQuotaChanged full": events.ClientQuotaChanged(
        entity=(("text 1", "text 2"), ("text 3", "text 4")), quotas={"text 5": 6.5, "text 7": 8.5}
    ),
    "metadata ClientQuotaChanged default": events.ClientQuotaChanged(entity=()),
    "metadata FeatureLevelChanged full": events.FeatureLevelChanged(feature="text 1", level=2),
    "metadata FeatureLevelChanged default": events.FeatureLevelChanged(feature="", level=0),
    "metadata CaptureDefined full": events.CaptureDefined(
        name="text 1", definition=b"\x02\x00\xff", is_paused=True, incarnation="text 3"
    ),
    "metadata CaptureDefined default": events.CaptureDefined(name="", definition=b""),
    "metadata CaptureChanged full": events.CaptureChanged(
        name="text 1",
        definition=b"\x02\x00\xff",
        dsn=SealedSecret("text 3", b"\x04\x00\xff"),
        principal="text 5",
        user="text 7",
        is_paused=True,
        incarnation="text 8",
    ),
    "metadata CaptureChanged default": events.CaptureChanged(name="", definition=b""),
    "metadata CaptureRemoved full": events.CaptureRemoved(name="text 1"),
    "metadata CaptureRemoved default": events.CaptureRemoved(name=""),
    "metadata UserChanged full": events.UserChanged(
        user=User(
            name="text 1",
            incarnation="text 2",
            is_enabled=False,
            scram={"SCRAM-SHA-256": ScramVerifier(b"\x03\x00", 4, b"\x05\x00", b"\x06\x00")},
            signing_secret=SealedSecret("text 7", b"\x08\x00\xff"),
            tokens=(
                ApiToken("text 9", b"\x0a\x00", 11, 12, True, "text 13"),
                ApiToken("text 14", b"\x0f\x00", 16),
            ),
        )
    ),
    "metadata UserChanged default": events.UserChanged(user=User(name="", incarnation="")),
    "metadata UserRemoved full": events.UserRemoved(name="text 1"),
    "metadata UserRemoved default": events.UserRemoved(name=""),
    "metadata LoginSecretSet full": events.LoginSecretSet(secret=b"\x02\x00\xff"),
    "metadata LoginSecretSet default": events.LoginSecretSet(secret=b""),
    "metadata RulesChanged full": events.RulesChanged(
        added=(
            Rule(
                "text 1",
                "text 2",
                Operation.ALTER_CONFIGS,
                Permission.ALLOW,
                Resource.TRANSACTIONAL_ID,
                Pattern.PREFIXED,
                "text 3",
            ),
        ),
        removed=(
            Rule(
                "text 4",
                "*",
                Operation.ALL,
                Permission.DENY,
                Resource.PIPELINE,
                Pattern.LITERAL,
                "*",
            ),
        ),
    ),
    "metadata RulesChanged default": events.RulesChanged(),
    "metadata SecurityModeChanged full": events.SecurityModeChanged(mode="text 1"),
    "metadata SecurityModeChanged default": events.SecurityModeChanged(mode=""),
    "metadata ClusterKeyChanged full": events.ClusterKeyChanged(
        key_id="text 1", check=b"\x02\x00\xff"
    ),
    "metadata ClusterKeyChanged default": events.ClusterKeyChanged(key_id="", check=b""),
    "metadata TermBegan full": events.TermBegan(leader=1),
    "metadata TermBegan default": events.TermBegan(leader=0),
    "metadata VotersChanged full": events.VotersChanged(voters=(1, 2), learners=(3, 4)),
    "metadata VotersChanged default": events.VotersChanged(voters=()),
    # ---- raft
    "raft VoteRequest full": raft.VoteRequest(
        source=1, term=2, end=3, last_term=4, is_pre_vote=True, is_transfer=True
    ),
    "raft VoteRequest default": raft.VoteRequest(source=0, term=0, end=0, last_term=0),
    "raft VoteReply full": raft.VoteReply(source=1, term=2, is_granted=True, is_pre_vote=True),
    "raft VoteReply default": raft.VoteReply(source=0, term=0, is_granted=False),
    "raft AppendRequest full": raft.AppendRequest(
        source=1, term=2, previous_end=3, previous_term=4, commit=5, round=6, data=b"\x07\x00\xff"
    ),
    "raft AppendRequest default": raft.AppendRequest(
        source=0, term=0, previous_end=0, previous_term=0, commit=0, round=0
    ),
    "raft AppendReply full": raft.AppendReply(
        source=1, term=2, round=3, is_match=True, stable=4, end=5, last_term=6
    ),
    "raft AppendReply default": raft.AppendReply(source=0, term=0, round=0, is_match=False),
    "raft SnapshotRequest full": raft.SnapshotRequest(
        source=1, term=2, end=3, last_term=4, round=5, position=6, size=7, data=b"\x08\x00\xff"
    ),
    "raft SnapshotRequest default": raft.SnapshotRequest(
        source=0, term=0, end=0, last_term=0, round=0, position=0, size=0, data=b""
    ),
    "raft SnapshotReply full": raft.SnapshotReply(source=1, term=2, end=3, round=4, position=5),
    "raft SnapshotReply default": raft.SnapshotReply(source=0, term=0, end=0, round=0, position=0),
    "raft TimeoutNow full": raft.TimeoutNow(source=1, term=2),
    "raft TimeoutNow default": raft.TimeoutNow(source=0, term=0),
    # ---- raft-snapshot
    "raft-snapshot full": raft_snapshots.Snapshot(
        end=1,
        last_term=2,
        membership=membership.Membership(voters=(3, 4), learners=(5, 6)),
        state=b"\x07\x00\xff",
    ),
    "raft-snapshot default": raft_snapshots.Snapshot(
        end=0, last_term=0, membership=membership.Membership(voters=()), state=b""
    ),
    # ---- ballot
    "ballot full": node.Ballot(term=1, vote=2),
    "ballot default": node.Ballot(),
    # ---- etcd-head
    "etcd-head full": etcd.Head(entries=1, version=2),
    "etcd-head default": etcd.Head(),
    # ---- etcd-holder
    "etcd-holder full": etcd.Holder(node=1, incarnation=2),
    "etcd-holder default": etcd.Holder(node=0, incarnation=0),
    # ---- etcd-snapshot
    "etcd-snapshot full": etcd.SnapshotHead(entries=1, pieces=2, checksum=3),
    "etcd-snapshot default": etcd.SnapshotHead(entries=0, pieces=0, checksum=0),
    # ---- etcd-entry
    "etcd-entry full": etcd.Entry(
        term=1,
        proposal=2,
        events=(
            events.ClusterCreated(cluster_id="text 3"),
            events.ClusterCreated(cluster_id="text 4"),
        ),
    ),
    "etcd-entry default": etcd.Entry(term=0, proposal=0, events=()),
    # ---- hello
    "hello full": peer_frames.Hello(
        node_id=1, incarnation=2, cluster_id="text 3", directory="text 4", version=5, version_min=6
    ),
    "hello default": peer_frames.Hello(node_id=0, incarnation=0),
    # ---- proposal
    "proposal full": changes.Proposal(
        events=[
            events.ClusterCreated(cluster_id="text 1"),
            events.ClusterCreated(cluster_id="text 2"),
        ],
        version=3,
    ),
    "proposal default": changes.Proposal(events=[], version=0),
    # ---- proposal-reply
    "proposal-reply full": changes.ProposalReply(
        verdict=changes.Verdict.UNKNOWN, version=1, text="text 2"
    ),
    "proposal-reply default": changes.ProposalReply(verdict=changes.Verdict.AGREED),
    # ---- replication
    "replication FetchRequest full": replication.FetchRequest(
        follower=events.Member(node_id=1, incarnation=2),
        session=3,
        number=4,
        positions=(
            replication.Position(
                partition_id=5,
                leader_epoch=6,
                offset=7,
                last_epoch=8,
                stable_end=9,
                partition_epoch=10,
            ),
            replication.Position(
                partition_id=11,
                leader_epoch=12,
                offset=13,
                last_epoch=14,
                stable_end=15,
                partition_epoch=16,
            ),
        ),
        dropped=(17, 18),
        wait_ms=19,
        bytes_max=20,
    ),
    "replication FetchRequest default": replication.FetchRequest(
        follower=events.Member(node_id=0, incarnation=0), session=0, number=0
    ),
    "replication Progress full": replication.Progress(
        follower=events.Member(node_id=1, incarnation=2),
        session=3,
        stable_ends=((4, 5, 6), (7, 8, 9)),
    ),
    "replication Progress default": replication.Progress(
        follower=events.Member(node_id=0, incarnation=0), session=0, stable_ends=()
    ),
    "replication FetchReply full": replication.FetchReply(
        session=1,
        number=2,
        partitions=(
            replication.Fetched(
                partition_id=3,
                leader_epoch=4,
                offset=5,
                status=replication.Status.UNREADABLE,
                high_watermark=6,
                log_start_offset=7,
                size=8,
                epoch=9,
                epoch_end=10,
                last_epoch=11,
            ),
            replication.Fetched(
                partition_id=12,
                leader_epoch=13,
                offset=14,
                status=replication.Status.UNREADABLE,
                high_watermark=15,
                log_start_offset=16,
                size=17,
                epoch=18,
                epoch_end=19,
                last_epoch=20,
            ),
        ),
        checksum=21,
        is_unknown=True,
    ),
    "replication FetchReply default": replication.FetchReply(session=0, number=0),
    "replication ControlReply full": replication.ControlReply(
        outcomes=(replication.Decision.UNKNOWN, replication.Decision.UNKNOWN),
        text="text 1",
        version=2,
    ),
    "replication ControlReply default": replication.ControlReply(outcomes=()),
    "replication Registration full": replication.Registration(
        node_id=1,
        directory="text 2",
        life="text 3",
        is_intact=True,
        damaged=(4, 5),
        addresses={"text 6": "text 7", "text 8": "text 9"},
        rack="text 10",
        feature_level=11,
        feature_level_min=12,
    ),
    "replication Registration default": replication.Registration(
        node_id=0, directory="", life="", is_intact=False
    ),
    "replication InSyncChanges full": replication.InSyncChanges(
        leader=events.Member(node_id=1, incarnation=2),
        changes=(
            replication.InSyncChange(
                partition_id=3,
                leader_epoch=4,
                partition_epoch=5,
                in_sync=(
                    events.Member(node_id=6, incarnation=7),
                    events.Member(node_id=8, incarnation=9),
                ),
            ),
            replication.InSyncChange(
                partition_id=10,
                leader_epoch=11,
                partition_epoch=12,
                in_sync=(
                    events.Member(node_id=13, incarnation=14),
                    events.Member(node_id=15, incarnation=16),
                ),
            ),
        ),
    ),
    "replication InSyncChanges default": replication.InSyncChanges(
        leader=events.Member(node_id=0, incarnation=0), changes=()
    ),
    "replication Heartbeat full": replication.Heartbeat(
        member=events.Member(node_id=1, incarnation=2)
    ),
    "replication Heartbeat default": replication.Heartbeat(
        member=events.Member(node_id=0, incarnation=0)
    ),
    "replication HandOver full": replication.HandOver(
        member=events.Member(node_id=1, incarnation=2)
    ),
    "replication HandOver default": replication.HandOver(
        member=events.Member(node_id=0, incarnation=0)
    ),
    "replication ElectPreferred full": replication.ElectPreferred(partition_id=1),
    "replication ElectPreferred default": replication.ElectPreferred(partition_id=0),
    "replication ElectUnclean full": replication.ElectUnclean(partition_id=1, node_id=2),
    "replication ElectUnclean default": replication.ElectUnclean(partition_id=0, node_id=0),
    "replication Move full": replication.Move(partition_id=1, replicas=(2, 3)),
    "replication Move default": replication.Move(partition_id=0),
    "replication Relieve full": replication.Relieve(node_id=1),
    "replication Relieve default": replication.Relieve(node_id=0),
    "replication AddNode full": replication.AddNode(node_id=1, address="text 2"),
    "replication AddNode default": replication.AddNode(node_id=0, address=""),
    "replication RemoveNode full": replication.RemoveNode(node_id=1),
    "replication RemoveNode default": replication.RemoveNode(node_id=0),
    "replication TransferMetadata full": replication.TransferMetadata(node_id=1),
    "replication TransferMetadata default": replication.TransferMetadata(),
    # ---- neighbour-request
    "neighbour-request DescribeKeys full": cluster_key.DescribeKeys(),
    "neighbour-request DescribeKeys default": cluster_key.DescribeKeys(),
    "neighbour-reply HeldKeys full": cluster_key.HeldKeys(
        checks={"text 1": b"\x02\x00\xff", "text 3": b"\x04\x00\xff"}, problem="text 5"
    ),
    "neighbour-reply HeldKeys default": cluster_key.HeldKeys(),
    "neighbour-request Enrol full": participants.Enrol(
        transactional_id="text 1",
        producer_id=2,
        epoch=3,
        partitions=(("text 4", 5), ("text 6", 7)),
        groups=("text 8", "text 9"),
        is_check=True,
        order=(10, 11),
    ),
    "neighbour-request Enrol default": participants.Enrol(
        transactional_id="", producer_id=0, epoch=0
    ),
    "neighbour-request EndTransaction full": participants.EndTransaction(
        producer_id=1,
        epoch=2,
        is_commit=True,
        coordinator_epoch=3,
        partitions=(("text 4", 5), ("text 6", 7)),
        groups=("text 8", "text 9"),
        order=(10, 11),
    ),
    "neighbour-request EndTransaction default": participants.EndTransaction(
        producer_id=0, epoch=0, is_commit=False, coordinator_epoch=0
    ),
    "neighbour-request CommitOffsets full": group_coordinator.CommitOffsets(
        request=offsets.CommitRequest(
            group_id="text 1",
            offsets=(
                offsets.OffsetCommit(
                    topic="text 2", partition=3, offset=4, leader_epoch=5, metadata="text 6"
                ),
                offsets.OffsetCommit(
                    topic="text 7", partition=8, offset=9, leader_epoch=10, metadata="text 11"
                ),
            ),
            member_id="text 12",
            generation=13,
            instance_id="text 14",
            producer_id=15,
            retention_ms=16,
            takes_negative=True,
            owner="text 17",
        )
    ),
    "neighbour-request CommitOffsets default": group_coordinator.CommitOffsets(
        request=offsets.CommitRequest(group_id="", offsets=())
    ),
    "neighbour-request CommitOffsets of a caller": group_coordinator.CommitOffsets(
        request=offsets.CommitRequest(group_id="text 1", offsets=()),
        caller=CALLER,
    ),
    "neighbour-request CommittedOffsets full": group_coordinator.CommittedOffsets(
        group_id="text 1", topic="text 2"
    ),
    "neighbour-request CommittedOffsets default": group_coordinator.CommittedOffsets(
        group_id="", topic=""
    ),
    "neighbour-request JoinMember full": remote_members.JoinMember(
        group_id="text 1",
        owner="text 2",
        member_id="text 3",
        topic="text 4",
        client_host="text 5",
        session_timeout_s=6.5,
    ),
    "neighbour-request JoinMember default": remote_members.JoinMember(
        group_id="", owner="", member_id="", topic=""
    ),
    "neighbour-request JoinMember of a caller": remote_members.JoinMember(
        group_id="text 1",
        owner="text 2",
        member_id="text 3",
        topic="text 4",
        caller=CALLER,
    ),
    "neighbour-request WatchMember full": remote_members.WatchMember(
        group_id="text 1", member_id="text 2", number=3
    ),
    "neighbour-request WatchMember default": remote_members.WatchMember(
        group_id="", member_id="", number=0
    ),
    "neighbour-request HeartbeatMember full": remote_members.HeartbeatMember(
        group_id="text 1", member_id="text 2"
    ),
    "neighbour-request HeartbeatMember default": remote_members.HeartbeatMember(
        group_id="", member_id=""
    ),
    "neighbour-request LeaveMember full": remote_members.LeaveMember(
        group_id="text 1", member_id="text 2"
    ),
    "neighbour-request LeaveMember default": remote_members.LeaveMember(group_id="", member_id=""),
    "neighbour-request Append full": leader_queues.Append(
        topic="text 1", partition=2, is_leader_only=True
    ),
    "neighbour-request Append default": leader_queues.Append(topic="", partition=0),
    "neighbour-request Append of a caller": leader_queues.Append(
        topic="text 1",
        partition=2,
        caller=CALLER,
    ),
    "neighbour-request Relay full": leader_queues.Relay(protocol="text 1"),
    "neighbour-request Relay default": leader_queues.Relay(protocol=""),
    "neighbour-request ReadBatches full": readers.ReadBatches(
        topic="text 1",
        partition=2,
        offset=3,
        bytes_max=4,
        is_committed_only=False,
        wait_ms=5,
        is_from_oldest=True,
    ),
    "neighbour-request ReadBatches default": readers.ReadBatches(
        topic="", partition=0, offset=0, bytes_max=0
    ),
    "neighbour-request FindReplicaEnds full": replica_ends.FindReplicaEnds(partition_ids=(1, 2)),
    "neighbour-request FindReplicaEnds default": replica_ends.FindReplicaEnds(partition_ids=()),
    "neighbour-request Publish full": staged_writes.Publish(
        publication=publication.Publication(
            writer_id="text 1",
            query_id="text 2",
            batch_id=3,
            is_single=True,
            destinations=(
                publication.Destination(
                    topic="text 4",
                    partition=5,
                    pieces=(
                        publication.Piece(
                            partition=6, first_offset=7, next_offset=8, record_count=9, checksum=10
                        ),
                        publication.Piece(
                            partition=11,
                            first_offset=12,
                            next_offset=13,
                            record_count=14,
                            checksum=15,
                        ),
                    ),
                ),
                publication.Destination(
                    topic="text 16",
                    partition=17,
                    pieces=(
                        publication.Piece(
                            partition=18,
                            first_offset=19,
                            next_offset=20,
                            record_count=21,
                            checksum=22,
                        ),
                        publication.Piece(
                            partition=23,
                            first_offset=24,
                            next_offset=25,
                            record_count=26,
                            checksum=27,
                        ),
                    ),
                ),
            ),
        )
    ),
    "neighbour-request Publish default": staged_writes.Publish(
        publication=publication.Publication(writer_id="", query_id="", batch_id=0, destinations=())
    ),
    "neighbour-request CheckPieces full": destinations.CheckPieces(
        destination=publication.Destination(
            topic="text 1",
            partition=2,
            pieces=(
                publication.Piece(
                    partition=3, first_offset=4, next_offset=5, record_count=6, checksum=7
                ),
                publication.Piece(
                    partition=8, first_offset=9, next_offset=10, record_count=11, checksum=12
                ),
            ),
        )
    ),
    "neighbour-request CheckPieces default": destinations.CheckPieces(
        destination=publication.Destination(topic="", partition=0, pieces=())
    ),
    "neighbour-request NextSequence full": destinations.NextSequence(
        topic="text 1", partition=2, producer_id=3
    ),
    "neighbour-request NextSequence default": destinations.NextSequence(
        topic="", partition=0, producer_id=0
    ),
    "neighbour-request CopyPieces full": destinations.CopyPieces(
        target=publication.Target(
            partition_id=1,
            first_sequence=2,
            pieces=(
                publication.Piece(
                    partition=3, first_offset=4, next_offset=5, record_count=6, checksum=7
                ),
                publication.Piece(
                    partition=8, first_offset=9, next_offset=10, record_count=11, checksum=12
                ),
            ),
        ),
        producer_id=13,
    ),
    "neighbour-request CopyPieces default": destinations.CopyPieces(
        target=publication.Target(partition_id=0, first_sequence=0, pieces=()), producer_id=0
    ),
    "neighbour-request KeepStaged full": staging_topic.KeepStaged(
        partition=1, held_from=2, released=((3, 4), (5, 6))
    ),
    "neighbour-request KeepStaged default": staging_topic.KeepStaged(partition=0),
    "neighbour-request DeferRecord full": delayed_store.DelayRecord(
        topic="text 1",
        partition=2,
        when_ms=3,
        is_held=True,
        labels={"text 4": "text 5", "text 6": "text 7"},
    ),
    "neighbour-request DeferRecord default": delayed_store.DelayRecord(
        topic="", partition=0, when_ms=0
    ),
    "neighbour-request DeferRecord of a caller": delayed_store.DelayRecord(
        topic="text 1",
        partition=2,
        when_ms=3,
        caller=CALLER,
    ),
    "neighbour-request DecideDeferred full": delayed_store.DecideDelayed(
        partition_id=1, offset=2, labels={"text 3": "text 4", "text 5": "text 6"}, is_release=True
    ),
    "neighbour-request DecideDeferred default": delayed_store.DecideDelayed(
        partition_id=0, offset=0
    ),
    "neighbour-request DecideDeferred of a caller": delayed_store.DecideDelayed(
        partition_id=1,
        offset=2,
        caller=CALLER,
    ),
    "neighbour-request ReadDeferred full": delayed_store.ReadDelayed(partition_id=1, offset=2),
    "neighbour-request ReadDeferred default": delayed_store.ReadDelayed(partition_id=0, offset=0),
    "neighbour-request DeliverDeferred full": delayed_targets.DeliverDelayed(partition_id=1),
    "neighbour-request DeliverDeferred default": delayed_targets.DeliverDelayed(partition_id=0),
    "neighbour-request AskCaptures full": capture_service.DescribeCaptures(
        names=("text 1", "text 2")
    ),
    "neighbour-request AskCaptures default": capture_service.DescribeCaptures(names=()),
    "neighbour-request TellCapture full": capture_service.CommandCapture(
        name="text 1", command=control.Resume()
    ),
    "neighbour-request TellCapture default": capture_service.CommandCapture(
        name="", command=control.Resume()
    ),
    "neighbour-request RemoveCapture full": capture_service.RemoveCapture(
        name="text 1", keeps_slot=True
    ),
    "neighbour-request RemoveCapture default": capture_service.RemoveCapture(name=""),
    # ---- neighbour-reply
    "neighbour-reply Done full": Done(),
    "neighbour-reply Offsets full": group_coordinator.GroupOffsets(offsets=((1, 2), (3, 4))),
    "neighbour-reply Offsets default": group_coordinator.GroupOffsets(),
    "neighbour-reply Assigned full": remote_members.Assigned(
        partitions=(1, 2), number=3, is_evicted=True
    ),
    "neighbour-reply Assigned default": remote_members.Assigned(),
    "neighbour-reply Appended full": leader_queues.Appended(base_offset=1),
    "neighbour-reply Appended default": leader_queues.Appended(base_offset=0),
    "neighbour-reply Relayed full": leader_queues.Relayed(),
    "neighbour-reply Batches full": readers.Batches(
        high_watermark=1,
        last_stable_offset=2,
        log_start_offset=3,
        offset=4,
        aborted=((5, 6), (7, 8)),
    ),
    "neighbour-reply Batches default": readers.Batches(
        high_watermark=0, last_stable_offset=0, log_start_offset=0
    ),
    "neighbour-reply Published full": staged_writes.Published(was_before=True),
    "neighbour-reply Published default": staged_writes.Published(was_before=False),
    "neighbour-reply SequenceNumber full": destinations.SequenceNumber(number=1),
    "neighbour-reply SequenceNumber default": destinations.SequenceNumber(number=0),
    "neighbour-reply Deferred full": delayed_store.Delayed(partition_id=1, offset=2),
    "neighbour-reply Deferred default": delayed_store.Delayed(partition_id=0, offset=0),
    "neighbour-reply DeferredContent full": delayed_store.DelayedContent(
        topic="text 1", partition=2, labels={"text 3": "text 4", "text 5": "text 6"}
    ),
    "neighbour-reply DeferredContent default": delayed_store.DelayedContent(topic="", partition=0),
    "neighbour-reply ReplicaEnds full": replica_ends.ReplicaEnds(
        ends={1: {2: 3, 4: 5}, 6: {7: 8, 9: 10}}
    ),
    "neighbour-reply ReplicaEnds default": replica_ends.ReplicaEnds(),
    "neighbour-reply CaptureStates full": capture_service.CaptureStates(
        states=(
            CaptureState(
                name="text 1",
                node=2,
                status=control.Status(
                    state="waiting",
                    problem="text 3",
                    lsn="text 4",
                    lag_bytes=5,
                    lag_s=6.5,
                    retained_bytes=7,
                    rows=8,
                    transactions=9,
                    bytes=10,
                    rows_per_s=11.5,
                    tables=(
                        control.TableProgress(
                            table="text 12",
                            rows=13,
                            bytes=14,
                            rows_expected=15,
                            is_done=True,
                            seconds_left=16.5,
                        ),
                        control.TableProgress(
                            table="text 17",
                            rows=18,
                            bytes=19,
                            rows_expected=20,
                            is_done=True,
                            seconds_left=21.5,
                        ),
                    ),
                    warnings=("text 22", "text 23"),
                ),
                restarts=24,
                rows=25,
            ),
            CaptureState(
                name="text 26",
                node=27,
                status=control.Status(
                    state="waiting",
                    problem="text 28",
                    lsn="text 29",
                    lag_bytes=30,
                    lag_s=31.5,
                    retained_bytes=32,
                    rows=33,
                    transactions=34,
                    bytes=35,
                    rows_per_s=36.5,
                    tables=(
                        control.TableProgress(
                            table="text 37",
                            rows=38,
                            bytes=39,
                            rows_expected=40,
                            is_done=True,
                            seconds_left=41.5,
                        ),
                        control.TableProgress(
                            table="text 42",
                            rows=43,
                            bytes=44,
                            rows_expected=45,
                            is_done=True,
                            seconds_left=46.5,
                        ),
                    ),
                    warnings=("text 47", "text 48"),
                ),
                restarts=49,
                rows=50,
            ),
        )
    ),
    "neighbour-reply CaptureStates default": capture_service.CaptureStates(),
    "neighbour-reply Refused full": Refused(
        name="text 1", text="text 2", fields={"text 3": 4, "text 5": 6}
    ),
    "neighbour-reply Refused default": Refused(name="", text=""),
    # ---- cursus
    "cursus RelayedBatch full": cursus.RelayedBatch(
        batch=cursus_messages.Batch(
            topic="text 1",
            partition=2,
            messages=[
                cursus_messages.Message(
                    offset=3,
                    seq_num=4,
                    producer_id="text 5",
                    key=b"\x06\x00\xff",
                    epoch=7,
                    payload=b"\x08\x00\xff",
                    event_type="text 9",
                    schema_version=10,
                    aggregate_version=11,
                    metadata="text 12",
                ),
                cursus_messages.Message(
                    offset=13,
                    seq_num=14,
                    producer_id="text 15",
                    key=b"\x10\x00\xff",
                    epoch=17,
                    payload=b"\x12\x00\xff",
                    event_type="text 19",
                    schema_version=20,
                    aggregate_version=21,
                    metadata="text 22",
                ),
            ],
            acks="text 23",
            idempotent=True,
            seq_start=24,
            seq_end=25,
        ),
        is_counted=True,
    ),
    "cursus RelayedBatch default": cursus.RelayedBatch(
        batch=cursus_messages.Batch(topic="", partition=0, messages=[]), is_counted=False
    ),
    "cursus RelayedBatch of a caller": cursus.RelayedBatch(
        batch=cursus_messages.Batch(topic="text 1", partition=2, messages=[]),
        is_counted=True,
        caller=CALLER,
    ),
    "cursus StagedMessage full": cursus.StagedMessage(
        topic="text 1",
        partition=2,
        message=cursus_messages.Message(
            offset=3,
            seq_num=4,
            producer_id="text 5",
            key=b"\x06\x00\xff",
            epoch=7,
            payload=b"\x08\x00\xff",
            event_type="text 9",
            schema_version=10,
            aggregate_version=11,
            metadata="text 12",
        ),
        transactional_id="text 13",
        producer_id=14,
        epoch=15,
    ),
    "cursus StagedMessage default": cursus.StagedMessage(
        topic="",
        partition=0,
        message=cursus_messages.Message(),
        transactional_id="",
        producer_id=0,
        epoch=0,
    ),
    "cursus StagedMessage of a caller": cursus.StagedMessage(
        topic="text 1",
        partition=2,
        message=cursus_messages.Message(),
        transactional_id="text 3",
        producer_id=4,
        epoch=5,
        caller=CALLER,
    ),
    "cursus StagedOffsets full": cursus.StagedOffsets(
        command=cursus_messages.Command(
            word="text 1",
            arguments={"text 2": "text 3", "text 4": "text 5"},
            message=b"\x06\x00\xff",
            last="text 7",
            is_positional=True,
        )
    ),
    "cursus StagedOffsets default": cursus.StagedOffsets(command=cursus_messages.Command(word="")),
    "cursus StagedOffsets of a caller": cursus.StagedOffsets(
        command=cursus_messages.Command(word="text 1"),
        caller=CALLER,
    ),
    # ---- rocketmq
    "rocketmq Announce full": rocketmq.Announce(
        group="text 1",
        node=2,
        members=(
            rocketmq.Listed(
                client_id="text 3",
                node=4,
                address="text 5",
                language="text 6",
                version=7,
                data=rocketmq_bodies.ConsumerData(
                    group_name="text 8",
                    consume_type=rocketmq_bodies.ConsumeType.POP,
                    message_model=rocketmq_bodies.MessageModel.BROADCASTING,
                    consume_from_where=rocketmq_bodies.ConsumeFrom.TIMESTAMP,
                    unit_mode=True,
                    subscription_data_set=[
                        rocketmq_bodies.SubscriptionData(
                            topic="text 9",
                            sub_string="text 10",
                            tags_set=["text 11", "text 12"],
                            code_set=[13, 14],
                            sub_version=15,
                            expression_type="text 16",
                            class_filter_mode=True,
                        ),
                        rocketmq_bodies.SubscriptionData(
                            topic="text 17",
                            sub_string="text 18",
                            tags_set=["text 19", "text 20"],
                            code_set=[21, 22],
                            sub_version=23,
                            expression_type="text 24",
                            class_filter_mode=True,
                        ),
                    ],
                ),
            ),
            rocketmq.Listed(
                client_id="text 25",
                node=26,
                address="text 27",
                language="text 28",
                version=29,
                data=rocketmq_bodies.ConsumerData(
                    group_name="text 30",
                    consume_type=rocketmq_bodies.ConsumeType.POP,
                    message_model=rocketmq_bodies.MessageModel.BROADCASTING,
                    consume_from_where=rocketmq_bodies.ConsumeFrom.TIMESTAMP,
                    unit_mode=True,
                    subscription_data_set=[
                        rocketmq_bodies.SubscriptionData(
                            topic="text 31",
                            sub_string="text 32",
                            tags_set=["text 33", "text 34"],
                            code_set=[35, 36],
                            sub_version=37,
                            expression_type="text 38",
                            class_filter_mode=True,
                        ),
                        rocketmq_bodies.SubscriptionData(
                            topic="text 39",
                            sub_string="text 40",
                            tags_set=["text 41", "text 42"],
                            code_set=[43, 44],
                            sub_version=45,
                            expression_type="text 46",
                            class_filter_mode=True,
                        ),
                    ],
                ),
            ),
        ),
        number=47,
    ),
    "rocketmq Announce default": rocketmq.Announce(group="", node=0),
    "rocketmq LookUpMembers full": rocketmq.LookUpMembers(group="text 1"),
    "rocketmq LookUpMembers default": rocketmq.LookUpMembers(group=""),
    "rocketmq LockQueues full": rocketmq.LockQueues(
        group="text 1", client_id="text 2", queues=(("text 3", 4), ("text 5", 6)), is_release=True
    ),
    "rocketmq LockQueues default": rocketmq.LockQueues(group="", client_id="", queues=()),
    "rocketmq TellClient full": rocketmq.TellClient(
        group="text 1",
        code=2,
        fields={"text 3": "text 4", "text 5": "text 6"},
        body=b"\x07\x00\xff",
        client_id="text 8",
    ),
    "rocketmq TellClient default": rocketmq.TellClient(group="", code=0, fields={}),
    "rocketmq AskClient full": rocketmq.AskClient(
        group="text 1",
        client_id="text 2",
        code=3,
        fields={"text 4": "text 5", "text 6": "text 7"},
        body=b"\x08\x00\xff",
    ),
    "rocketmq AskClient default": rocketmq.AskClient(group="", client_id="", code=0, fields={}),
    "rocketmq CheckProducer full": rocketmq.CheckProducer(
        group="text 1", fields={"text 2": "text 3", "text 4": "text 5"}, body=b"\x06\x00\xff"
    ),
    "rocketmq CheckProducer default": rocketmq.CheckProducer(group="", fields={}, body=b""),
    "rocketmq ListProducers full": rocketmq.ListProducers(),
    "rocketmq ForwardReply full": rocketmq.ForwardReply(
        client_id="text 1", fields={"text 2": "text 3", "text 4": "text 5"}, body=b"\x06\x00\xff"
    ),
    "rocketmq ForwardReply default": rocketmq.ForwardReply(client_id="", fields={}, body=b""),
    "rocketmq FindOffset full": rocketmq.FindOffset(partition_id=1, timestamp=2, offset=3),
    "rocketmq FindOffset default": rocketmq.FindOffset(partition_id=0),
    "rocketmq DescribeGroups full": rocketmq.DescribeGroups(group="text 1", topic="text 2"),
    "rocketmq DescribeGroups default": rocketmq.DescribeGroups(),
    "rocketmq DeleteGroup full": rocketmq.DeleteGroup(group="text 1"),
    "rocketmq DeleteGroup default": rocketmq.DeleteGroup(group=""),
    # ---- rocketmq-listing
    "rocketmq-listing full": rocketmq.Listing(
        number=1,
        members=(
            rocketmq.Listed(
                client_id="text 2",
                node=3,
                address="text 4",
                language="text 5",
                version=6,
                data=rocketmq_bodies.ConsumerData(
                    group_name="text 7",
                    consume_type=rocketmq_bodies.ConsumeType.POP,
                    message_model=rocketmq_bodies.MessageModel.BROADCASTING,
                    consume_from_where=rocketmq_bodies.ConsumeFrom.TIMESTAMP,
                    unit_mode=True,
                    subscription_data_set=[
                        rocketmq_bodies.SubscriptionData(
                            topic="text 8",
                            sub_string="text 9",
                            tags_set=["text 10", "text 11"],
                            code_set=[12, 13],
                            sub_version=14,
                            expression_type="text 15",
                            class_filter_mode=True,
                        ),
                        rocketmq_bodies.SubscriptionData(
                            topic="text 16",
                            sub_string="text 17",
                            tags_set=["text 18", "text 19"],
                            code_set=[20, 21],
                            sub_version=22,
                            expression_type="text 23",
                            class_filter_mode=True,
                        ),
                    ],
                ),
            ),
            rocketmq.Listed(
                client_id="text 24",
                node=25,
                address="text 26",
                language="text 27",
                version=28,
                data=rocketmq_bodies.ConsumerData(
                    group_name="text 29",
                    consume_type=rocketmq_bodies.ConsumeType.POP,
                    message_model=rocketmq_bodies.MessageModel.BROADCASTING,
                    consume_from_where=rocketmq_bodies.ConsumeFrom.TIMESTAMP,
                    unit_mode=True,
                    subscription_data_set=[
                        rocketmq_bodies.SubscriptionData(
                            topic="text 30",
                            sub_string="text 31",
                            tags_set=["text 32", "text 33"],
                            code_set=[34, 35],
                            sub_version=36,
                            expression_type="text 37",
                            class_filter_mode=True,
                        ),
                        rocketmq_bodies.SubscriptionData(
                            topic="text 38",
                            sub_string="text 39",
                            tags_set=["text 40", "text 41"],
                            code_set=[42, 43],
                            sub_version=44,
                            expression_type="text 45",
                            class_filter_mode=True,
                        ),
                    ],
                ),
            ),
        ),
    ),
    "rocketmq-listing default": rocketmq.Listing(number=0),
    # ---- rocketmq-queues
    "rocketmq-queues full": rocketmq.Queues(queues=(("text 1", 2), ("text 3", 4))),
    "rocketmq-queues default": rocketmq.Queues(),
    # ---- rocketmq-number
    "rocketmq-number full": rocketmq.Number(value=1),
    "rocketmq-number default": rocketmq.Number(value=0),
    # ---- rocketmq-count
    "rocketmq-count full": rocketmq.Count(count=1),
    "rocketmq-count default": rocketmq.Count(),
    # ---- rocketmq-groups
    "rocketmq-groups full": rocketmq.GroupRows(
        rows=(
            rocketmq.GroupRow(
                group="text 1",
                owner="text 2",
                offsets={"text 3": {4: 5, 6: 7}, "text 8": {9: 10, 11: 12}},
                subscriptions=("text 13", "text 14"),
            ),
            rocketmq.GroupRow(
                group="text 15",
                owner="text 16",
                offsets={"text 17": {18: 19, 20: 21}, "text 22": {23: 24, 25: 26}},
                subscriptions=("text 27", "text 28"),
            ),
        )
    ),
    "rocketmq-groups default": rocketmq.GroupRows(),
    # ---- rocketmq-client-answer
    "rocketmq-client-answer full": rocketmq.ClientAnswer(
        code=1,
        remark="text 2",
        fields={"text 3": "text 4", "text 5": "text 6"},
        body=b"\x07\x00\xff",
    ),
    "rocketmq-client-answer default": rocketmq.ClientAnswer(code=0),
    # ---- rocketmq-producers
    "rocketmq-producers full": rocketmq.Producers(
        clients=(
            rocketmq.ProducerClient(
                group="text 1",
                client_id="text 2",
                address="text 3",
                language="text 4",
                version=5,
                seen_ms=6,
            ),
            rocketmq.ProducerClient(
                group="text 7",
                client_id="text 8",
                address="text 9",
                language="text 10",
                version=11,
                seen_ms=12,
            ),
        )
    ),
    "rocketmq-producers default": rocketmq.Producers(),
    # ---- capture-command
    "capture-command start full": control.Start(
        definition=captures.Definition(
            name="orders",
            dsn="postgresql://user:secret@host/db",
            tables=("public.orders", "sales.*"),
            channels=("text 5", "text 6"),
            outbox="text 7",
            envelope="flat",
            topics={"text 8": "text 9", "text 10": "text 11"},
            partitions=3,
            keys={"text 13": ("text 14", "text 15"), "text 16": ("text 17", "text 18")},
            include=("text 19", "text 20"),
            exclude=("text 21", "text 22"),
            mask={"public.orders.name": "stars"},
            tombstones=False,
            transactions=True,
            schema_changes=True,
            snapshot="never",
            snapshot_rows=1000,
            publication="publication_1",
            slot="slot_1",
            create=False,
            streaming=False,
            two_phase=True,
            heartbeat_s=28.5,
            wal_warn_bytes=29,
            wal_limit_bytes=30,
            wal_policy="drop",
            keep_wal_bytes=31,
        ),
        bootstrap="text 32",
        spool="text 33",
        is_paused=True,
        incarnation="text 34",
    ),
    "capture-command start default": control.Start(
        definition=captures.Definition(
            name="orders", dsn="postgresql://user:secret@host/db", tables=("public.orders",)
        ),
        bootstrap="",
        spool="",
    ),
    "capture-command start locked": control.Start(
        definition=captures.Definition(
            name="orders", dsn="postgresql://user:secret@host/db", tables=("public.orders",)
        ),
        bootstrap="text 1",
        login=control.KafkaLogin(name="text 2", password="text 3"),
        is_encrypted=True,
        authorities="text 4",
        spool="text 5",
    ),
    "capture-command pause full": control.Pause(),
    "capture-command resume full": control.Resume(),
    "capture-command rewind full": control.Rewind(id="text 1", lsn="text 2"),
    "capture-command rewind default": control.Rewind(id="", lsn=""),
    "capture-command snapshot full": control.Snapshot(id="text 1", tables=("text 2", "text 3")),
    "capture-command snapshot default": control.Snapshot(id=""),
    "capture-command stop full": control.Stop(),
    # ---- capture-report
    "capture-report status full": control.Status(
        state="waiting",
        problem="text 1",
        lsn="text 2",
        lag_bytes=3,
        lag_s=4.5,
        retained_bytes=5,
        rows=6,
        transactions=7,
        bytes=8,
        rows_per_s=9.5,
        tables=(
            control.TableProgress(
                table="text 10",
                rows=11,
                bytes=12,
                rows_expected=13,
                is_done=True,
                seconds_left=14.5,
            ),
            control.TableProgress(
                table="text 15",
                rows=16,
                bytes=17,
                rows_expected=18,
                is_done=True,
                seconds_left=19.5,
            ),
        ),
        warnings=("text 20", "text 21"),
    ),
    "capture-report status default": control.Status(state="failed"),
    "capture-report done full": control.Done(id="text 1", problem="text 2"),
    "capture-report done default": control.Done(id=""),
    # ---- capture-finding
    "capture-finding full": control.Finding(level="warning", what="text 1", remedy="text 2"),
    "capture-finding default": control.Finding(level="ok", what=""),
    # ---- capture-definition
    "capture-definition full": captures.Definition(
        name="orders",
        dsn="postgresql://user:secret@host/db",
        tables=("public.orders", "sales.*"),
        channels=("text 5", "text 6"),
        outbox="text 7",
        envelope="flat",
        topics={"text 8": "text 9", "text 10": "text 11"},
        partitions=3,
        keys={"text 13": ("text 14", "text 15"), "text 16": ("text 17", "text 18")},
        include=("text 19", "text 20"),
        exclude=("text 21", "text 22"),
        mask={"public.orders.name": "stars"},
        tombstones=False,
        transactions=True,
        schema_changes=True,
        snapshot="never",
        snapshot_rows=1000,
        publication="publication_1",
        slot="slot_1",
        create=False,
        streaming=False,
        two_phase=True,
        heartbeat_s=28.5,
        wal_warn_bytes=29,
        wal_limit_bytes=30,
        wal_policy="drop",
        keep_wal_bytes=31,
    ),
    "capture-definition default": captures.Definition(
        name="orders", dsn="postgresql://user:secret@host/db", tables=("public.orders",)
    ),
    # ---- capture-position
    "capture-position full": capture_position.Position(
        lsn=1,
        incarnation="text 2",
        system="text 3",
        slot="text 4",
        timeline=5,
        time_us=6,
        snapshot={"text 7": {"any": 8}, "text 9": {"any": 10}},
    ),
    "capture-position default": capture_position.Position(lsn=0),
    # ---- capture-table
    "capture-table full": TableState(
        oid=1,
        key=("text 2", "text 3"),
        last=("text 4", "text 5"),
        rows=6,
        bytes=7,
        is_done=True,
        is_again=True,
    ),
    "capture-table default": TableState(),
    # ---- group-key
    "group-key 1 full": groups.GroupKey(group_id="text 1"),
    "group-key 1 default": groups.GroupKey(group_id=""),
    "group-key 2 full": groups.OffsetKey(group_id="text 1", topic="text 2", partition=3),
    "group-key 2 default": groups.OffsetKey(group_id="", topic="", partition=0),
    "group-key 3 full": groups.StagedKey(
        group_id="text 1", producer_id=2, topic="text 3", partition=4
    ),
    "group-key 3 default": groups.StagedKey(group_id="", producer_id=0, topic="", partition=0),
    "group-key 4 full": groups.ConsumerMemberKey(group_id="text 1", member_id="text 2"),
    "group-key 4 default": groups.ConsumerMemberKey(group_id="", member_id=""),
    "group-key 5 full": groups.ConsumerTargetKey(group_id="text 1", member_id="text 2"),
    "group-key 5 default": groups.ConsumerTargetKey(group_id="", member_id=""),
    # ---- group-offset
    "group-offset full": groups.CommittedOffset(
        offset=1, leader_epoch=2, metadata="text 3", committed_ms=4, sequence=5, expires_ms=6
    ),
    "group-offset default": groups.CommittedOffset(
        offset=0, leader_epoch=0, metadata="", committed_ms=0, sequence=0
    ),
    # ---- group-value
    "group-value 1 full": groups.GroupValue(
        kind="text 1",
        owner="text 2",
        generation=3,
        protocol_type="text 4",
        protocol="text 5",
        leader="text 6",
        since_ms=7,
        members=(
            groups.StoredMember(
                member_id="text 8",
                instance_id="text 9",
                client_id="text 10",
                client_host="text 11",
                session_timeout_ms=12,
                rebalance_timeout_ms=13,
                protocols=(("text 14", b"\x0f\x00\xff"), ("text 16", b"\x11\x00\xff")),
                assignment=b"\x12\x00\xff",
            ),
            groups.StoredMember(
                member_id="text 19",
                instance_id="text 20",
                client_id="text 21",
                client_host="text 22",
                session_timeout_ms=23,
                rebalance_timeout_ms=24,
                protocols=(("text 25", b"\x1a\x00\xff"), ("text 27", b"\x1c\x00\xff")),
                assignment=b"\x1d\x00\xff",
            ),
        ),
    ),
    "group-value 1 default": groups.GroupValue(
        kind="",
        owner="",
        generation=0,
        protocol_type="",
        protocol="",
        leader=None,
        since_ms=0,
        members=(),
    ),
    "group-value 2 full": groups.ConsumerGroupValue(
        owner="text 1",
        origin=2,
        epoch=3,
        assignment_epoch=4,
        fingerprint=b"\x05\x00\xff",
        since_ms=6,
    ),
    "group-value 2 default": groups.ConsumerGroupValue(
        owner="", origin=0, epoch=0, assignment_epoch=0, fingerprint=b"", since_ms=0
    ),
    # ---- group-member
    "group-member full": groups.StoredConsumerMember(
        origin=1,
        instance_id="text 2",
        rack_id="text 3",
        client_id="text 4",
        client_host="text 5",
        rebalance_timeout_ms=6,
        topics=("text 7", "text 8"),
        pattern="text 9",
        assignor="text 10",
        epoch=11,
        previous_epoch=12,
        state=13,
        assigned=((b"\x0e\x00\xff", (15, 16)), (b"\x11\x00\xff", (18, 19))),
        revoking=((b"\x14\x00\xff", (21, 22)), (b"\x17\x00\xff", (24, 25))),
        classic=groups.ClassicFacts(
            session_timeout_ms=26,
            protocols=(("text 27", b"\x1c\x00\xff"), ("text 29", b"\x1e\x00\xff")),
        ),
    ),
    "group-member default": groups.StoredConsumerMember(
        origin=0,
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        rebalance_timeout_ms=0,
        topics=(),
        pattern=None,
        assignor=None,
        epoch=0,
        previous_epoch=0,
        state=0,
        assigned=(),
        revoking=(),
        classic=None,
    ),
    # ---- group-target
    "group-target full": groups.StoredTarget(
        origin=1, partitions=((b"\x02\x00\xff", (3, 4)), (b"\x05\x00\xff", (6, 7)))
    ),
    "group-target default": groups.StoredTarget(origin=0, partitions=()),
    # ---- transaction
    "transaction full": transactions.Transaction(
        transactional_id="name",
        state=transactions.TransactionState.PREPARE_ABORT,
        identity=transactions.ProducerIdentity(producer_id=2, epoch=3),
        previous=transactions.ProducerIdentity(producer_id=4, epoch=5),
        next_producer_id=6,
        timeout_ms=7,
        partitions=frozenset({("topic", 0), ("topic", 2)}),
        groups=frozenset({"text 10"}),
        started_ms=11,
        updated_ms=12,
    ),
    "transaction default": transactions.Transaction(
        transactional_id="name",
        state=transactions.TransactionState.EMPTY,
        identity=transactions.ProducerIdentity(producer_id=0, epoch=0),
        timeout_ms=0,
        updated_ms=0,
    ),
    # ---- deferred-record
    "deferred-record full": delayed.Stored(
        target_id=1,
        when_ms=2,
        is_held=True,
        labels={"text 3": "text 4", "text 5": "text 6"},
        key=b"\x07\x00\xff",
        value=b"\x08\x00\xff",
        headers=(("text 9", b"\n\x00\xff"), ("text 11", b"\x0c\x00\xff")),
    ),
    "deferred-record default": delayed.Stored(
        target_id=0, when_ms=0, is_held=False, labels={}, key=None, value=None, headers=()
    ),
    # ---- deferred-release
    "deferred-release full": delayed.Release(released_ms=1),
    "deferred-release default": delayed.Release(released_ms=0),
    # ---- deferred-batch
    "deferred-batch full": delayed_state.Batch(
        producer_id=1, first_sequence=2, decided_ms=3, offsets=(4, 5)
    ),
    "deferred-batch default": delayed_state.Batch(
        producer_id=0, first_sequence=0, decided_ms=0, offsets=()
    ),
    # ---- publication
    "publication full": publication.Writer(
        writer_id="name",
        query_id="text 2",
        producer_id=3,
        batch_id=4,
        targets=(
            publication.Target(
                partition_id=5,
                first_sequence=6,
                pieces=(
                    publication.Piece(
                        partition=7, first_offset=8, next_offset=9, record_count=10, checksum=11
                    ),
                    publication.Piece(
                        partition=12, first_offset=13, next_offset=14, record_count=15, checksum=16
                    ),
                ),
            ),
            publication.Target(
                partition_id=17,
                first_sequence=18,
                pieces=(
                    publication.Piece(
                        partition=19, first_offset=20, next_offset=21, record_count=22, checksum=23
                    ),
                    publication.Piece(
                        partition=24, first_offset=25, next_offset=26, record_count=27, checksum=28
                    ),
                ),
            ),
        ),
        is_single=True,
        updated_ms=29,
    ),
    "publication default": publication.Writer(
        writer_id="name", query_id="", producer_id=0, batch_id=0, updated_ms=0
    ),
    # ---- cursus-producer
    "cursus-producer full": cursus_state.StoredProducer(epoch=1, internal_id=2),
    "cursus-producer default": cursus_state.StoredProducer(epoch=0, internal_id=0),
    # ---- cursus-snapshot
    "cursus-snapshot full": cursus_state.StoredSnapshot(version=1, payload="text 2"),
    "cursus-snapshot default": cursus_state.StoredSnapshot(version=0, payload=""),
    # ---- rocketmq-topic
    "rocketmq-topic full": rocketmq_topic.Attributes(
        perm=1, read=2, write=3, order="text-4", filter="text-5", sys_flag=6, attributes="text-7"
    ),
    "rocketmq-topic default": rocketmq_topic.Attributes(),
    # ---- node-file
    "node-file full": node.NodeState(
        feature_level=4,
        directory_id="text 3",
        incarnation=4,
        durability=node.Durability.OS,
        is_clean=True,
        sequence=5,
        generation=6,
        ballot=node.Ballot(term=7, vote=8),
        has_lost=True,
        has_mark=True,
        damaged=(9, 10),
        etcd_cluster="text 11",
        etcd_entries=12,
    ),
    "node-file damaged places": node.NodeState(
        directory_id="text 1",
        incarnation=2,
        durability=node.Durability.FSYNC,
        is_clean=False,
        damaged=(3,),
        damaged_places=(node.DamagedPlace(partition_id=3, path="text 4", position=5),),
    ),
    "node-file default": node.NodeState(
        directory_id="", incarnation=0, durability=node.Durability.FSYNC, is_clean=False
    ),
    # ---- manifest
    "manifest full": manifest.Manifest(
        identity=manifest.Identity(partition_id=2, topic="text 3", partition=4, topic_id="text 5"),
        sequence=6,
        log_start_offset=7,
        high_watermark=8,
        last_stable_offset=9,
        log_end_offset=10,
        next_generation=11,
        epochs=((12, 13), (14, 15)),
        segments=(
            manifest.SegmentEntry(
                base_offset=16,
                next_offset=17,
                generation=18,
                size=19,
                checksum=20,
                max_timestamp=21,
                created_ms=22,
                written_ms=23,
                has_gaps=True,
                aborted=((24, 25, 26), (27, 28, 29)),
                damage=((30, 31, 32), (33, 34, 35)),
                unreadable=((36, 37, 38), (39, 40, 41)),
            ),
            manifest.SegmentEntry(
                base_offset=42,
                next_offset=43,
                generation=44,
                size=45,
                checksum=46,
                max_timestamp=47,
                created_ms=48,
                written_ms=49,
                has_gaps=True,
                aborted=((50, 51, 52), (53, 54, 55)),
                damage=((56, 57, 58), (59, 60, 61)),
                unreadable=((62, 63, 64), (65, 66, 67)),
            ),
        ),
        clean_end=manifest.SegmentEntry(
            base_offset=68,
            next_offset=69,
            generation=70,
            size=71,
            checksum=72,
            max_timestamp=73,
            created_ms=74,
            written_ms=75,
            has_gaps=True,
            aborted=((76, 77, 78), (79, 80, 81)),
            damage=((82, 83, 84), (85, 86, 87)),
            unreadable=((88, 89, 90), (91, 92, 93)),
        ),
        live_offset=94,
        has_producers=True,
        cleaned_offset=95,
        first_generation=96,
    ),
    "manifest default": manifest.Manifest(
        identity=manifest.Identity(partition_id=0, topic="", partition=0, topic_id=""),
        sequence=0,
        log_start_offset=0,
        high_watermark=0,
        last_stable_offset=0,
        log_end_offset=0,
        next_generation=0,
        epochs=(),
        segments=(),
        live_offset=0,
    ),
    # ---- pipeline-status
    "pipeline-status full": api_values.PipelineStatus(
        name="text 1",
        file="text 2",
        state="stopping",
        problem="text 3",
        pid=4,
        host="text 5",
        master="text 6",
        started_ms=7,
        updated_ms=8,
        parts=(
            api_values.PipelinePart(
                part="text 9",
                state="stopped",
                batches=10,
                rows=11,
                rows_per_s=12.5,
                lag_records=13,
                batch_id=14,
                batch_ms=15,
                state_rows=16,
                state_bytes=17,
                note="text 18",
                problem="text 19",
                at_ms=20,
            ),
            api_values.PipelinePart(
                part="text 21",
                state="stopped",
                batches=22,
                rows=23,
                rows_per_s=24.5,
                lag_records=25,
                batch_id=26,
                batch_ms=27,
                state_rows=28,
                state_bytes=29,
                note="text 30",
                problem="text 31",
                at_ms=32,
            ),
        ),
    ),
    "pipeline-status default": api_values.PipelineStatus(name="", file=""),
    # ---- tier-manifest
    "tier-manifest full": tier.Manifest(
        topic="text 2",
        topic_id="text 3",
        ranges=(
            tier.TierRange(
                partition=0,
                start=0,
                end=9,
                files=(
                    tier.TierFile(
                        path="text 7",
                        rows=8,
                        size=9,
                        first_offset=10,
                        last_offset=11,
                        first_timestamp=12,
                        last_timestamp=13,
                        content="text 14",
                    ),
                    tier.TierFile(
                        path="text 15",
                        rows=16,
                        size=17,
                        first_offset=18,
                        last_offset=19,
                        first_timestamp=20,
                        last_timestamp=21,
                        content="text 22",
                    ),
                ),
                lost=True,
            ),
            tier.TierRange(
                partition=1,
                start=0,
                end=9,
                files=(
                    tier.TierFile(
                        path="text 26",
                        rows=27,
                        size=28,
                        first_offset=29,
                        last_offset=30,
                        first_timestamp=31,
                        last_timestamp=32,
                        content="text 33",
                    ),
                    tier.TierFile(
                        path="text 34",
                        rows=35,
                        size=36,
                        first_offset=37,
                        last_offset=38,
                        first_timestamp=39,
                        last_timestamp=40,
                        content="text 41",
                    ),
                ),
                lost=True,
            ),
        ),
    ),
    "tier-manifest default": tier.Manifest(topic="", topic_id=""),
    # ---- replay-plan
    "replay-plan full": replay.Plan(
        writer_id="text 1",
        options=replay.Options(
            to="again",
            topic="orders",
            checkpoint="text 5",
            bootstrap="text 6",
            source_bootstrap="text 7",
            path="text 8",
            tier="text 9",
            starting="text 10",
            ending="text 11",
            partitions="key",
            keep_times=False,
            key="text 12",
            batch_records=13,
            source={"text 14": "text 15", "text 16": "text 17"},
            sink={"text 18": "text 19", "text 20": "text 21"},
        ),
        batches=replay.TopicBatches(
            topic_id="text 22",
            ranges={23: (24, 25), 26: (27, 28)},
            records=29,
            tiered={30: 31, 32: 33},
        ),
        done=34,
        rows=35,
    ),
    "replay-plan default": replay.Plan(
        writer_id="",
        options=replay.Options(to="again", topic="orders"),
        batches=replay.TopicBatches(topic_id="", ranges={}, records=0),
    ),
    # ---- materialized-row
    "materialized-row full": current_rows.Pending(
        columns={"text 1": (2, 3), "text 4": (5, 6)}, deleted=(7, 8)
    ),
    "materialized-row default": current_rows.Pending(columns={}),
    # ---- materialized-table
    "materialized-table full": table_updates.Made(
        job="materialize", topic="text 1", envelope="pgcdc", order="offset", history=True
    ),
    "materialized-table default": table_updates.Made(
        job="materialize", topic="", envelope="debezium", order="lsn", history=False
    ),
}

VALUES: dict[str, object] = {
    **_PLAIN,
    "image full": _image(_IMAGE_EVENTS),
    "image secured": _image(_SECURITY_EVENTS),
    "image default": metadata.MetadataImage(),
    "raft-entry events": [
        _PLAIN["metadata TopicCreated full"],
        _PLAIN["metadata TopicDeleted full"],
    ],
    "raft-entry term": [_PLAIN["metadata TermBegan full"]],
    "raft-entry membership": [_PLAIN["metadata VotersChanged full"]],
    **{
        f"frame {number}": Frame(peer_frames.Kind(number), 2, 3, b"header", b"body")
        for number in range(1, 6)
    },
    **{f"refusal {name}": _MORE.get(kind) or kind("why") for name, kind in ERROR_BY_NAME.items()},
}
