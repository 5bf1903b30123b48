"""Every fixed bound of the product: its unit in the name, its reason, and what happens at it.

Settings that an operator may change are in `dragoman.config`. This module is long on purpose: one
place for all bounds makes them easy to review together. `docs/reference/limits.md` is generated
from it, so each constant has a comment of its own.
"""

from __future__ import annotations

# ---- names, batches and records

#: Longest topic name: Kafka's limit, and one path component on every file system even after
#: escaping. Longer: refused.
TOPIC_NAME_BYTES_MAX = 249
#: Partitions of one topic; each costs memory on every node. More: refused.
TOPIC_PARTITIONS_MAX = 10_000
#: Replicas of a partition: the wire has 16 bits for the number. More: refused.
REPLICATION_FACTOR_MAX = (1 << 15) - 1
#: Size of a batch header. A batch with fewer bytes cannot hold a record: refused.
BATCH_HEADER_BYTES = 61
#: Records in one produced batch: each becomes an object where a protocol decodes it. More:
#: refused.
BATCH_RECORDS_MAX = 500_000
#: Size to which a compressed batch may expand in a node, unless its topic's `max.message.bytes` is
#: larger; expanding that much takes some 100 ms at worst. A larger batch is refused when it is
#: produced (Java's producer then splits it). One that is in the log already is delivered to Kafka
#: clients unchanged; readers of other protocols get an error.
EXPANDED_BATCH_BYTES_MAX = 32 << 20
#: Size to which a compressed batch may expand in readers outside a node: tools, clients and Spark.
#: Larger: an error.
DECOMPRESSED_BATCH_BYTES_MAX = 256 << 20
#: Bytes of expanded batches that a node caches for the next read. The least recently used go
#: first; the newest stays whatever its size.
EXPANSIONS_BYTES_MAX = 64 << 20
#: Number of expanded batches that a node caches. The least recently used go first.
EXPANSIONS_MAX = 1024
#: Records of a batch that are decoded in one piece. A batch with more is decoded piece by piece.
DECODED_AT_ONCE_RECORDS_MAX = 2000
#: Expanded size up to which a batch is decoded in one piece. A larger one is decoded in pieces of
#: `DECODED_AT_ONCE_RECORDS_MAX` records.
DECODED_AT_ONCE_BYTES_MAX = 1 << 20
#: Keys and values in one batch that the broker builds itself. Past it the batch is appended and the
#: next one begins.
GATHERED_BATCH_BYTES_MAX = 900_000

# ---- journal, segments and memory of the log

#: Unit in which the journal is written, so that a sector with acknowledged bytes is never written
#: again.
JOURNAL_BLOCK_BYTES = 4096
#: Size of the first journal file, which the first start creates; small, so that this start takes
#: milliseconds.
JOURNAL_FIRST_FILE_BYTES = 1 << 20
#: Size of every later journal file. A full file makes a checkpoint due, so this bounds recovery.
JOURNAL_FILE_BYTES = 32 << 20
#: Journal files of a node. When all of them wait for a checkpoint, appends wait for it too.
JOURNAL_FILES_MAX = 8
#: Bytes staged for one group. At the bound the group is committed before the loop turn ends.
GROUP_BYTES_MAX = 8 << 20
#: Bytes of one partition in a group from which on the smaller parts are committed first, in a
#: group of their own: writing a megabyte takes milliseconds, writing a record a fraction of one.
LARGE_PART_BYTES_MIN = 256 << 10
#: Appended bytes kept in memory for tail readers, over all partitions. The oldest go first.
TAIL_BYTES_MAX = 16 << 20
#: Bytes that are read to find the time of a record: the usual `index.interval.bytes` and a header.
OFFSET_TIME_BYTES_MAX = 4096 + 61
#: Size up to which the small batches of one commit are joined in memory, per partition. Larger
#: ones keep their own buffers.
TAIL_CHUNK_BYTES_MAX = 16 << 10
#: Journalled bytes not yet in their segments, over all partitions. At the bound they are written.
DIRTY_BYTES_MAX = 4 << 20
#: Journalled bytes of one partition not yet in its segment. At the bound they are written: one
#: large write costs less per byte than many small ones.
DIRTY_PARTITION_BYTES_MAX = 64 << 10
#: Bytes written to a segment before the kernel starts to write them back. Without this, a
#: checkpoint would find a whole journal file in the page cache and keep the disk busy for tens of
#: milliseconds, and the journal would wait.
WRITE_OUT_BYTES_MIN = 512 << 10
#: Open segment files of a node. The least recently used are closed.
OPEN_SEGMENTS_MAX = 512
#: Sparse indexes of rolled segments kept in memory. The least recently used are dropped.
CACHED_INDEXES_MAX = 64
#: Bytes read at once when a segment or a journal file is scanned.
SCAN_CHUNK_BYTES = 1 << 20
#: Average time of a synchronous write up to which the loop does it itself. Above it, the flusher
#: process does.
FAST_SYNC_S = 0.0005
#: On a slow disk, one group in this many is written on the loop, to measure whether the disk is
#: still slow.
SLOW_SYNC_PROBE_GROUPS = 32
#: Seconds between checkpoints when nothing else makes one due; bounds what a start has to replay.
CHECKPOINT_INTERVAL_S = 5.0
#: Partitions that one background job of a checkpoint syncs, so that a journal sync never waits
#: long behind it.
CHECKPOINT_FILES_PER_JOB = 8
#: Partitions waiting for a checkpoint from which on its jobs become large enough to sync the whole
#: file system.
CHECKPOINT_BULK_PARTITIONS_MIN = 256
#: Partitions in one large job of a checkpoint; the loop gathers what is written for all of them in
#: one go.
CHECKPOINT_BULK_PARTITIONS_PER_JOB = 128
#: Partitions that a checkpoint at start or stop handles at once; bounds what it holds in memory.
CHECKPOINT_PARTITIONS_AT_ONCE = 2000
#: Files in one background job from which on the whole file system is synced instead of each file.
BULK_SYNC_FILES_MIN = 48

# ---- damage of the log

#: Findings of damage kept per partition for operators to read. All are logged.
DAMAGE_REPORTS_MAX = 64
#: Ranges of unreadable offsets remembered per segment. Damage beyond them is refused whenever it
#: is read, but neither counted nor remembered over a restart.
DAMAGED_RANGES_MAX = 256
#: Damaged partitions that a node remembers to open, and so to report, at its next start. Damage of
#: further ones is reported when they are next used.
DAMAGED_PARTITIONS_MAX = 1000
#: Places where readers found damage that a node remembers at once, before manifests list it.
#: Further ones are remembered once a manifest does.
DAMAGED_PLACES_MAX = 1000
#: Ranges of damaged offsets that the status of a node lists. Further ones are only counted.
DAMAGED_RANGES_SHOWN_MAX = 100
#: Bytes in which the loop searches for the next readable batch when a reader meets damage. A
#: longer stretch of damage is found piece by piece.
DAMAGE_PROBE_BYTES_MAX = 4 << 20

# ---- retention and compaction

#: Partitions that one slice of a maintenance round examines.
MAINTENANCE_PARTITIONS_PER_SLICE = 20
#: Memory for the newest offset of each key in one round of compaction. Keys that do not fit are
#: left to the next round.
COMPACTION_KEYS_BYTES_MAX = 64 << 20
#: Memory of a key in that table besides its bytes: a bytes object, an integer, their slots in a
#: dict.
COMPACTION_KEY_OVERHEAD_BYTES = 150
#: Seconds after which compaction yields to the loop. A slice may exceed it by one record.
COMPACTION_SLICE_S = 0.0015
#: Seconds that the loop is left to other work between two slices of a compaction.
COMPACTION_PAUSE_S = 0.002
#: Output of compaction gathered before it is written to the file.
COMPACTION_WRITE_BYTES = 256 << 10

# ---- background disk work

#: Jobs submitted and not yet done. A log has one checkpoint in flight; more jobs than this are
#: refused.
BACKGROUND_JOBS_MAX = 256
#: Bytes of file contents in one job; the largest is the sparse index of one segment. More:
#: refused.
BACKGROUND_JOB_BYTES_MAX = 64 << 20
#: Bytes of file contents over all waiting jobs. More: refused.
BACKGROUND_QUEUED_BYTES_MAX = 128 << 20
#: A reply of the flusher process: an error number and a path. Longer: the process counts as
#: broken.
FLUSHER_REPLY_BYTES_MAX = 64 << 10
#: Bytes of paths in one job of the flusher: 100,000 paths of 160 bytes. More: refused.
FLUSHER_NAMES_BYTES_MAX = 16 << 20

# ---- disks in memory, and simulation

#: One path component, as on Linux file systems. Longer: ENAMETOOLONG.
FILE_NAME_BYTES_MAX = 255
#: Size of a disk in memory unless it is given one. Past it a write fails with ENOSPC, as on a full
#: disk.
MEMORY_DISK_BYTES_MAX = 1 << 30
#: Bytes that a simulated disk writes as a whole or not at all.
SIM_SECTOR_BYTES = 512
#: Size of one file of the simulated disk, so that a wrong position cannot fill memory. Past it:
#: EFBIG.
SIM_FILE_BYTES_MAX = 1 << 30
#: Disk operations kept for the report of a failure. The oldest go first.
SIM_TRACE_OPERATIONS_MAX = 200
#: Callbacks of one run of the simulated scheduler. More: an error, since the run is probably
#: endless.
SIM_STEPS_MAX = 1_000_000
#: Bytes that a simulated connection delivers to its protocol at once.
SIM_RECEIVE_BYTES_MAX = 256 << 10

# ---- producers

#: Batches remembered per producer to recognise a duplicate; Kafka clients have at most five in
#: flight.
PRODUCER_BATCHES_KEPT = 5
#: Producers remembered per partition. The longest idle is forgotten first.
PRODUCERS_PER_PARTITION_MAX = 10_000
#: Share of a full producer table that is forgotten at once (one in this many), so that a flood
#: costs little per producer.
PRODUCERS_FORGOTTEN_SHARE = 16
#: Producer changes above the high watermark kept per partition for an exact rollback. Past it the
#: oldest go, and a truncation that needs them rebuilds the state from the log.
PRODUCER_UNDO_MAX = 4096
#: Producer ids in one block that a node allocates from the cluster. A restart loses the unused
#: ones.
PRODUCER_ID_BLOCK = 1000
#: Requests waiting for a block of producer ids. More: refused, the client retries.
PRODUCER_ID_WAITERS_MAX = 10_000
#: Highest producer epoch given to a client. One more is used inside the broker, to fence it.
PRODUCER_EPOCH_MAX = 32_766

# ---- transactions

#: Aborted transactions indexed per partition, 32 bytes each. At the bound no transaction may begin
#: there until retention has moved the log start.
ABORTED_PER_PARTITION_MAX = 1 << 20
#: Transactional ids of one coordinator. At the bound an unknown id is refused.
TRANSACTIONAL_IDS_MAX = 100_000
#: A transactional id, which is the key of a record and stays in memory. Longer: refused.
TRANSACTIONAL_ID_BYTES_MAX = 1024
#: Partitions and groups in one transaction. More: refused, and the client must abort.
TRANSACTION_MEMBERS_MAX = 10_000
#: State record of one transaction; it must fit a batch of default size. Larger: the partition or
#: group is refused, and the client must abort.
TRANSACTION_RECORD_BYTES_MAX = 1_000_000
#: Implicit enrolments waiting for the current operation of one transactional id. More: refused,
#: the client retries.
TRANSACTION_ENROLMENTS_WAITING_MAX = 64
#: Writes waiting for the coordinator of their transaction on another node. More: refused.
TRANSACTION_GUARDS_MAX = 100_000
#: Seconds between attempts to complete transactions whose markers could not be written.
TRANSACTION_RETRY_INTERVAL_S = 1.0
#: Seconds between scans for unused transactional ids.
TRANSACTION_EXPIRY_INTERVAL_S = 3600.0
#: Unused transactional ids that one scan removes. The next scan removes further ones.
TRANSACTION_EXPIRIES_PER_SCAN = 1000

# ---- connections between nodes

#: A frame between nodes: the largest batch with its surroundings. Larger: the connection is
#: closed.
PEER_FRAME_BYTES_MAX = 128 << 20
#: A batch, whatever topics allow. Larger: refused, since it could not be sent to replicas.
BATCH_BYTES_MAX = PEER_FRAME_BYTES_MAX - (16 << 20)
#: Unanswered requests of one node to another. Further ones fail at once.
PEER_REQUESTS_MAX = 1024
#: Bytes that another node has not received yet. Past it messages are dropped and requests fail.
PEER_UNSENT_BYTES_MAX = 16 << 20
#: First pause before a lost connection to another node is opened again; each failure doubles it.
PEER_RETRY_MIN_S = 0.05
#: Longest pause before a lost connection to another node is opened again.
PEER_RETRY_MAX_S = 1.0
#: Seconds that bytes sent to another node may stay unacknowledged by its TCP. Then its machine
#: counts as gone or moved, and the connection is reopened; without this bound the system would wait
#: for 15 minutes.
PEER_UNACKNOWLEDGED_S = 5.0
#: Connections between nodes that have not introduced themselves yet. One more closes the oldest of
#: them.
PEER_STRANGERS_MAX = 64
#: Seconds that a connecting node has to introduce itself. Longer: closed.
PEER_HELLO_TIMEOUT_S = 10.0
#: Size of the first frame of a connecting node. Larger: closed.
PEER_HELLO_BYTES_MAX = 64 << 10
#: Size of the nonces by which nodes prove to know their secret. Another size: closed.
PEER_NONCE_BYTES = 32
#: Shortest secret that nodes prove to know. Shorter: refused, since it could be guessed.
PEER_SECRET_BYTES_MIN = 32
#: File with the secrets of the nodes. Larger: refused.
PEER_SECRET_FILE_BYTES_MAX = 4096
#: Seconds for the TLS handshake with another node. Longer: the connection is made again.
PEER_TLS_TIMEOUT_S = 5.0
#: Seconds in which a connection between nodes that settings no longer accept is replaced. Longer:
#: closed; the outcome of its unanswered requests is unknown.
PEER_REPLACEMENT_S = 0.8
#: Connections of nodes that have introduced themselves. One more is refused.
PEER_CONNECTIONS_MAX = 1024
#: Seconds for which the address of a host name is cached.
HOST_NAME_LIFETIME_S = 60.0
#: Seconds for which a failed look-up of a host name is cached.
HOST_NAME_FAILED_S = 5.0
#: Host names whose addresses are cached. The least recently used is forgotten.
HOST_NAMES_MAX = 64
#: Seconds, from its arrival on, that a client's operation waits for a leader of its partition that
#: accepts it; longer than a silent node keeps its leadership. Then: not leader.
RELAY_PATIENCE_S = 3.0
#: Seconds between attempts to pass such an operation to a leader.
RELAY_RETRY_S = 0.05

# ---- metadata and its quorum

#: Metadata changes waiting to become durable. More: refused, the client retries.
METADATA_PROPOSALS_MAX = 10_000
#: Seconds that a metadata change waits for a leader that accepts it. Then: refused, the client
#: retries.
METADATA_CHANGE_TIMEOUT_S = 10.0
#: Seconds that a node searches for its cluster before it logs that it has not found one.
JOIN_PATIENCE_S = 5.0
#: Seconds that an operator's request waits for a leader of the metadata. Then: an error.
CONTROLLER_PATIENCE_S = 3.0
#: Seconds between attempts to reach the leader of the metadata for such a request.
CONTROLLER_RETRY_S = 0.05
#: Requests waiting for the controller, over all nodes. Further ones get no answer; their node
#: retries.
CONTROL_REQUESTS_MAX = 10_000
#: Moves and elections of one partition each that the controller decides in one round of the
#: quorum. More: in the next round. Nodes open replicas in the loop turn that applies a round; with
#: more of them it would delay heartbeats.
CONTROL_DECISIONS_MAX = 25
#: Partitions that the controller returns to their preferred leaders in one round.
BALANCED_AT_ONCE_MAX = 100
#: One message between voters of the metadata quorum. Longer: dropped as malformed.
RAFT_MESSAGE_BYTES_MAX = 8 << 20
#: Batches in one Raft message. A batch that is larger is sent alone.
RAFT_APPEND_BYTES_MAX = 1 << 20
#: Events of one proposal. More: refused.
RAFT_PROPOSAL_BYTES_MAX = 4 << 20
#: Piece of a metadata snapshot in one Raft message.
RAFT_SNAPSHOT_PIECE_BYTES = 256 << 10
#: A snapshot of the metadata, gathered in memory while it is received. Larger: neither written nor
#: accepted.
RAFT_SNAPSHOT_BYTES_MAX = 256 << 20
#: Reads waiting for a majority of voters to confirm the leader. More: refused, to be retried.
RAFT_READS_MAX = 10_000
#: Events of one proposal to etcd, whose own limit for a request is 1.5 MiB. More: refused.
ETCD_PROPOSAL_BYTES_MAX = 1 << 20
#: Proposals in one transaction of etcd, whose own limit is 128 operations. More wait for the next.
ETCD_TRANSACTION_ENTRIES_MAX = 100
#: Entries read from etcd at once, so that a page of the largest ones stays within
#: `ETCD_ANSWER_BYTES_MAX`.
ETCD_PAGE_ENTRIES = 32
#: Piece of a metadata snapshot in etcd.
ETCD_PIECE_BYTES = 512 << 10
#: A response of etcd, or one line of a watch. Larger: the connection is closed, and the missed
#: entries are read in pages.
ETCD_ANSWER_BYTES_MAX = 64 << 20
#: Seconds that a stopping node waits for etcd to revoke its lease. Longer: the lease expires by
#: itself.
ETCD_CLOSE_GRACE_S = 1.0
#: Seconds that the TLS handshake with a member of etcd may take in addition to the connection.
#: Longer: the next member is used.
ETCD_TLS_TIMEOUT_S = 2.0
#: Connections to etcd at a time, besides the watch. Further requests wait for one.
ETCD_CONNECTIONS_MAX = 8

# ---- descriptors and the event loop

#: Descriptors that a node requests from the system, for files of the log and connections.
OPEN_FILES_MAX = 1 << 20
#: Descriptors that the log reserves, to open files when clients use all others.
SPARE_FILES = 32
#: Descriptors that client connections leave free; an eighth of all if that is more. A connection
#: that would take one of them is closed at once.
DESCRIPTORS_LEFT_BY_CLIENTS = 64
#: Descriptors that HTTP connections leave free. A connection that would take one of them replaces
#: an idle HTTP connection; without one, it is closed at once.
DESCRIPTORS_LEFT_BY_HTTP = 32
#: Descriptors that connections of other nodes leave free. A connection that would take one of them
#: replaces one that has not introduced itself; without one, it is closed at once.
DESCRIPTORS_LEFT_BY_NODES = 16
#: Items of a few microseconds each that all long requests of a node process in one loop turn. The
#: rest waits for the next turn.
WORK_ITEMS_PER_TURN = 1000
#: Items that one such request processes before it yields to the next.
WORK_ITEMS_PER_QUANTUM = 250

# ---- produce and fetch

#: Produce requests per partition whose records are not yet stable. More: refused, to be retried.
ACKS_WAITING_MAX = 100_000
#: Seconds that a producer waits for its records to be committed. Then: an error that leaves the
#: outcome unknown.
ACKS_PATIENCE_S = 30.0
#: Refusals of a partition that wait until its node has confirmed that it is the leader. Past it
#: the oldest is forgotten, and checked again when the client retries.
DOUBTS_MAX = 1000
#: Parked fetches per partition. Further ones are answered at once with the data at hand.
FETCHES_PARKED_MAX = 20_000
#: Partitions in one fetch session, some 500 bytes each. More: the client continues without a
#: session.
FETCH_SESSION_PARTITIONS_MAX = 10_000
#: Partitions in all fetch sessions of a node. More: the client continues without a session.
FETCH_SESSIONS_PARTITIONS_MAX = 100_000
#: Seconds without use after which a fetch session may be dropped for another. Kafka's value.
FETCH_SESSION_IDLE_S = 120.0
#: Seconds until a reader retries when too many are parked on the same partition.
TAIL_PARKING_PAUSE_S = 0.1

# ---- internal topics

#: Records of an internal topic that are applied per loop turn while it is loaded.
INTERNAL_RECORDS_PER_SLICE = 500
#: Seconds until a failed load of an internal topic is retried.
INTERNAL_LOAD_RETRY_S = 1.0
#: Bytes of a topic that every node follows, applied in one slice. The next slice comes a loop turn
#: later.
FOLLOWED_READ_BYTES_MAX = 1 << 20
#: Attempts to learn the end of a followed topic from its leader. Then: the waiting requests are
#: refused.
FOLLOWED_TRIES_MAX = 50
#: Seconds between these attempts to learn the end of a followed topic.
FOLLOWED_RETRY_S = 0.1
#: Bytes that a reader requests at once from the leader of a partition without a local replica.
FAR_READ_BYTES_MAX = 262_144
#: Milliseconds that the leader may park the request of a remote reader.
FAR_READ_WAIT_MS = 5_000
#: Seconds until a remote reader retries when no leader is known.
FAR_READ_RETRY_S = 0.2

# ---- groups

#: A group id, which is the key of records that stay for days; Kafka's wire would carry 32 kB.
#: Longer: refused.
GROUP_ID_BYTES_MAX = 1024
#: A member id: a client's id and a UUID. Longer: refused.
MEMBER_ID_BYTES_MAX = 2048
#: The name of a static member. Longer: refused.
INSTANCE_ID_BYTES_MAX = 1024
#: Metadata and assignments of members, metadata of offsets, and ids, over all groups of a node. A
#: request that would add more is refused.
GROUPS_BYTES_MAX = 128 << 20
#: Memory of a group besides its id.
GROUP_OVERHEAD_BYTES = 256
#: Seconds between two measurements of the memory of all groups.
GROUPS_MEASURE_INTERVAL_S = 1.0
#: Groups that one node coordinates. A join or commit that would create one more is refused.
GROUPS_MAX = 200_000
#: Members of one group, whatever `group.max.size` says. One more is refused.
GROUP_MEMBERS_MAX = 100_000
#: Members of one group that were given an id and have not used it yet. One more is refused.
GROUP_PENDING_MEMBERS_MAX = 10_000
#: Names and metadata that one member may send. More: its join is refused.
MEMBER_BYTES_MAX = 1 << 20
#: Protocols that one member may propose; clients propose one to four. More: its join is refused.
MEMBER_PROTOCOLS_MAX = 64
#: Names and metadata of all members of a group, which the leader receives in one response. More:
#: the join is refused.
GROUP_MEMBERS_BYTES_MAX = 64 << 20
#: Assignments of one generation, which are stored in one record. More: the leader's sync is
#: refused.
GROUP_ASSIGNMENT_BYTES_MAX = 64 << 20
#: Members that one leave request may name. More: refused.
GROUP_LEAVE_MEMBERS_MAX = 100_000
#: Milliseconds that the join of a new member may wait. Longer: the member is dropped, since its
#: connection may be half-open and its client has no member id for heartbeats yet. Kafka's value.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
#: Milliseconds that members have at least for their sync, however short their rebalance time-out:
#: the join response has to arrive first. Later: dropped, as after the time-out.
GROUP_SYNC_TIMEOUT_MS_MIN = 5_000
#: Offsets, committed and pending, of one group. A commit that would add more is refused.
GROUP_OFFSETS_MAX = 200_000
#: Seconds between checks whether the groups have been loaded after a start.
GROUPS_LOADING_PAUSE_S = 0.02
#: Seconds until a member rejoins while its group moves between two coordinators.
MEMBER_JOIN_RETRY_S = 0.1
#: Seconds until a watch for a new assignment of a remote member is answered without one.
REMOTE_MEMBER_WATCH_S = 5.0
#: Seconds without a watch after which a remote member is removed from its group.
REMOTE_MEMBER_LEASE_S = 15.0

# ---- consumer groups (KIP-848)

#: A pattern for topic names. Longer: the heartbeat is refused.
TOPIC_PATTERN_BYTES_MAX = 10_000
#: Memory of one compiled pattern. A pattern that needs more is refused as invalid.
PATTERN_MEMORY_BYTES_MAX = 1 << 20
#: Compiled patterns that are cached with the names they match, over all groups. The least recently
#: used go first.
TOPIC_PATTERNS_CACHED = 256
#: Partitions that one member may report as owned in a heartbeat. More: refused.
MEMBER_OWNED_PARTITIONS_MAX = 1_000_000

# ---- staged writes

#: Partitions of the topic in which records are staged. Attempts are distributed over them in turn.
STAGING_PARTITIONS = 8
#: A segment of the staging topic. Published records leave the disk by whole segments.
STAGING_SEGMENT_BYTES = 16 << 20
#: Age in seconds at which staged records are dropped unpublished: longer than a batch may take
#: from its first record to its end. A later publication is refused.
STAGING_AGE_MAX_S = 86_400.0
#: Steps in which the age of staged records is measured.
STAGING_AGE_MARKS = 48
#: Milliseconds without writes after which an attempt is forgotten as a producer, at the next such
#: step. A batch that it then retries is staged twice and published once.
STAGING_PRODUCER_IDLE_MS_MAX = 600_000
#: Published pieces per staging partition that wait for older ones. Past it, all of them wait for
#: their age.
STAGING_RELEASED_MAX = 100_000
#: Seconds between scans for staged records that can be deleted.
STAGING_SWEEP_INTERVAL_S = 1.0
#: Seconds for which another node's claim on staged records holds. Every sweep renews it.
STAGING_HOLD_LEASE_S = 600.0
#: Staged bytes that are checked, or copied and made durable, before other work may run; as many as
#: one connection may receive in a turn.
PUBLISH_SLICE_BYTES = 1 << 20
#: A writer's id or that of its query, which are keys of records and stay in memory. Longer:
#: refused.
WRITER_ID_BYTES_MAX = 1024
#: Writers that are remembered. One more is refused.
WRITERS_MAX = 100_000
#: Pieces of one publication; the decision about it is one record of some 25 bytes per piece. More:
#: refused, and the batch has to be split.
PUBLICATION_PIECES_MAX = 100_000
#: Publications that wait for the current one of the same writer. More: refused as retryable.
PUBLICATIONS_WAITING_MAX = 64
#: Seconds between attempts to complete publications that were decided and not completed.
PUBLICATION_RETRY_INTERVAL_S = 1.0
#: Seconds between scans for writers that can be forgotten.
WRITER_EXPIRY_INTERVAL_S = 600.0
#: Writers that one such scan forgets. The next scan takes further ones.
WRITER_EXPIRIES_PER_SCAN = 1000
#: Milliseconds after which a writer of a single batch is forgotten: its client has stopped
#: retrying long before.
SINGLE_WRITER_IDLE_MS_MAX = 3_600_000
#: Milliseconds without a batch after which any other writer is forgotten: 90 days. A query that
#: resumes later and repeats its last batch writes it twice.
WRITER_IDLE_MS_MAX = 90 * 86_400_000

# ---- delayed records

#: Partitions of the topic in which delayed records wait. All records for one partition wait in the
#: same one.
DELAYED_PARTITIONS = 8
#: Delayed records of a node; each takes some 200 bytes of memory. One more is refused.
DELAYED_RECORDS_MAX = 1_000_000
#: Names and values of all labels of a delayed record. More: refused.
DELAYED_LABELS_BYTES_MAX = 4096
#: Delayed records delivered to a partition as one batch, which also ends at
#: `GATHERED_BATCH_BYTES_MAX`. Further ones follow in the next batch.
DELAYED_BATCH_RECORDS_MAX = 1000
#: Batches in delivery to the partitions of one node, held in memory. Further ones wait.
DELAYED_DELIVERIES_MAX = 32
#: Delayed records that are found due, checked or dropped in one loop turn.
DELAYED_RECORDS_PER_SLICE = 500
#: Seconds until a failed delivery is retried.
DELAYED_RETRY_S = 1.0
#: Longest wait in seconds for the next delayed record: the wall clock may be set forwards.
DELAYED_LOOK_S_MAX = 60.0
#: Decisions remembered so that a retry gets the same answer. The oldest go first.
DELAYED_DECISIONS_KEPT = 10_000

# ---- administration

#: Changes of one topic's or node's configuration, or appends to one event stream, that wait for
#: the current one. More: refused.
CONFIG_CHANGES_WAITING_MAX = 1000
#: Overrides of one resource in one request; there are fewer keys. More: refused.
CONFIG_KEYS_PER_REQUEST_MAX = 1000
#: Keys without effect that are stored for one node, or for all nodes, because Kafka clients set
#: them; Kafka has some two hundred of its own. More: refused.
INERT_CONFIG_KEYS_MAX = 256
#: Names and values of all keys without effect, which all nodes hold in memory. More: refused.
INERT_CONFIG_BYTES_MAX = 64 << 10
#: Typed topic configurations that are cached; topics with equal overrides share one. The least
#: recently used is built again when it is needed.
TOPIC_CONFIGS_CACHED = 4096
#: Groups with a configuration of their own, which stays in memory. One more is refused.
GROUP_CONFIGS_MAX = 100_000
#: Entities with quotas, which stay in memory on every node. One more is refused.
CLIENT_QUOTA_ENTITIES_MAX = 100_000
#: The name of a user or client in a quota. Longer: refused.
QUOTA_NAME_BYTES_MAX = 1024
#: Length of a sample of a rate that a quota limits.
QUOTA_SAMPLE_S = 1.0
#: Samples of such a rate. Older ones are forgotten.
QUOTA_SAMPLES = 11
#: Clients whose use of quotas is counted on a node. Of the least recent ones, the one with the
#: least use is forgotten.
QUOTA_RATES_MAX = 10_000
#: The most recent of these that are looked at to show who is throttled, and as many for partitions.
QUOTA_USES_MAX = 500
#: Oldest entries of a full table of clients of which one is removed.
EVICTION_CANDIDATES_MAX = 16
#: Longest throttling of a client that uses too much of the loop's time. Longer ones are cut.
REQUEST_THROTTLE_S_MAX = 1.0
#: Partitions described in one response, whatever the client requests. Further ones follow by
#: cursor.
DESCRIBED_PARTITIONS_MAX = 2000
#: Partitions opened per loop turn while the sizes of all partitions are collected.
LOG_SIZES_PER_SLICE = 50
#: A pattern for transactional ids. Longer: refused before it is compiled.
ID_PATTERN_BYTES_MAX = 1024

# ---- access

#: Decisions that an authorizer keeps. With one more, all are forgotten and decided again when asked
#: again.
ACCESS_DECISIONS_KEPT_MAX = 16_384
#: Characters of a resource's name in a decision that is kept: clients choose the names of groups.
#: Decisions about longer names are made each time.
ACCESS_NAME_KEPT_CHARS_MAX = 255
#: Access rules, which stay in memory on every node. One more is refused.
ACCESS_RULES_MAX = 100_000
#: Access rules that one request adds, and filters by which one removes rules, as in Kafka. More:
#: refused.
ACCESS_RULES_PER_REQUEST_MAX = 10_000
#: Access rules in one change of the metadata. More: in further changes, one after the other.
ACCESS_RULES_PER_CHANGE = 1_000
#: Characters of access rules in one change of the metadata, which leaves room in the smallest
#: proposal of a quorum. More: in further changes.
ACCESS_RULES_CHARS_PER_CHANGE = 128 << 10
#: File with the first users and rules of a cluster. Larger: refused.
BOOTSTRAP_FILE_BYTES_MAX = 256 << 10
#: Users in that file, for each of which two verifiers are computed. More: refused.
BOOTSTRAP_USERS_MAX = 100
#: Bytes of a principal, a host or the name of a resource in an access rule. Longer: refused.
ACCESS_RULE_TEXT_BYTES_MAX = 1024
#: Lines of the audit log about one act of administration, such as the rules that one request adds.
#: Further ones are counted in one more line.
ADMINISTRATION_DETAILS_MAX = 100
#: Users, which stay in memory on every node. One more is refused.
USERS_MAX = 100_000
#: Users in one change of the metadata. More: in further changes, one after the other.
USERS_PER_CHANGE = 100
#: Bytes of a user's name. Longer: refused.
USER_NAME_BYTES_MAX = 255
#: API tokens of one user. One more is refused.
TOKENS_PER_USER_MAX = 100
#: Bytes of the description of an API token. Longer: refused.
TOKEN_LABEL_BYTES_MAX = 255
#: Milliseconds for which an API token may be made: ten years. Longer: refused.
TOKEN_LIFETIME_MS_MAX = 315_360_000_000
#: Random bytes of an API token.
TOKEN_BYTES = 32
#: Bytes of a signing secret. Longer: refused.
SIGNING_SECRET_BYTES_MAX = 1024
#: Bytes of the salt and of the keys of a SCRAM verifier. Longer: refused.
SCRAM_BYTES_MAX = 1024

# ---- configuration and logs

#: A configuration file, which has a page or two; a larger one is probably a wrong path. Larger:
#: refused before it is read.
CONFIG_FILE_BYTES_MAX = 1 << 20
#: Memory budget of a node: less could not hold one ordinary produce request and its response.
#: Smaller: refused.
MEMORY_BUDGET_BYTES_MIN = 1 << 20
#: Seconds between two samples of the history.
HISTORY_FINE_S = 15
#: Samples of 15 s that the history keeps: an hour. The oldest are dropped.
HISTORY_FINE_ROWS = 240
#: Seconds that a coarse sample of the history combines.
HISTORY_COARSE_S = 300
#: Samples of 5 min that the history keeps: a week. The oldest are dropped.
HISTORY_COARSE_ROWS = 2016
#: Series of the history about what clients write to topics and read from them; one takes 9 KiB.
#: Topics beyond it share series.
HISTORY_TOPIC_TRAFFIC_SERIES_MAX = 2000
#: Series of the history about the sizes of topics. Topics beyond it share one.
HISTORY_TOPIC_SIZE_SERIES_MAX = 490
#: Series of the history about groups; a group has two. Groups beyond it share two.
HISTORY_GROUP_SERIES_MAX = 490
#: Series of the history about the node, its connections, captures and pipelines. Others share one
#: for each figure.
HISTORY_NODE_SERIES_MAX = 360
#: Seconds from a node's start until its history is read back and begins to be written.
HISTORY_DELAY_S = 2.0
#: Seconds that the history works in one loop turn before it pauses.
HISTORY_TURN_S = 0.0005
#: Seconds that it pauses, so that it takes a small share of the loop's time.
HISTORY_PAUSE_S = 0.005
#: Rows of one file of the history. With one more, the next file begins.
HISTORY_FILE_ROWS_MAX = 96
#: Files of the history for each step. With one more, the oldest is removed, whatever it has.
HISTORY_FILES_MAX = 48
#: Bytes of a file of the history that are read; a node writes no larger one.
HISTORY_FILE_BYTES_MAX = 16 << 20
#: Bytes of a record in such a file. A larger one is damage.
HISTORY_RECORD_BYTES_MAX = 64 << 10
#: Points of one series in one answer. More: refused.
HISTORY_POINTS_MAX = 2100
#: Values of one answer about the history, of all series and nodes. More: refused.
HISTORY_VALUES_MAX = 100_000
#: Series of one metric, so that a scrape stays small whatever clients call themselves. Further
#: ones are combined in one series, and counted.
METRIC_SERIES_MAX = 2000
#: Flows of topics that are counted: a topic has one by direction and protocol. Topics beyond it are
#: counted together.
TOPIC_FLOWS_MAX = 1900
#: Characters of a label: a topic of Kafka may have so many. Series with a longer one are combined
#: in one series, and counted.
METRIC_LABEL_CHARS_MAX = 249
#: Seconds between two measurements of the loop's lag, while clients send and otherwise.
LOOP_LAG_BUSY_S = 0.5
LOOP_LAG_IDLE_S = 5.0
#: Codes of errors that are counted for one request; a protocol has a fixed number of them. Further
#: ones are counted as `unknown`.
REQUEST_ERROR_CODES_MAX = 100
#: Samples that a scrape writes in one turn of the loop, two tenths of a millisecond. Further ones
#: follow in later turns.
METRIC_SAMPLES_PER_TURN = 1000
#: Log lines of one kind that peers can cause, in one interval. Further ones are counted, and
#: logged as one line at its end.
LIMITED_LOG_LINES_MAX = 10
#: Seconds of the interval in which log lines that peers can cause are counted.
LIMITED_LOG_INTERVAL_S = 10.0
#: Lines at the level debug, of all kinds, in one interval. Further ones are left out, and counted
#: in a field of the next line. Writing as many takes a few percent of the time.
DEBUG_LOG_LINES_MAX = 5_000
#: Characters of a name that a client gave itself, in a line of the log.
LOGGED_NAME_CHARS_MAX = 200
#: Parts of a Kafka response that are searched for an error to log.
KAFKA_FAILURE_NODES_MAX = 1_000
#: Characters of an id that an HTTP client gives its request. A longer one is replaced.
REQUEST_ID_CHARS_MAX = 64
#: In-sync sets that changed in one loop turn and get a line each; more are counted in one line.
PARTITION_LOG_LINES_MAX = 5
#: Seconds of a sync that is logged as slow. Most clients wait for a sync, and many give up on a
#: request after some seconds.
SLOW_SYNC_S = 1.0
#: Free bytes of the disk below which `/readyz` warns: journal and segments need room before
#: retention makes any.
DISK_WARNING_BYTES = 512 << 20
#: Seconds after a slow sync during which `/readyz` warns.
SLOW_SYNC_MEMORY_S = 60.0
#: Seconds without an answer from the controller after which `/readyz` warns.
QUORUM_CONTACT_WARNING_S = 10.0
#: Share of the descriptors in use above which `/readyz` warns.
DESCRIPTORS_WARNING_SHARE = 0.9
#: Seconds before the end of a certificate during which `/readyz` warns.
CERTIFICATE_WARNING_S = 14 * 86_400.0
#: Seconds by which the clock may jump before `/readyz` warns: timestamps, logins and certificates
#: depend on it.
CLOCK_JUMP_S = 5.0
#: Limit of open files below which `dragoman doctor` warns: each client needs one.
DOCTOR_DESCRIPTORS_MIN = 4096
#: Files of a data directory whose owner and time `dragoman doctor` looks at.
DOCTOR_FILES_MAX = 100_000
#: Damaged places that `dragoman doctor` lists.
DOCTOR_FINDINGS_MAX = 20
#: Seconds in which `dragoman doctor` has to reach an advertised address.
DOCTOR_CONNECT_S = 3.0
#: Share of the files of a volume that should be free to create.
SHARE_OF_FREE_FILES_MIN = 0.02
#: Seconds of reading back a partition of groups or transactions, which refuses requests meanwhile,
#: from which on the log has a line.
SLOW_LOAD_S = 1.0
#: Characters of one line in a node's own log. The rest is cut off.
LOG_LINE_CHARS_MAX = 16 << 10

# ---- the network

#: Characters of a text from a client by which a result is cached. Results of longer ones are
#: computed each time.
CACHED_TEXT_CHARACTERS_MAX = 512
#: Bytes received at once on all TLS connections together; each read is decrypted, or copied, before
#: the next.
TLS_READ_BYTES = 64 << 10
#: Received bytes passed to OpenSSL at once: about a record, because OpenSSL's buffer for them keeps
#: its size as long as the connection.
TLS_PIECE_BYTES_MAX = 16 << 10
#: Bytes that a client may send before its TLS handshake is complete, its certificates included.
#: Past it, the connection is closed.
TLS_HANDSHAKE_BYTES_MAX = 64 << 10
#: Memory that a TLS handshake in progress is counted with; 46 KB were measured.
TLS_HANDSHAKE_MEMORY_BYTES = 48 << 10
#: TLS handshakes in progress may hold one part in this many of the memory budget. Past it, the one
#: that has waited longest for its client is cut off.
TLS_HANDSHAKES_BUDGET_SHARE = 4
#: Steps of TLS handshakes in one loop turn, half a millisecond each. Others wait for the next turn.
TLS_HANDSHAKE_STEPS_PER_TURN = 4
#: Seconds for a TLS handshake. Past it, the connection is closed.
TLS_HANDSHAKE_S_MAX = 10.0
#: Seconds between checks whether files of certificates have changed.
TLS_FILES_CHECK_INTERVAL_S = 5.0
#: Size of a file of certificates. A larger one is refused.
TLS_FILE_BYTES_MAX = 1 << 20
#: Connections in the backlog of a listening socket.
LISTEN_BACKLOG = 1024
#: The receive buffer that all connections share. A frame that does not fit gets a buffer of its
#: own.
SCRATCH_BYTES = 64 << 10
#: Least memory by which the buffer of an incomplete frame grows. It grows by as much as has
#: arrived, and by three times as much for a large frame: an announced size alone allocates
#: nothing, and a large frame is not copied repeatedly.
FRAME_GROWTH_BYTES_MIN = 4 << 10
#: Most memory by which the buffer of an incomplete frame grows at once.
FRAME_GROWTH_BYTES_MAX = 1 << 20
#: Received bytes from which on an incomplete frame counts as large: nearly a whole receive buffer.
LARGE_FRAME_BYTES_MIN = 60 << 10
#: Bytes given to a connection that its peer has not received yet. Past it, its requests wait.
SEND_BUFFER_BYTES_MAX = 1 << 20
#: Bytes that one connection may receive in one loop turn. Past it, it yields to the others. This
#: bounds how much one group commit writes, and with it how long a small durable write waits.
READ_PER_TURN_BYTES_MAX = 512 << 10
#: Bytes read at once from a connection that waits for memory, before reading pauses.
SHORT_READ_BYTES_MAX = 4 << 10
#: Requests of one connection in progress at a time. Past it, reading pauses.
READ_AHEAD_REQUESTS_MAX = 512
#: Requests of one connection in progress at a time, for protocols whose responses come in any
#: order: a consumer has a pull waiting for each of its queues. Past it, reading pauses.
UNANSWERED_REQUESTS_MAX = 4096
#: First bytes of a connection to an `any` listener that identify its protocol; none needs more
#: than a command with the longest topic. More without a match: closed.
DETECTION_BYTES_MAX = 512
#: Seconds in which requests are still answered after their client has closed its sending side.
#: Later ones are dropped.
ENDED_GRACE_S = 5.0
#: Seconds in which a closing peer has to receive at least some of its data. Otherwise the
#: connection is aborted; a slow peer would keep its slot indefinitely.
CLOSE_DELIVERY_S = 30.0
#: Seconds between scans for idle connections.
IDLE_SWEEP_INTERVAL_S = 15.0
#: Seconds between scans for peers that hold memory for which others wait.
STALL_LOOK_INTERVAL_S = 2.0
#: Bytes that such a stalled peer has to send or receive between two scans. Fewer: it may be
#: disconnected.
STALL_MOVED_BYTES_MIN = 64 << 10

# ---- logins

#: A password, or a token in place of one. Longer: refused.
PASSWORD_BYTES_MAX = 1024
#: Random bytes in the salt of a password's verifier.
SCRAM_SALT_BYTES = 16
#: Random bytes that the salts of unknown users are made from.
LOGIN_SECRET_BYTES = 32
#: Fewest iterations of a new verifier: the least that RFC 7677 and Kafka allow. Fewer: refused.
SCRAM_ITERATIONS_MIN = 4096
#: Most iterations of a new verifier, as in Kafka. More: refused.
SCRAM_ITERATIONS_MAX = 16_384
#: Iterations of a new verifier, unless its creator wants others: 1.5 ms with SHA-256, 3 ms with
#: SHA-512.
SCRAM_ITERATIONS = 8192
#: A message of a SCRAM exchange. Longer: refused.
SCRAM_MESSAGE_BYTES_MAX = 4096
#: Iterations for which a client computes, at the request of a broker: a second. More: an error.
SCRAM_CLIENT_ITERATIONS_MAX = 1_000_000
#: Random bytes in a server's half of the nonce of a SCRAM exchange.
SCRAM_NONCE_BYTES = 18
#: A frame of a connection that has to log in and has not; of RocketMQ, the header of one. Larger:
#: the connection is closed, with a line in the log.
LOGIN_FRAME_BYTES_MAX = 64 << 10
#: Larger frames of RocketMQ connections before their first right signature, from one address. More:
#: the connection whose frame began first is closed; one alone may always finish.
UNVERIFIED_PER_ADDRESS_BYTES_MAX = 16 << 20
#: All of these frames may hold one part in this many of the memory budget. More: the same, first of
#: all for addresses from which no login has succeeded lately.
UNVERIFIED_BUDGET_SHARE = 8
#: A bearer token of OAUTHBEARER. Longer: refused.
BEARER_TOKEN_BYTES_MAX = 16 << 10
#: The document with the keys that verify bearer tokens. Larger: not used.
JWKS_BYTES_MAX = 256 << 10
#: Keys in such a document. More: not used.
JWKS_KEYS_MAX = 100
#: Seconds between two fetches of the keys, whatever tokens clients send. Sooner: the keys at hand
#: count.
JWKS_FETCHES_APART_S = 10.0
#: Seconds that a fetch of the keys may take. Longer: it has failed.
JWKS_FETCH_TIMEOUT_S = 10.0
#: Bits of an RSA key that verifies tokens. Fewer: not used.
RSA_KEY_BITS_MIN = 2048
#: Seconds between the reply to a refused Kafka login and the end of its connection.
LOGIN_REFUSED_CLOSE_S = 1.0
#: Threads that compute password hashes.
PASSWORD_HASH_THREADS = 2
#: Password hashes that wait for a thread, which is about a second of work. More: the login is
#: refused, and nothing is computed.
PASSWORD_HASHES_WAITING_MAX = 1024
#: Results of password checks that a node caches. The oldest go first.
PASSWORD_RESULTS_MAX = 10_000
#: Seconds for which the result of a password check is cached.
PASSWORD_RESULT_LIFETIME_S = 600.0
#: Failed logins from an address, or for a user, without a wait: people mistype.
LOGIN_FAILURES_FREE = 3
#: Seconds that a login waits after one failure more than that. Each further one doubles the wait.
LOGIN_WAIT_S_MIN = 0.1
#: Longest wait, in seconds, of a login from an address with failures. Some clients give a broker no
#: more than two seconds at first.
LOGIN_WAIT_ADDRESS_S_MAX = 1.0
#: Longest wait, in seconds, of a login of a user with failures: it delays the user, too.
LOGIN_WAIT_USER_S_MAX = 0.5
#: Seconds after the last failure when all of them are forgotten.
LOGIN_FAILURES_FORGOTTEN_S = 300.0
#: Addresses, and users, whose failures are counted. Of those quiet for longest, the one with the
#: fewest is forgotten.
LOGIN_FAILURES_KEPT_MAX = 10_000
#: Addresses from which logins have succeeded, for which room is kept. The longest unused one is
#: forgotten.
LOGIN_ORIGINS_KEPT_MAX = 10_000
#: The part of the room for connections before login that is kept for these addresses: one in so
#: many.
LOGIN_ORIGINS_SHARE = 4
#: Logins that wait at a time because of failures. More: refused, and nothing is computed.
LOGINS_WAITING_MAX = 10_000
#: Those from addresses from which no login has succeeded lately. More: the same.
LOGINS_WAITING_UNKNOWN_MAX = 7500
#: Those of them from one IPv6 /48, which is what a site has. More: the same.
LOGINS_WAITING_PER_NETWORK_MAX = 1000
#: Those from one address, which bounds the rate of guesses from there. More: the same.
LOGINS_WAITING_PER_ADDRESS_MAX = 64

# ---- stopping

#: Seconds that a stopping node waits for others to take over its leaderships. Then it stops
#: without.
HAND_OVER_TIMEOUT_S = 3.0
#: Seconds that peers have at a clean stop to receive their last responses. Then the connection is
#: cut.
CONNECTION_CLOSE_GRACE_S = 2.0
#: Seconds that HTTP requests in progress have at a clean stop. Then the connection is cut.
HTTP_CLOSE_GRACE_S = 2.0

# ---- HTTP API

#: Body of a request. Larger: answered 413 before it is read.
HTTP_BODY_BYTES_MAX = 1 << 20
#: Request line and headers of a request. Larger: answered 400 and closed.
HTTP_HEADER_BYTES_MAX = 64 << 10
#: Connections at a time; people and scrapers need few. One more replaces an idle one; without one,
#: it is closed at once.
HTTP_CONNECTIONS_MAX = 256
#: Operations in progress, each with its body in memory; far fewer than connections, so that health
#: probes always find room. One more replaces one whose body is still incomplete; without one, it
#: is answered 503.
HTTP_OPERATIONS_MAX = 32
#: Time to send a whole request head, and again a whole body. Longer: closed, or answered 408.
HTTP_REQUEST_SECONDS = 10
#: Requests that begin in one turn of the loop, each of which may take some milliseconds. Further
#: ones begin in later turns.
HTTP_REQUESTS_PER_TURN = 1
#: Time to receive a response. Longer: closed.
HTTP_DELIVERY_SECONDS = 30
#: Responses that clients have not received, over all connections; one may exceed a megabyte. Past
#: it, the connections that have been blocked longest are closed.
HTTP_UNSENT_BYTES_MAX = 64 << 20
#: Idle time between two requests of a connection. Longer: closed.
HTTP_KEEP_ALIVE_SECONDS = 30
#: Moves and elections that one request begins. Further ones are counted in the response: the
#: client repeats the request for them.
HTTP_CHANGES_MAX = 5000
#: Moves and elections of one request in progress at a time.
HTTP_CHANGES_AT_ONCE_MAX = 100
#: Seconds during which one request begins moves and elections. Those left are counted in the
#: response.
HTTP_CHANGES_SECONDS = 5.0
#: Items in one page of a listing. A request for more is refused.
HTTP_PAGE_ITEMS_MAX = 1000
#: Committed offsets of a node's groups in one page of a list with lags. Groups beyond it are listed
#: without their lag.
HTTP_COMMITS_MAX = 100_000
#: Seconds that a listing or a description waits for other nodes, a hundred partitions at a time.
#: Then it lacks what they have.
HTTP_NODES_SECONDS = 2
#: Characters of a place in a partition. More: refused.
PLACE_CHARS_MAX = 64
#: Records in one response or request. A request for more, or with more, is refused.
HTTP_RECORDS_MAX = 1000
#: Records in one response to a request that does not say how many.
HTTP_RECORDS_DEFAULT = 100
#: Headers of one record that is written, or shown. More: refused, or left out and counted.
HTTP_HEADERS_MAX = 1000
#: Bytes of the records of one response, charged twice to the memory budget; the first record may
#: exceed it. A request for more is refused.
HTTP_READ_BYTES_MAX = 4 << 20
#: Bytes of the records of one response to a request that does not say how many.
HTTP_READ_BYTES_DEFAULT = 1 << 20
#: Bytes of a key, value or header in a response. A request for more is refused.
HTTP_VALUE_BYTES_MAX = 1 << 20
#: Bytes after which a key, value or header is cut in the response to a request that does not say.
HTTP_VALUE_BYTES_DEFAULT = 64 << 10
#: Bytes of batches that a reader reads in one turn of the loop; it continues in the next one.
HTTP_READ_STEP_BYTES = 1 << 20
#: Records that are shown as JSON in one turn of the loop. Further ones: in the next turns.
HTTP_SHOWN_RECORDS_PER_TURN = 100
#: Bytes that are shown as JSON in one turn of the loop, after which the next turn continues.
HTTP_SHOWN_BYTES_PER_TURN = 256 << 10
#: Streams of events at a time. One more replaces the oldest of the client with most streams, or is
#: answered 503 if its own client has as many.
HTTP_STREAMS_MAX = 64
#: Partitions of one stream of events. More: refused.
HTTP_STREAM_PARTITIONS_MAX = 100
#: Bytes that a stream of events is charged to the memory budget.
HTTP_STREAM_BYTES = 256 << 10
#: Bytes of batches that a stream of events reads at a time; at least one record.
HTTP_EVENT_BYTES_PER_STEP = 64 << 10
#: Seconds without an event after which a stream sends a heartbeat.
HTTP_HEARTBEAT_SECONDS = 15
#: Seconds that a reader waits for records of another node. Then it answers with what it has, or
#: 503.
HTTP_READ_SECONDS = 10

# ---- command line

#: Response that the command line reads from a server. Larger: refused.
CLI_RESPONSE_BYTES_MAX = 32 << 20
#: Pages of a listing that the command line follows, so that a server cannot keep it busy
#: indefinitely.
CLI_PAGES_MAX = 10_000
#: Seconds that the command line waits for a server.
CLI_TIMEOUT_SECONDS = 30
#: Seconds until the command line has a whole response, however steadily its bytes arrive. Later:
#: the server counts as silent.
CLI_EXCHANGE_SECONDS_MAX = 120
#: Seconds that a shell waits for names to complete. Later: it completes none.
CLI_COMPLETION_SECONDS = 0.5
#: A file with a token or a password. Larger: refused.
CLI_SECRET_BYTES_MAX = 4096
#: Seconds without a record after which `dragoman consume --idle` ends. More: refused.
CLI_IDLE_SECONDS_MAX = 86_400
#: A file with offsets that the command line reads. Larger: refused.
CLI_FILE_BYTES_MAX = 32 << 20
#: A line, or a file of `--record`, that `dragoman produce` reads. Longer: refused; what comes
#: before a line is written.
CLI_LINE_BYTES_MAX = 64 << 20
#: Bytes that `dragoman produce` reads before it hands their records to the producer.
CLI_READ_BYTES = 256 << 10
#: Records that a client of the command line has in flight, or receives, at once.
CLI_RECORDS_AT_ONCE = 4096
#: Bodies of messages that the command line sends to RocketMQ in one batch. More: in the next
#: batch.
CLI_ROCKETMQ_BATCH_BYTES = 512 << 10
#: Values that the command line sends to mlog in one batch: below the usual `max.message.bytes`. A
#: larger value is sent alone.
CLI_MLOG_BATCH_BYTES = 256 << 10
#: Partitions of a topic that the command line tries over mlog, which has no request for their
#: number.
CLI_MLOG_PARTITIONS_MAX = 10_000

#: Bytes of all files of a bug report, before compression. What has no room is listed.
BUNDLE_BYTES_MAX = 64 << 20
#: Bytes of one of its files. Longer text is cut; longer JSON is left out.
BUNDLE_FILE_BYTES_MAX = 16 << 20
#: Bytes of the end of a log in it.
BUNDLE_LOG_BYTES_MAX = 4 << 20
#: Seconds after which nothing more is asked for it.
BUNDLE_SECONDS_MAX = 60.0
#: Pages of a listing in it.
BUNDLE_PAGES_MAX = 20
#: Topics, and groups, that are described in it one by one.
BUNDLE_ITEMS_MAX = 200
#: Files of a directory that are listed in it.
BUNDLE_ENTRIES_MAX = 20_000

# ---- clients of every protocol

#: Addresses given to a client. More: refused, since each may cost a time-out.
CLIENT_ADDRESSES_MAX = 100
#: A client's name for itself, which is in memory with every member of a group. Longer: closed.
CLIENT_ID_BYTES_MAX = 1024

# ---- Kafka

#: Array elements of one response that our client decodes, over all its arrays: an element of two
#: bytes becomes an object of a hundred. More: malformed. A metadata response of 250,000 partitions
#: fits.
KAFKA_ITEMS_MAX = 1 << 21
#: Array elements of a request, unless `protocols/kafka/bounds.py` has a bound of its own for the
#: request. More: refused, or closed where the protocol has no place for an error.
KAFKA_REQUEST_ITEMS_MAX = 2_000
#: Bytes of a request's frame, unless `protocols/kafka/bounds.py` has a bound of its own for the
#: request. More: refused, or closed where the protocol has no place for an error.
KAFKA_REQUEST_BYTES_MAX = 1 << 20
#: Tagged fields in the header of a request, none of which is defined. More: closed.
KAFKA_HEADER_TAGS_MAX = 100
#: Requests of one connection that begin in one loop turn, except produce requests on the express
#: path. Further ones begin in later turns: one read may bring thousands of small ones.
KAFKA_REQUESTS_PER_TURN_MAX = 32
#: Routes of the produce express that are cached per connection. At the bound the cache is emptied.
KAFKA_PRODUCE_ROUTES_MAX = 1024
#: Size up to which records are copied into the first buffer of a response frame. Larger ones keep
#: their own buffer.
KAFKA_RECORDS_INLINE_BYTES_MAX = 4 << 10
#: Seconds for which Metadata still lists a fenced node, so that clients search for a new
#: coordinator instead of forgetting the old one at once.
KAFKA_FENCED_NODE_LISTED_S = 30.0
#: Unanswered requests of a client connection. More: `LocalProtocolError`.
KAFKA_IN_FLIGHT_MAX = 1000
#: A response to our client. Larger: the connection is closed, so that a peer cannot make the
#: client take more memory.
KAFKA_CLIENT_REPLY_BYTES_MAX = 256 << 20
#: Bytes that a fetch requests from one broker, over all partitions, unless an option says
#: otherwise. Kafka's default.
KAFKA_CLIENT_FETCH_BYTES = 50 << 20
#: Bytes that a fetch requests of one partition, unless an option says otherwise. A first batch
#: that is larger is returned whole.
KAFKA_CLIENT_FETCH_PARTITION_BYTES = 1 << 20
#: Topics whose partitions and leaders a client caches. The oldest entries are requested again.
KAFKA_CLIENT_TOPICS_MAX = 10_000
#: Groups whose coordinator a client caches. The oldest entries are requested again.
KAFKA_CLIENT_COORDINATORS_MAX = 10_000
#: Requests for a topic that the broker is creating before it counts as missing.
KAFKA_CLIENT_AUTO_CREATE_TRIES = 10
#: Longest throttle of a broker, in seconds, that a client obeys.
KAFKA_CLIENT_THROTTLE_MAX_S = 30.0
#: Encoded records that make a producer's batch full: below the usual `max.message.bytes`.
KAFKA_CLIENT_BATCH_BYTES = 512 << 10
#: Records in one batch of a producer, so that a batch of tiny ones cannot block the loop for long.
KAFKA_CLIENT_BATCH_RECORDS_MAX = 10_000
#: Bytes of records that a producer buffers. Past it, `send` waits.
KAFKA_CLIENT_BUFFER_BYTES_MAX = 32 << 20

#: Seconds between two logins of one Kafka connection, as in Kafka. Sooner: refused.
KAFKA_REAUTHENTICATION_INTERVAL_S = 1.0

# ---- minibroker

#: Subscriptions of one connection. One more is refused.
MINIBROKER_SUBSCRIPTIONS_MAX = 10_000
#: Pushed bytes that the peer of a connection has not received: a response may have to wait behind
#: them. Past it nothing is pushed.
PUSHED_UNSENT_BYTES_MAX = 64 << 10
#: Bytes pushed to one connection in a loop turn. More follow in the next turn.
PUSH_PORTION_BYTES_MAX = 64 << 10
#: Records pushed to one connection in a loop turn. More follow in the next turn.
PUSH_PORTION_RECORDS_MAX = 256
#: Records pushed to a group member beyond its committed offset; the original client deadlocks when
#: more than 256 precede a response that it waits for. Past it, further ones wait for a commit.
PUSH_WINDOW_RECORDS = 200
#: Size that the push window may reach. A client that needs more gets no window any longer.
PUSH_WINDOW_RECORDS_MAX = 10_000
#: Seconds that a full push window waits for the first commit of a member.
PUSH_PATIENCE_S = 1.0
#: Seconds that a full push window waits for the next commit of a member that has committed before.
PUSH_PATIENCE_COMMITTING_S = 10.0
#: Keys and values of records that an import of minibroker's data appends at once.
IMPORT_BATCH_BYTES = 512 << 10
#: Offsets that one batch of such an import may span.
IMPORT_BATCH_OFFSETS_MAX = 100_000
#: Records that a client buffers for a subscription while it waits for a response that may follow
#: them. Past it, it stops reading, and the response may be late.
MINIBROKER_CLIENT_RECORDS_MAX = 100_000

# ---- mlog

#: Seconds that a client's request for the leader waits for one that answers; longer than a silent
#: node keeps its leadership. Then: code 4 or 11, upon which clients retry.
MLOG_LEADER_WAIT_S = 3.0
#: Seconds between attempts to find that leader.
MLOG_LEADER_RETRY_S = 0.05
#: Values in one ProduceBatch, so that a request does not block the loop for long. More: refused.
MLOG_BATCH_VALUES_MAX = 20_000
#: Bytes of records that a FetchBatch reads: in base64 well below the 4 MiB of a message.
MLOG_FETCH_BYTES_MAX = 512 << 10
#: Records in one response, whatever the client requests.
MLOG_FETCH_COUNT_MAX = 10_000
#: Bytes that a Fetch of one record reads ahead for the next one.
MLOG_FETCH_ONE_BYTES_MAX = 64 << 10

# ---- RocketMQ

#: Nesting of brackets in a JSON body; real ones have six levels. More: malformed.
ROCKETMQ_JSON_DEPTH_MAX = 64
#: The body of a request without messages: JSON, which costs 20 ns per byte to decode. Larger:
#: refused before it is decoded.
ROCKETMQ_PLAIN_BODY_BYTES_MAX = 1 << 20
#: Messages in one batch of a producer, so that a request does not block the loop for long. More:
#: refused.
ROCKETMQ_BATCH_MESSAGES_MAX = 20_000
#: Size to which a compressed message body may expand in a node. More: refused.
ROCKETMQ_INFLATED_BYTES_MAX = 32 << 20
#: Bytes of messages in one response to a pull.
ROCKETMQ_PULL_BYTES_MAX = 256 << 10
#: Bytes that one pull searches for a message that matches its filter.
ROCKETMQ_SCAN_BYTES_MAX = 1 << 20
#: Messages in one response to a pull, whatever the client requests.
ROCKETMQ_PULL_COUNT_MAX = 1024
#: Records up to which a queue with none deleted counts as young: new groups may begin at its first
#: record. The original treats queues so whose first message is still in memory.
ROCKETMQ_YOUNG_QUEUE_RECORDS_MAX = 100_000
#: Seconds that a pull is parked at most: clients give up after 30.
ROCKETMQ_HOLD_S_MAX = 25.0
#: Seconds that a pull waits for a replica that lags behind its leader.
ROCKETMQ_COPY_WAIT_S = 2.0
#: Positions that a connection keeps open between its pulls. The least recently used is closed.
ROCKETMQ_READERS_MAX = 256
#: Requests to one client that it has not answered. More: refused.
ROCKETMQ_UNANSWERED_REQUESTS_MAX = 64
#: Seconds that a client has to answer a request of the node.
ROCKETMQ_ANSWER_TIMEOUT_S = 10.0
#: Seconds without a heartbeat after which a client is removed.
ROCKETMQ_CLIENT_TIMEOUT_S = 120.0
#: Seconds between searches for clients without a heartbeat.
ROCKETMQ_CLIENT_CHECK_INTERVAL_S = 10.0
#: Producers of one user, or of all anonymous clients, that are connected to a node. They need no
#: right. More: their heartbeats are refused as overloaded.
ROCKETMQ_PRODUCERS_PER_USER_MAX = 20_000
#: Groups that one heartbeat may name, as consumer or producer. More: refused.
ROCKETMQ_HEARTBEAT_GROUPS_MAX = 1000
#: Subscriptions in one heartbeat. More: refused.
ROCKETMQ_HEARTBEAT_SUBSCRIPTIONS_MAX = 10_000
#: Seconds for which a node's members of a group stay listed after its last report.
ROCKETMQ_LISTING_LEASE_S = 15.0
#: Seconds that a node waits for a changed list of a group's members.
ROCKETMQ_LISTING_WAIT_S = 5.0
#: Seconds between attempts to report members to a coordinator.
ROCKETMQ_LISTING_RETRY_S = 0.2
#: Seconds that a queue stays locked for orderly consumption; clients renew the lock every 20.
ROCKETMQ_LOCK_S = 60.0
#: Queues that one request may lock. More: refused.
ROCKETMQ_LOCKS_PER_REQUEST_MAX = 10_000
#: Users that sign requests of one connection. A further one is refused.
ROCKETMQ_SIGNERS_MAX = 1000
#: Entries of RocketMQ's own configuration: keys of the name server, groups, reading bans of
#: groups. All nodes have them in memory. More: refused.
ROCKETMQ_STATE_ENTRIES_MAX = 100_000
#: Size of one such configuration entry with its name. Larger: refused.
ROCKETMQ_STATE_VALUE_BYTES_MAX = 64 << 10
#: Offsets of groups that one node sends another in one response. More: the request is refused.
ROCKETMQ_DESCRIBED_OFFSETS_MAX = 200_000
#: Bytes that a look-up by key reads of a partition before it yields to other work.
ROCKETMQ_LOOK_UP_BYTES_MAX = 256 << 10
#: Look-ups by key in progress on a node. More: refused.
ROCKETMQ_LOOK_UPS_MAX = 16
#: Seconds that a look-up by key searches; then the messages found so far are the response. Clients
#: wait for 15.
ROCKETMQ_LOOK_UP_S_MAX = 10.0
#: Messages in the response to a look-up. More: left out.
ROCKETMQ_FOUND_COUNT_MAX = 256
#: Bytes of messages in the response to a look-up. More: left out.
ROCKETMQ_FOUND_BYTES_MAX = 8 << 20
#: Pairs of group and topic whose consumption rate is measured. The least recently used is
#: forgotten.
ROCKETMQ_GROUP_RATES_MAX = 1000
#: Characters of a filter expression, which every message has to pass. Longer: refused.
FILTER_CHARACTERS_MAX = 8192
#: Nesting of parentheses, negations and signs in a filter expression. Deeper: refused, before the
#: stack is exhausted.
FILTER_DEPTH_MAX = 64
#: Compiled filters that are cached. The least recently used is compiled again when it is needed.
FILTERS_CACHED_MAX = 256
#: Routes of topics that a client caches. The one requested longest ago goes first.
ROCKETMQ_CLIENT_ROUTES_MAX = 10_000
#: Messages that one look-up of a client holds in memory. More are left out.
ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX = 10_000
#: Size to which a compressed body may expand at a consumer; brokers accept 4 MiB. More: refused.
ROCKETMQ_CLIENT_INFLATED_BYTES_MAX = 64 << 20
#: Late responses, with nothing else from the server between them, after which a client closes the
#: connection as dead.
ROCKETMQ_CLIENT_LATE_REPLIES_MAX = 3
#: Requests of brokers that a client processes at once. More: answered "busy".
ROCKETMQ_CLIENT_SERVER_REQUESTS_MAX = 256

# ---- Cursus

#: A command without its message; a commit of 10,000 partitions fits. Longer: refused before it is
#: parsed.
CURSUS_COMMAND_BYTES_MAX = 256 << 10
#: Messages in one batch of a producer, so that a request does not block the loop for long. More:
#: refused.
CURSUS_PUBLISHED_MESSAGES_MAX = 20_000
#: Idempotent producers that are remembered, over all partitions. The least recently used is
#: forgotten; if it returns, its next sequence has to be 1.
CURSUS_PRODUCERS_MAX = 100_000
#: Keys and values in the response to a CONSUME. A first record that is larger is returned whole.
CURSUS_CONSUME_BYTES_MAX = 4 << 20
#: Milliseconds that a CONSUME may wait for data. A longer wait is shortened to this.
CURSUS_WAIT_MS_MAX = 300_000
#: Seconds that the first command of a client waits until the internal topic of groups or
#: transactions is created or loaded. Then: refused as retryable.
CURSUS_COORDINATOR_WAIT_S = 10.0
#: Seconds between checks whether that internal topic is ready.
CURSUS_COORDINATOR_RETRY_S = 0.1
#: Partitions that a CLUSTER_STATUS lists: the response is one frame, built in one turn of the
#: loop. Refused for a larger cluster.
CURSUS_STATUS_PARTITIONS_MAX = 20_000
#: Keys and values in one push of a stream.
CURSUS_PUSH_BYTES = 256 << 10
#: Keys and values that a stream pushes before it yields to other streams.
CURSUS_TURN_BYTES_MAX = 1 << 20
#: Events of one partition in the index of event streams, eight bytes each. Past it, commands on
#: that partition's streams are refused.
CURSUS_EVENTS_MAX = 20_000_000
#: Keys and payloads in one batch of the client's producer.
CURSUS_CLIENT_BATCH_BYTES = 800_000
#: Keys and payloads that the client's producer buffers. Past it, `send` waits.
CURSUS_CLIENT_BUFFER_BYTES_MAX = 32 << 20
#: Records queued for the client's caller. Past it, its streams are not read.
CURSUS_CLIENT_QUEUE_MAX = 10_000

# ---- captures: the node

#: Captures in a cluster: each is a process on some node. One more is refused.
CAPTURES_MAX = 256
#: JSON of the definition that a capture's process receives. Larger: refused.
CAPTURE_DEFINITION_BYTES_MAX = 64 << 10
#: First pause in seconds before an ended process is restarted. Each failure doubles it; a process
#: that ran for `CAPTURE_RESTART_S_MAX`, or captured anything, begins with it again.
CAPTURE_RESTART_S_MIN = 1.0
#: Longest pause in seconds before an ended process is restarted.
CAPTURE_RESTART_S_MAX = 60.0
#: Seconds that a process has to finish its transaction. Then it is killed.
CAPTURE_STOP_GRACE_S = 10.0
#: Seconds without a report, which comes once a second, after which a process counts as hung and is
#: killed.
CAPTURE_SILENCE_S = 120.0
#: Commands that a capture has not answered yet. One more is refused.
CAPTURE_COMMANDS_MAX = 16
#: Seconds that a capture has to answer one command. Then: an error.
CAPTURE_COMMAND_TIMEOUT_S = 20.0
#: Seconds that the check of a database may take. Then: an error.
CAPTURE_CHECK_TIMEOUT_S = 15.0
#: Seconds that another node has to report the state of its captures. Then they are reported as
#: unknown.
CAPTURE_ASK_TIMEOUT_S = 5.0
#: Checks of databases in progress on a node, each a process. One more is refused.
CAPTURE_CHECKS_MAX = 4
#: Tables of a database that are listed for those who add a capture.
CAPTURE_TABLES_LISTED_MAX = 1000

# ---- captures: their processes

#: Offsets of the internal topic that are read first to find a capture's last position. Each
#: further read takes eight times as many.
CAPTURE_POSITION_WINDOW = 256
#: Encoded records that a capture holds in memory. Past it, nothing is read from the database.
CAPTURE_HELD_BYTES_MAX = 32 << 20
#: Encoded records of one database transaction from which on they are written before its end is
#: known.
CAPTURE_SPILL_BYTES = 4 << 20
#: Bytes read from the database before yielding to the event loop.
CAPTURE_READ_BYTES = 256 << 10
#: Records of a snapshot, or of a spooled transaction, between two turns of the event loop.
CAPTURE_RECORDS_AT_A_TIME = 500
#: Seconds after which a position that moved without events is written.
CAPTURE_IDLE_POSITION_S = 1.0
#: Spool files of transactions that the database streams before they are committed. Past it, the
#: capture waits and reports it.
CAPTURE_SPOOL_BYTES_MAX = 64 << 30
#: Bytes of a spool file that are written, or read, at a time.
CAPTURE_SPOOL_BUFFER_BYTES = 256 << 10
#: Seconds between two confirmations of the position to the database.
CAPTURE_CONFIRM_S = 0.5
#: Seconds after which the database gets a status update in any case.
CAPTURE_FEEDBACK_S = 10.0
#: Seconds in which a stopping capture writes to the log what it has read. Then it ends without.
CAPTURE_STOP_S = 5.0
#: Seconds in which a capture whose node is gone writes to the log what it has read. Then it ends
#: without.
CAPTURE_ORPHAN_S = 1.0
#: A record of a captured row, as topics that captures create allow it. Larger: the capture waits
#: and reports it.
CAPTURE_RECORD_BYTES_MAX = 32 << 20
#: Forms of topic names that are compared for two captures, and templates of one with which its
#: tables are compared, some microseconds each. Beyond it, two captures that share a topic go
#: unnoticed; each record still names its capture.
CAPTURE_OVERLAP_STEPS_MAX = 100
#: Topics of one capture: an outbox names them by its rows. One more is an error of the capture.
CAPTURE_TOPICS_MAX = 10_000
#: First pause in seconds before a capture retries what failed. Each failure doubles it.
CAPTURE_RETRY_MIN_S = 0.5
#: Longest pause in seconds before a capture retries what failed.
CAPTURE_RETRY_MAX_S = 60.0
#: A certificate, key or password file that a capture's address names. Larger: refused.
CAPTURE_FILE_BYTES_MAX = 1 << 20
#: One line between a node and a capture's process, or of that process's log. A longer report ends
#: the process; a longer log line is left out.
CAPTURE_LINE_BYTES_MAX = 1 << 20
#: Seconds between two reports of a process to its node.
CAPTURE_REPORT_S = 1.0
#: Text of rows in one chunk of a snapshot. More: the chunk ends there, and the next requests fewer
#: rows.
SNAPSHOT_CHUNK_BYTES = 16 << 20
#: Keys that change while a chunk is read. More: it is read again, with fewer rows.
SNAPSHOT_KEYS_MAX = 250_000
#: Transactions that are remembered in case they are not visible yet. An older one could be missed
#: only if it stayed invisible while that many others committed.
SNAPSHOT_RECENT_XIDS = 65_536
#: Longest pause in seconds between two checks whether a transaction that a snapshot waits for has
#: ended.
SNAPSHOT_LOOK_PAUSE_MAX_S = 0.5
#: Seconds between scans for further tables that match the patterns.
SNAPSHOT_NEW_TABLES_S = 60.0
#: Seconds until a table whose snapshot needs an operator's action is retried.
SNAPSHOT_RETRY_S = 20.0
#: Seconds between two measurements of the WAL that the database retains for a capture.
GUARD_LOOK_S = 10.0
#: Measurements in a row that have to find too much retained WAL, and no less than before, until
#: the capture acts on it.
GUARD_LOOKS = 3

# ---- Spark

#: Bytes of the log that a Spark task reads at once, from a file or from a broker: enough for the
#: decoder to work on whole columns, few enough for many tasks on one machine.
SPARK_READ_BYTES = 8 << 20
#: Responses without records after which a range that the broker lists counts as a gap.
SPARK_EMPTY_REPLIES_MAX = 3
#: Milliseconds that a broker may park a fetch of a Spark task, so that a stop is noticed.
SPARK_FETCH_WAIT_MS = 500
#: Spark partitions of one read: each is a task, and its plan stays in memory. More: refused.
SPARK_PARTITIONS_MAX = 100_000
#: Nesting of types in a schema. Deeper: refused before Python's own stack is exhausted.
SPARK_TYPE_DEPTH_MAX = 64
#: Bytes of a file with a schema or with descriptors, which tasks carry. Larger: refused.
SPARK_SCHEMA_BYTES_MAX = 16 << 20
#: Bytes of spark-defaults.conf that are searched. Settings after them are found only by Spark,
#: which reads the whole file, and may be replaced by a default of ours.
SPARK_DEFAULTS_BYTES_MAX = 1 << 20

# ---- pipelines

#: Bytes of a pipeline's file. Larger: refused.
PIPELINE_FILE_BYTES_MAX = 1 << 20
#: Sources, steps, sinks and jobs of a pipeline, together. More: refused.
PIPELINE_PARTS_MAX = 500
#: Characters of a name or a sentence in a pipeline's report to a node. Longer: refused.
PIPELINE_WORDS_MAX = 10_000
#: Pipelines whose reports a node remembers. One more replaces the one with the oldest report.
PIPELINES_REPORTED_MAX = 100
#: Seconds without a report after which a running pipeline counts as dead.
PIPELINE_SILENCE_S = 30.0
#: Seconds without a report after which a pipeline is forgotten.
PIPELINE_MEMORY_S = 24 * 3600.0
#: Bytes of a pipeline's status that are read. The rest is ignored.
PIPELINE_STATUS_BYTES_MAX = 4 << 20

# ---- jobs of pipelines

#: Records in one micro-batch of a materialized table, which the driver holds in memory several
#: times over, unless an option says otherwise. More wait for the next one.
MATERIALIZED_BATCH_RECORDS = 200_000
#: Bytes of the log in one micro-batch of a materialized table, unless an option says otherwise.
#: More wait for the next one.
MATERIALIZED_BATCH_BYTES = 64 << 20
#: Offsets of one partition in one batch of a replay, which is staged before it is published, and
#: held in memory when its source is Parquet.
REPLAY_BATCH_RECORDS = 100_000
#: Offsets in one Parquet file of a topic's twin, unless an option says otherwise. More: in the
#: next file.
TIER_FILE_RECORDS = 1_000_000
#: Rows in one row group of such a Parquet file, in bytes before compression: what a writer holds
#: in memory per file. Large groups cost readers less.
TIER_ROW_GROUP_BYTES = 64 << 20
#: Parquet files that one task writes at once, one for each day. The least recently used is closed
#: for another.
TIER_OPEN_FILES_MAX = 16
#: The manifest of a twin, which is read whole. A larger one is not written.
TIER_MANIFEST_BYTES_MAX = 256 << 20
#: Keys that a profile counts. Rarer ones are left out.
PROFILE_KEYS_MAX = 10_000
#: Fields of JSON that a profile knows. Later ones are left out.
PROFILE_FIELDS_MAX = 2_000
#: Nesting of JSON fields that a profile distinguishes. Deeper ones count as one field.
PROFILE_FIELD_DEPTH_MAX = 6
#: Spans of time in which a profile counts records. More: the spans double in length.
PROFILE_TIMES_MAX = 2_000

# ---- secrets and the audit log

#: Bytes of a cluster key file. A larger one is refused.
CLUSTER_KEY_FILE_BYTES_MAX = 64 << 10
#: Keys in a cluster key file. More: the file is refused.
CLUSTER_KEYS_MAX = 100
#: Bytes of a file that a `file:` reference names. A larger one is refused.
REFERENCED_SECRET_BYTES_MAX = 64 << 10
#: Seconds that a node may take to say which keys it has. Longer: it counts as without the key.
CLUSTER_KEY_ASK_TIMEOUT_S = 5.0
#: Secrets that are sealed anew in one change of the metadata. More: in the next one.
SECRETS_SEALED_AT_ONCE_MAX = 100
#: Seconds after which the leader of the metadata looks again for secrets to seal anew; ten times as
#: long after a failure.
SECRETS_SEALED_RETRY_S = 2.0
#: Seconds between writes of the audit log.
AUDIT_WRITE_INTERVAL_S = 0.1
#: Bytes of lines that wait to be written to the audit log. More are dropped and counted; the count
#: is the next line.
AUDIT_QUEUED_BYTES_MAX = 256 << 10
#: Characters of one text in the audit log. Longer texts are cut.
AUDIT_TEXT_CHARS_MAX = 256
#: Seconds in which like logins and denials are counted together.
AUDIT_SAMPLE_INTERVAL_S = 10.0
#: Like logins or denials that are written in one interval. Further ones are counted, and the count
#: is written at its end.
AUDIT_LIKE_EVENTS_MAX = 10
#: Kinds of logins and denials that are distinguished in one interval. Others share one count.
AUDIT_SAMPLE_KINDS_MAX = 200

# ---- the console

#: Bytes of memory of the process of a console. More: requests fail, and the process may end, which
#: the next connection starts anew.
CONSOLE_PROCESS_BYTES_MAX = 2 << 30
#: Records that one search of the console looks at. More: refused; a search that has ended
#: can be continued.
CONSOLE_SEARCH_RECORDS_MAX = 1_000_000_000
#: Bytes that one search of the console reads. More: refused, as above.
CONSOLE_SEARCH_BYTES_MAX = 1 << 40
#: Seconds that one search of the console takes. More: refused, as above.
CONSOLE_SEARCH_SECONDS_MAX = 600.0
#: Records that one search finds for a page. More: refused, as above.
CONSOLE_SEARCH_FOUND_MAX = 1000
#: Records that one search finds for a file. More: refused.
CONSOLE_EXPORT_RECORDS_MAX = 1_000_000
#: Searches, exports and tails of one user of the console, or of all without a login. More: refused.
CONSOLE_READS_PER_USER_MAX = 8
#: Searches, exports and tails of the console. More: refused.
CONSOLE_READS_MAX = 64
#: Kafka clients of the console, one for each session that reads records. More: one that is not used
#: is closed; if all are in use, the request is refused.
CONSOLE_KAFKA_CLIENTS_MAX = 64
#: Records that a tail shows in a second. More are counted, not shown.
CONSOLE_TAIL_RECORDS_PER_SECOND_MAX = 500
#: Topics that a tail follows. More: refused.
CONSOLE_TAIL_TOPICS_MAX = 200
#: Partitions that a tail follows, of all its topics. More: refused.
CONSOLE_TAIL_PARTITIONS_MAX = 2000
#: Producers of a topic that the console shows. More: those with open transactions and the latest.
CONSOLE_PRODUCERS_MAX = 1000
#: Offsets that a tail may be behind the end. Further behind: it continues at the end, and
#: says how many it has skipped.
CONSOLE_TAIL_LAG_MAX = 20_000
#: Partitions whose places a tail reports, so that it continues there after an interruption. With
#: more, it continues at the end.
CONSOLE_TAIL_POSITIONS_MAX = 200
#: Bytes that a search or a tail asks of a node at once. More: in further requests.
CONSOLE_FETCH_BYTES = 1 << 20
#: Bytes of one partition that a search or a tail asks for at once. More: in further requests.
CONSOLE_FETCH_PARTITION_BYTES = 256 << 10
#: Records that a search looks at in one turn of the loop. More: in the next turns.
CONSOLE_SLICE_RECORDS = 256
#: Bytes of records that a search looks at in one turn of the loop. More: in the next turns.
CONSOLE_SLICE_BYTES = 128 << 10
#: Characters of a key, value or header in a list of records. Longer ones are cut; the record alone
#: has more of them.
CONSOLE_LISTED_CHARACTERS_MAX = 2048
#: Characters of a key, value or header of a record that is shown alone. Longer ones are cut, and
#: can be downloaded.
CONSOLE_SHOWN_CHARACTERS_MAX = 256 << 10
#: Headers of a record in a list. More are counted; the record alone has more of them.
CONSOLE_LISTED_HEADERS_MAX = 50
#: Headers of a record that is shown alone. More are counted, and exported.
CONSOLE_SHOWN_HEADERS_MAX = 1000
#: Bytes of a key, value or header that the console decodes. A larger one counts as text or bytes:
#: MessagePack takes fifty times its size in memory.
CONSOLE_DECODED_BYTES_MAX = 4 << 20
#: Fields of records in one value of a schema, whose own size says little: fields without bytes take
#: time, too. More: it counts as not decodable.
CONSOLE_DECODED_FIELDS_MAX = 1_000_000
#: Steps that a filter takes for one record: characters that are searched, times the instructions of
#: a pattern. More: the answer for the record is unknown.
CONSOLE_FILTER_STEPS_MAX = 300_000_000
#: Instructions of all patterns of a filter, or of one for names of topics. More: refused.
CONSOLE_PATTERN_INSTRUCTIONS_MAX = 4000

# ---- queries of the console

#: Processes that run queries of the console at a time. More: refused.
CONSOLE_QUERIES_MAX = 2
#: Characters of a query. A longer one is refused.
CONSOLE_QUERY_CHARS_MAX = 64 << 10
#: Topics of a query. More: refused.
CONSOLE_QUERY_TOPICS_MAX = 16
#: Records of all topics that a query may read. More: only the newest or oldest ones are read.
CONSOLE_QUERY_RECORDS_MAX = 5_000_000
#: Bytes of the records of all topics that a query reads. More: the rest is not read.
CONSOLE_QUERY_BYTES_MAX = 512 << 20
#: Bytes that the engine of a query may hold beside the records. More: the query fails.
CONSOLE_QUERY_ENGINE_BYTES_MAX = 512 << 20
#: Bytes of memory of the process of a query. More: the query fails.
CONSOLE_QUERY_PROCESS_BYTES_MAX = 2 << 30
#: Seconds of a query. Longer: its process is killed.
CONSOLE_QUERY_SECONDS_MAX = 300
#: Rows of a result. More are not shown.
CONSOLE_QUERY_ROWS_MAX = 10_000
#: Bytes of a result, as JSON. Further rows are not shown.
CONSOLE_QUERY_RESULT_BYTES_MAX = 32 << 20
#: Characters of one cell of a result. Longer ones are cut.
CONSOLE_QUERY_CELL_CHARS_MAX = 16 << 10
#: Bytes of one line between the process of a query and the console. Longer: the query fails.
CONSOLE_QUERY_LINE_BYTES_MAX = 64 << 20

# ---- dead letters in the console

#: Dead letters that one request sends again. More: refused.
CONSOLE_RESENT_AT_ONCE_MAX = 500
#: Records of a target that are searched for copies of dead letters. More are not searched, which
#: the answer says.
CONSOLE_RESENT_SEARCHED_MAX = 50_000
