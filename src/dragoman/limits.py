"""Every bound of the product, with its unit in the name, its reason, and what happens at it.

Settings that an operator may change are in `config.py`; these are the fixed ones.
"""

from __future__ import annotations

# ---- names and records

#: Kafka's limit, and one path component on every file system even after escaping. Longer: refused.
TOPIC_NAME_BYTES_MAX = 249
#: A batch header is 61 bytes; a batch with less cannot hold a record.
BATCH_HEADER_BYTES = 61

# ---- the log

#: Unit in which the journal is written: no sector that was acknowledged is ever written again.
JOURNAL_BLOCK_BYTES = 4096
#: The first journal file, made at the first start; small so that a start takes milliseconds.
JOURNAL_FIRST_FILE_BYTES = 1 << 20
#: Every later journal file. A checkpoint is due when one is full, so this bounds recovery.
JOURNAL_FILE_BYTES = 32 << 20
#: Journal files at most. When all wait for a checkpoint, appends wait for it as well.
JOURNAL_FILES_MAX = 8
#: Bytes gathered into one group before it is committed without waiting for the loop turn to end.
GROUP_BYTES_MAX = 8 << 20
#: What one partition has in a group from which on the others' parts are committed before it: a
#: megabyte takes milliseconds to write, a record a fraction of one.
LARGE_PART_BYTES_MIN = 256 << 10
#: Appended bytes kept in memory for tail readers, over all partitions. Oldest go first.
TAIL_BYTES_MAX = 16 << 20
#: Batches that one commit brings to a partition are kept joined in pieces of up to this size.
TAIL_CHUNK_BYTES_MAX = 16 << 10
#: Journalled bytes not yet written to their segments, over all partitions. At the bound they are
#: written.
DIRTY_BYTES_MAX = 4 << 20
#: The same for one partition: a large write costs less per byte than many small ones.
DIRTY_PARTITION_BYTES_MAX = 64 << 10
#: Bytes written to a segment before the disk is told to begin with them. A checkpoint that finds
#: all of a journal file's bytes still in the page cache keeps the disk busy for tens of
#: milliseconds, and the journal waits.
WRITE_OUT_BYTES_MIN = 512 << 10
#: Open segment files. Least recently used are closed.
OPEN_SEGMENTS_MAX = 512
#: Sparse indexes of rolled segments kept in memory. Least recently used are dropped.
CACHED_INDEXES_MAX = 64
#: Bytes read at once when a segment is scanned.
SCAN_CHUNK_BYTES = 1 << 20
#: Batches remembered per producer to recognise a repeat; Kafka clients keep at most five in flight.
PRODUCER_BATCHES_KEPT = 5
#: Producers remembered per partition; the longest idle is forgotten first.
PRODUCERS_PER_PARTITION_MAX = 10_000
#: What a compressed batch may expand to, unless its topic's `max.message.bytes` is larger:
#: expanding that takes some 100 ms at worst. A batch that is more is refused when it is produced
#: (Java's producer then splits it); one in the log is given to Kafka's clients as it is, and to
#: others as an error.
EXPANDED_BATCH_BYTES_MAX = 32 << 20
#: The same for what reads outside of a node: tools, Spark.
DECOMPRESSED_BATCH_BYTES_MAX = 256 << 20
#: Expanded batches that are kept for the next read, in bytes and in number. The longest unused go
#: first; the newest stays whatever its size.
EXPANSIONS_BYTES_MAX = 64 << 20
EXPANSIONS_MAX = 1024
#: A batch with more records, or that expands to more, is decoded in pieces of so many records.
DECODED_AT_ONCE_RECORDS_MAX = 2000
DECODED_AT_ONCE_BYTES_MAX = 1 << 20
#: Records in one produced batch: each becomes an object where a protocol needs it. More: refused.
BATCH_RECORDS_MAX = 500_000
#: Seconds between checkpoints when nothing else makes one due; bounds what a start has to replay.
CHECKPOINT_INTERVAL_S = 5.0
#: Partitions that one background job syncs, so that a journal sync never waits long behind it.
CHECKPOINT_FILES_PER_JOB = 8
#: Files in one background job from which on the whole file system is synced instead of each.
BULK_SYNC_FILES_MIN = 48
#: Partitions waiting for a checkpoint from which on its jobs are large enough for that.
CHECKPOINT_BULK_PARTITIONS_MIN = 256
#: Partitions in one such job; the loop gathers what to write for all of them in one go.
CHECKPOINT_BULK_PARTITIONS_PER_JOB = 128
#: Partitions that a checkpoint at start or stop takes at once: what it holds in memory meanwhile.
CHECKPOINT_PARTITIONS_AT_ONCE = 2000
#: On a slow disk, one group in so many is written on the loop, to see whether it is still slow.
SLOW_SYNC_PROBE_GROUPS = 32
#: Average time of a synchronous write up to which it is done on the loop itself.
FAST_SYNC_S = 0.0005
#: Findings of damage kept per partition for people to read; all are logged.
DAMAGE_REPORTS_MAX = 64
#: Ranges of unreadable offsets noted per segment. What is damaged beyond them is refused whenever
#: it is read, but neither counted nor remembered over a start.
DAMAGED_RANGES_MAX = 256
#: Partitions with damage that a node remembers to open, and so to report, at its next start; the
#: others are reported when they are next used.
DAMAGED_PARTITIONS_MAX = 1000
#: Ranges of damaged offsets that the status of a node lists; the others are only counted.
DAMAGED_RANGES_SHOWN_MAX = 100
#: How far the next readable batch is looked for when a reader meets damage, on the loop. A longer
#: stretch of damage is found piece by piece.
DAMAGE_PROBE_BYTES_MAX = 4 << 20

# ---- producers and transactions

#: Share of a full producer table that is forgotten at once, so that a flood costs little each.
PRODUCERS_FORGOTTEN_SHARE = 16
#: Producer changes above the high watermark kept per partition for an exact rollback. Past it the
#: oldest go, and a truncation that would need them asks for a rebuild from a snapshot.
PRODUCER_UNDO_MAX = 4096
#: Aborted transactions indexed per partition (32 bytes each). At the bound no transaction may begin
#: there until retention has moved the log start.
ABORTED_PER_PARTITION_MAX = 1 << 20
#: Transactional ids of one coordinator. At the bound an unknown id is refused.
TRANSACTIONAL_IDS_MAX = 100_000
#: A transactional id is the key of a record and stays in memory. Longer: refused.
TRANSACTIONAL_ID_BYTES_MAX = 1024
#: Partitions and groups in one transaction. More: the enrolment is refused; the client must abort.
TRANSACTION_MEMBERS_MAX = 10_000
#: One transaction's state record; it must fit a batch of default size. Same refusal.
TRANSACTION_RECORD_BYTES_MAX = 1_000_000
#: Implicit enrolments that wait for one transactional id's current operation. More: told to retry.
TRANSACTION_ENROLMENTS_WAITING_MAX = 64
#: Ids removed by one expiry scan; the next scan takes the rest.
TRANSACTION_EXPIRIES_PER_SCAN = 1000
#: Requests waiting for a block of producer ids. More: refused, the client retries.
PRODUCER_ID_WAITERS_MAX = 10_000
#: Highest producer epoch a client may be given. One more is used inside the broker, to fence it.
PRODUCER_EPOCH_MAX = 32_766

# ---- background disk work

#: Jobs submitted and not yet done. A log has one checkpoint in flight; more than this is refused.
BACKGROUND_JOBS_MAX = 256
#: Bytes of file contents in one job. The largest is the sparse index of one segment. More is
#: refused.
BACKGROUND_JOB_BYTES_MAX = 64 << 20
#: The same over all jobs that wait. More is refused.
BACKGROUND_QUEUED_BYTES_MAX = 128 << 20
#: A reply of the flusher process: an error number and a path. Longer: the process is taken for
#: broken.
FLUSHER_REPLY_BYTES_MAX = 64 << 10
#: Names in one job of the flusher: 100,000 paths of 160 bytes. More is refused.
FLUSHER_NAMES_BYTES_MAX = 16 << 20

# ---- disks in memory, and simulation

#: One path component on Linux file systems. Longer: ENAMETOOLONG, as there.
FILE_NAME_BYTES_MAX = 255
#: A disk in memory, unless told otherwise. Past it a write is refused with ENOSPC, as on a full
#: disk.
MEMORY_DISK_BYTES_MAX = 1 << 30
#: What a disk writes whole or not at all.
SIM_SECTOR_BYTES = 512
#: One file of the simulated disk: a position computed wrongly shall not fill memory. Past it:
#: EFBIG.
SIM_FILE_BYTES_MAX = 1 << 30
#: Operations kept for the report of a failure. Oldest go first.
SIM_TRACE_OPERATIONS_MAX = 200
#: Callbacks of one run of the simulated scheduler; a run that needs more is taken for an endless
#: one.
SIM_STEPS_MAX = 1_000_000
#: What a simulated connection hands to its protocol at once.
SIM_RECEIVE_BYTES_MAX = 256 << 10

# ---- between nodes

#: A frame between nodes: the largest batch, and what else a replica is sent with it.
PEER_FRAME_BYTES_MAX = 128 << 20
#: A batch, whatever topics allow. Larger: refused, since no replica could be sent it.
BATCH_BYTES_MAX = PEER_FRAME_BYTES_MAX - (16 << 20)
#: Unanswered requests of one node to another; more fail at once.
PEER_REQUESTS_MAX = 1024
#: Bytes that another node has not taken; past it messages are dropped and requests fail.
PEER_UNSENT_BYTES_MAX = 16 << 20
#: How long the address of a host name counts, and how long it counts that there is none, before
#: the name is looked up again; and names that are remembered. The longest unused is forgotten.
HOST_NAME_LIFETIME_S = 60.0
HOST_NAME_FAILED_S = 5.0
HOST_NAMES_MAX = 64
#: Pause before a lost connection to another node is dialled again; it doubles up to the second.
PEER_RETRY_MIN_S = 0.05
PEER_RETRY_MAX_S = 1.0
#: How long what was sent to another node may stay unacknowledged by its system. Then its machine is
#: taken for gone or moved, and dialled again; without that, the system would wait for 15 minutes.
PEER_UNACKNOWLEDGED_S = 5.0

#: Connections of nodes that have not said who they are. One more: the oldest of them is closed.
PEER_STRANGERS_MAX = 64
#: Seconds that such a connection has to say it. Longer: closed.
PEER_HELLO_TIMEOUT_S = 10.0
#: What may be announced as the words that say it. More: closed.
PEER_HELLO_BYTES_MAX = 64 << 10
#: Connections of nodes that have said who they are. One more is refused.
PEER_CONNECTIONS_MAX = 1024

# ---- the broker

#: Descriptors that a node asks the system for: files of the log, and connections.
OPEN_FILES_MAX = 1 << 20
#: Descriptors that the log keeps for itself. It opens files with them when clients have all others.
SPARE_FILES = 32
#: Descriptors that connections of clients leave to everything else, that those of HTTP leave, and
#: that those of other nodes leave. A connection that would take one of them is closed at once, or
#: takes the place of a quiet one of HTTP or of a stranger among the nodes, if it is one of those.
#: Clients leave an eighth of all if that is more.
DESCRIPTORS_LEFT_BY_CLIENTS = 64
DESCRIPTORS_LEFT_BY_HTTP = 32
DESCRIPTORS_LEFT_BY_NODES = 16
#: Metadata changes waiting to become durable. More: refused, the client retries.
METADATA_PROPOSALS_MAX = 10_000
#: How long a metadata change waits for somebody who takes it. Then: refused, the client retries.
METADATA_CHANGE_TIMEOUT_S = 10.0
#: How long a node looks for its cluster before it says that it has found none.
JOIN_PATIENCE_S = 5.0
#: How long what an operator asks for waits for a node that leads the metadata, and until it is
#: tried again. Then: told that nobody answered.
CONTROLLER_PATIENCE_S = 3.0
CONTROLLER_RETRY_S = 0.05
#: One message between voters of the metadata quorum. Longer: taken for rubbish and dropped.
RAFT_MESSAGE_BYTES_MAX = 8 << 20
#: Batches in one message; a batch that is larger goes alone.
RAFT_APPEND_BYTES_MAX = 1 << 20
#: The events of one proposal. More: refused.
RAFT_PROPOSAL_BYTES_MAX = 4 << 20
#: Piece of a snapshot in one message.
RAFT_SNAPSHOT_PIECE_BYTES = 256 << 10
#: A snapshot of the metadata, gathered in memory while it is received. Larger: not made, not taken.
RAFT_SNAPSHOT_BYTES_MAX = 256 << 20
#: Reads that wait for the other voters to say who leads. More: refused, to be retried.
RAFT_READS_MAX = 10_000
#: Requests that wait for the controller, over all nodes. More: unanswered, the node asks again.
CONTROL_REQUESTS_MAX = 10_000
#: Partitions that the controller gives back to their preferred leaders at once.
BALANCED_AT_ONCE_MAX = 100
#: Moves and elections of one partition each that the controller decides together: one round of the
#: quorum for so many. More: in the next round. Nodes open replicas in the turn of the loop that
#: applies a round: with more of them it would be too long for heartbeats.
CONTROL_DECISIONS_MAX = 25
#: The events of one proposal to etcd, whose own limit for a request is 1.5 MiB. More: refused.
ETCD_PROPOSAL_BYTES_MAX = 1 << 20
#: Proposals in one transaction of etcd, whose own limit is 128 operations. More wait for the next.
ETCD_TRANSACTION_ENTRIES_MAX = 100
#: Entries read from etcd at once, so that an answer of the largest ones stays within its bound.
ETCD_PAGE_ENTRIES = 32
#: Piece of a snapshot in etcd.
ETCD_PIECE_BYTES = 512 << 10
#: An answer of etcd, or one line of a watch. Larger: the connection is closed, what was missed is
#: read in pages.
ETCD_ANSWER_BYTES_MAX = 64 << 20
#: How long a node that stops waits for etcd to take its lease back. Longer: the lease runs out.
ETCD_CLOSE_GRACE_S = 1.0
#: Connections to etcd at a time, beside the watch. More requests wait for one.
ETCD_CONNECTIONS_MAX = 8
#: Producer ids a node takes from the cluster at once; what it does not use is lost at a restart.
PRODUCER_ID_BLOCK = 1000
#: Produce requests per partition whose records are not yet stable. More: refused, to be retried.
ACKS_WAITING_MAX = 100_000
#: How long a producer waits for its records to be committed. Then: told that nobody knows.
ACKS_PATIENCE_S = 30.0
#: Refusals of a partition that wait until it is known that this node leads it. More: asked anew.
DOUBTS_MAX = 1000
#: Parked fetches per partition. More: answered at once with what there is.
FETCHES_PARKED_MAX = 20_000

#: What all requests of a node that name many things do in one loop turn, in items of a few
#: microseconds, and what one of them does before the next has its turn. The rest waits.
WORK_ITEMS_PER_TURN = 1000
WORK_ITEMS_PER_QUANTUM = 250

# ---- configuration, HTTP and command line

#: A configuration file is a page or two; more is a wrong path. Larger: refused before it is read.
CONFIG_FILE_BYTES_MAX = 1 << 20
#: Less than this could not hold one ordinary produce request and its reply. Smaller: refused.
MEMORY_BUDGET_BYTES_MIN = 1 << 20
#: Partitions of one topic; each costs memory on every node. More: refused.
TOPIC_PARTITIONS_MAX = 10_000
#: The wire has 16 bits for it. More: refused.
REPLICATION_FACTOR_MAX = (1 << 15) - 1
#: Typed topic configurations kept; topics with equal overrides share one. Past it the longest
#: unused is dropped and built again when asked for.
TOPIC_CONFIGS_CACHED = 4096
#: Body of a request to the HTTP API. Larger: answered 413 before it is read.
HTTP_BODY_BYTES_MAX = 1 << 20
#: Request line and headers of a request to the HTTP API. Larger: answered 400 and closed.
HTTP_HEADER_BYTES_MAX = 64 << 10
#: Connections to the HTTP API at a time; people and scrapers need few. One more takes the place of
#: one that the node does no work for; when there is none, it is closed at once.
HTTP_CONNECTIONS_MAX = 256
#: Operations of the HTTP API that are worked on at a time, each with its body in memory, far below
#: the connections so that health probes always find room. One more takes the place of one whose
#: body is still to come; when there is none, it is answered 503.
HTTP_OPERATIONS_MAX = 32
#: Time to send a whole request head, and again a whole body. Longer: closed, or answered 408.
HTTP_REQUEST_SECONDS = 10
#: Requests to the HTTP API that begin in one turn of the loop, each of which may take some
#: milliseconds. More begin in the turns after it.
HTTP_REQUESTS_PER_TURN = 1
#: Time to take an answer. Longer: closed.
HTTP_DELIVERY_SECONDS = 30
#: Answers that clients do not take, over all connections to the HTTP API; one answer may have more
#: than a megabyte. Past it, the connections that are blocked for longest are closed.
HTTP_UNSENT_BYTES_MAX = 64 << 20
#: Idle time between two requests of a connection. Longer: closed.
HTTP_KEEP_ALIVE_SECONDS = 30
#: Moves and elections that one request to the HTTP API begins, how many of them are under way at a
#: time, and for how long further ones are begun. The rest is counted in the answer: the client
#: repeats the request for it.
HTTP_CHANGES_MAX = 5000
HTTP_CHANGES_AT_ONCE_MAX = 100
HTTP_CHANGES_SECONDS = 5.0
#: Items in one page of an HTTP listing; asking for more is refused.
HTTP_PAGE_ITEMS_MAX = 1000
#: Series of one metric, so that a scrape stays small whatever clients call themselves. The rest
#: are left out and counted.
METRIC_SERIES_MAX = 1000
#: Answer that the command line reads from a server. Larger: refused.
CLI_RESPONSE_BYTES_MAX = 32 << 20
#: Pages of a listing that the command line follows, so that a server cannot keep it busy for ever.
CLI_PAGES_MAX = 10_000
#: Time the command line waits for a server.
CLI_TIMEOUT_SECONDS = 30
#: Lines that peers can cause at will, of one kind in one interval. More are counted, and logged as
#: one line at its end.
LIMITED_LOG_LINES_MAX = 10
LIMITED_LOG_INTERVAL_S = 10.0
#: Longest line of a log about the node itself; the rest is cut.
LOG_LINE_CHARS_MAX = 16 << 10

# ---- frames of all protocols

#: One receive buffer shared by all connections; a frame that does not fit gets a buffer of its own.
SCRATCH_BYTES = 64 << 10
#: Memory taken for a frame before its bytes have arrived: as much again as has come, and three
#: times as much for a large one, within these bounds. An announced size alone makes the broker
#: take nothing, and a large frame is not copied over and over while it grows.
FRAME_GROWTH_BYTES_MIN = 4 << 10
FRAME_GROWTH_BYTES_MAX = 1 << 20
#: What has come of a frame from which on it counts as large: nearly a whole receive buffer.
LARGE_FRAME_BYTES_MIN = 60 << 10

# ---- the Kafka wire

#: Array elements in one reply that our client reads, over all its arrays: an element of two bytes
#: becomes an object of a hundred. More: the message is malformed. A metadata reply of 250,000
#: partitions fits. Requests have bounds of their own, in `protocols/kafka/bounds.py`.
KAFKA_ITEMS_MAX = 1 << 21
#: Array elements of a request, and bytes of its frame, unless that table says otherwise. More: it
#: is refused, or its connection closed where the protocol has no place for an error.
KAFKA_REQUEST_ITEMS_MAX = 2_000
KAFKA_REQUEST_BYTES_MAX = 1 << 20
#: Tagged fields in the header of a request, of which none is known. More: closed.
KAFKA_HEADER_TAGS_MAX = 100
#: A client's name for itself: it is in memory with every member of a group. Longer: closed.
CLIENT_ID_BYTES_MAX = 1024
#: Records up to this size are copied into the frame's first buffer, larger ones stay as they are.
KAFKA_RECORDS_INLINE_BYTES_MAX = 4 << 10
#: Requests a client connection may have unanswered. More: `LocalProtocolError`.
KAFKA_IN_FLIGHT_MAX = 1000

# ---- the network

#: Bytes handed to a connection that its peer has not taken. Past it, its requests wait.
SEND_BUFFER_BYTES_MAX = 1 << 20
#: Bytes that one connection may bring in one loop turn. Past it, the others come first. It bounds
#: how much one group commit has to write, and with it how long a small durable write waits.
READ_PER_TURN_BYTES_MAX = 512 << 10
#: Bytes read at once from a connection that has to wait for memory before it is not read any more.
SHORT_READ_BYTES_MAX = 4 << 10
#: Seconds that requests have to be answered whose client sends no more; those still unanswered are
#: dropped then.
ENDED_GRACE_S = 5.0
#: Seconds in which a peer has to take some of what it is sent before its connection is closed.
#: Longer: closed with the rest; otherwise it would keep its place for as long as it likes.
CLOSE_DELIVERY_S = 30.0
#: Requests of one connection that are worked on at the same time. Past it, it is not read.
READ_AHEAD_REQUESTS_MAX = 512
#: Kafka requests of one connection that are begun in one loop turn, produce requests like earlier
#: ones aside. The rest waits for the next turn: a read may bring thousands of small ones.
KAFKA_REQUESTS_PER_TURN_MAX = 32
#: The same for protocols whose replies come in any order: a consumer has a pull waiting for each of
#: its queues.
UNANSWERED_REQUESTS_MAX = 4096
#: Routes of the produce express kept per connection. At the bound all are learnt anew.
KAFKA_PRODUCE_ROUTES_MAX = 1024
#: Connections the system holds for a listener until they are accepted.
LISTEN_BACKLOG = 1024
#: Seconds between looks for connections that have been idle too long.
IDLE_SWEEP_INTERVAL_S = 15.0
#: Seconds between looks for peers that hold memory which others wait for.
STALL_LOOK_INTERVAL_S = 2.0
#: Bytes that such a peer has to send or take from one look to the next. Less: it may be cut off.
STALL_MOVED_BYTES_MIN = 64 << 10
#: Seconds that HTTP requests in progress get at a clean stop.
HTTP_CLOSE_GRACE_S = 2.0

# ---- the minibroker wire

#: Subscriptions of one connection. One more is refused.
MINIBROKER_SUBSCRIPTIONS_MAX = 10_000
#: Bytes pushed to a connection that its peer has not taken: a reply may have to wait for them. Past
#: it nothing is pushed.
PUSHED_UNSENT_BYTES_MAX = 64 << 10
#: Bytes and records pushed to one connection in a loop turn; the rest comes with the next.
PUSH_PORTION_BYTES_MAX = 64 << 10
PUSH_PORTION_RECORDS_MAX = 256
#: Records pushed to a group member ahead of what it has committed; the original client deadlocks
#: when it waits for a reply behind more than 256. Past it, the others wait for a commit.
PUSH_WINDOW_RECORDS = 200
#: A client that needs more than this is not held back any longer.
PUSH_WINDOW_RECORDS_MAX = 10_000
#: Seconds that a full window waits for the first commit ever, and for one more.
PUSH_PATIENCE_S = 1.0
PUSH_PATIENCE_COMMITTING_S = 10.0
#: Seconds until a reader looks again when too many wait for the same partition.
TAIL_PARKING_PAUSE_S = 0.1
#: Keys and values of records that an import appends at once, and offsets that they may span.
IMPORT_BATCH_BYTES = 512 << 10
IMPORT_BATCH_OFFSETS_MAX = 100_000
#: Records that a client keeps for a subscription while it waits for a reply that may be behind
#: them. Past it, it reads no more, and the reply may come too late.
MINIBROKER_CLIENT_RECORDS_MAX = 100_000
#: Seconds between looks whether the groups have been read back after a start.
GROUPS_LOADING_PAUSE_S = 0.02

# ---- the RocketMQ wire

#: Brackets within brackets in a JSON body; the real ones have six. More: malformed.
ROCKETMQ_JSON_DEPTH_MAX = 64
#: Routes of topics that a client keeps. The one that was asked for longest ago goes first.
ROCKETMQ_CLIENT_ROUTES_MAX = 10_000
#: Messages that one look-up of a client keeps in memory. More are left out.
ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX = 10_000
#: What a compressed body may become at a consumer; brokers take 4 MiB. More: refused.
ROCKETMQ_CLIENT_INFLATED_BYTES_MAX = 64 << 20
#: Late replies, with nothing else from the server between them, after which a client takes the
#: connection for dead and closes it.
ROCKETMQ_CLIENT_LATE_REPLIES_MAX = 3
#: Requests of brokers that a client works on at once. More: answered that it is busy.
ROCKETMQ_CLIENT_SERVER_REQUESTS_MAX = 256

#: Characters of a filter expression. Longer: refused; every message would have to wait for it.
FILTER_CHARACTERS_MAX = 8192
#: Parentheses, negations and signs inside each other. Deeper: refused, before the stack is used up.
FILTER_DEPTH_MAX = 64
#: Compiled filters that are kept; the least recently used is compiled again when it comes back.
FILTERS_CACHED_MAX = 256

# ---- groups

#: A group id is the key of records that stay for days. Kafka's wire would carry 32 kB. Longer:
#: refused.
GROUP_ID_BYTES_MAX = 1024
#: What a member calls itself: a client's id and a UUID, or the name of a static member. Longer:
#: refused.
MEMBER_ID_BYTES_MAX = 2048
INSTANCE_ID_BYTES_MAX = 1024
#: Members' metadata and assignments, offsets' metadata and ids, over all groups of a node. What
#: would bring more is refused.
GROUPS_BYTES_MAX = 128 << 20
#: What a group takes besides its id.
GROUP_OVERHEAD_BYTES = 256
#: Seconds between two looks at what all groups hold.
GROUPS_MEASURE_INTERVAL_S = 1.0
#: Groups one node coordinates. A join or commit that would make one more is refused.
GROUPS_MAX = 200_000
#: Members of one group, whatever `group.max.size` says. One more is refused.
GROUP_MEMBERS_MAX = 100_000
#: Members of one group that were given an id and have not used it yet. One more is refused.
GROUP_PENDING_MEMBERS_MAX = 10_000
#: Names and metadata one member may bring along. More: its join is refused.
MEMBER_BYTES_MAX = 1 << 20
#: Protocols one member may propose; clients propose one to four. More: its join is refused.
MEMBER_PROTOCOLS_MAX = 64
#: The same for all members of a group: the leader gets them in one reply. More: join is refused.
GROUP_MEMBERS_BYTES_MAX = 64 << 20
#: Assignments a leader may hand in, since they are stored in one record. More: its sync is refused.
GROUP_ASSIGNMENT_BYTES_MAX = 64 << 20
#: Members one leave may name. More: refused.
GROUP_LEAVE_MEMBERS_MAX = 100_000
#: A new member whose join waits longer than this is dropped: its connection may be half dead, and
#: its client knows no member id to send heartbeats with. Kafka's value.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
#: How long members have for their sync at least, however short a rebalance time-out they ask for:
#: the answer to the join has to reach them first. Later: dropped, as after the time-out.
GROUP_SYNC_TIMEOUT_MS_MIN = 5_000
#: Offsets, committed and staged, kept for one group. A commit that would add more is refused.
GROUP_OFFSETS_MAX = 200_000

# ---- internal topics and coordination

#: Records of an internal topic taken in per loop turn while it is read back.
INTERNAL_RECORDS_PER_SLICE = 500
#: Seconds until an internal topic that cannot be read back yet is tried again.
INTERNAL_LOAD_RETRY_S = 1.0
#: Seconds until a watch for a new assignment is answered although there is none.
REMOTE_MEMBER_WATCH_S = 5.0
#: Seconds after which a member is removed whose node has not asked about it.
REMOTE_MEMBER_LEASE_S = 15.0
#: Seconds until a member joins again while its group is between two coordinators.
MEMBER_JOIN_RETRY_S = 0.1
#: Bytes that a reader asks the leader of a partition for that its node has no copy of.
FAR_READ_BYTES_MAX = 262_144
#: How long such a reader waits there for records, and until it asks again when nobody leads.
FAR_READ_WAIT_MS = 5_000
FAR_READ_RETRY_S = 0.2
#: How long an mlog client's question who leads waits for a leader that answers, which is longer
#: than a silent node keeps its lead, and until it is looked for again. Then: code 4 or 11, upon
#: which clients ask again.
MLOG_LEADER_WAIT_S = 3.0
MLOG_LEADER_RETRY_S = 0.05
#: How long, from its arrival on, a client's operation waits for a leader of its partition that
#: takes it (longer than a silent node keeps its lead), and how long until it is tried again. Then:
#: not leader.
RELAY_PATIENCE_S = 3.0
RELAY_RETRY_S = 0.05
#: Writes that wait for the coordinator of their transaction on another node. More: refused.
TRANSACTION_GUARDS_MAX = 100_000
#: Seconds between tries to finish transactions whose markers could not be written.
TRANSACTION_RETRY_INTERVAL_S = 1.0
#: Seconds between looks for transactional ids that nobody uses any more.
TRANSACTION_EXPIRY_INTERVAL_S = 3600.0
#: Keys and values gathered into one batch; past it the batch is appended and the next one begins.
GATHERED_BATCH_BYTES_MAX = 900_000

#: What one slice of a followed topic takes in at most; the next one comes a loop turn later.
FOLLOWED_READ_BYTES_MAX = 1 << 20
#: Times that the leader of a followed topic is asked where it ends. Then: whoever waits is refused.
FOLLOWED_TRIES_MAX = 50
FOLLOWED_RETRY_S = 0.1

# ---- staged writes

#: Partitions of the topic in which records are staged; attempts take turns over them.
STAGING_PARTITIONS = 8
#: A segment of that topic. What was published leaves the disk by whole segments.
STAGING_SEGMENT_BYTES = 16 << 20
#: Age at which staged records that nobody asked for are dropped: longer than a batch may take from
#: its first record to its end. A publication that comes later is refused.
STAGING_AGE_MAX_S = 86_400.0
#: Steps in which that age is measured.
STAGING_AGE_MARKS = 48
#: An attempt that has been silent for so long is forgotten as a producer at the next such step. A
#: batch that it repeats after that is staged twice, and named once.
STAGING_PRODUCER_IDLE_MS_MAX = 600_000
#: Published pieces per staging partition that wait for older ones. More: all wait for their age.
STAGING_RELEASED_MAX = 100_000
#: Seconds between looks for staged records that may go.
STAGING_SWEEP_INTERVAL_S = 1.0
#: Seconds for which another node's word that it needs staged records holds; every sweep repeats it.
STAGING_HOLD_LEASE_S = 600.0
#: Staged bytes that are checked, or copied and made durable, at a time; then others have their
#: turn. As much as one connection may bring in one.
PUBLISH_SLICE_BYTES = 1 << 20
#: A writer's id and that of its query: keys of records, kept in memory. Longer: refused.
WRITER_ID_BYTES_MAX = 1024
#: Writers that are remembered. One more is refused.
WRITERS_MAX = 100_000
#: Pieces of one publication; the decision about them is one record of some 25 bytes each. More:
#: refused, and the batch has to be split.
PUBLICATION_PIECES_MAX = 100_000
#: Publications that wait for the one under way of the same writer. More: told to come back.
PUBLICATIONS_WAITING_MAX = 64
#: Seconds between tries to finish publications that were decided and could not be completed.
PUBLICATION_RETRY_INTERVAL_S = 1.0
#: Seconds between looks for writers that can be forgotten, and how many one look takes.
WRITER_EXPIRY_INTERVAL_S = 600.0
WRITER_EXPIRIES_PER_SCAN = 1000
#: A writer of a single batch is forgotten after this: its client has long stopped repeating.
SINGLE_WRITER_IDLE_MS_MAX = 3_600_000
#: Any other after 90 days without a batch. A query that comes back later with its last batch would
#: write it twice.
WRITER_IDLE_MS_MAX = 90 * 86_400_000

# ---- delayed records

#: Partitions of the topic in which records wait for their time; all records for one partition wait
#: in one of them.
DELAYED_PARTITIONS = 8
#: Records that a node keeps aside; each takes some 200 bytes of memory. One more is refused.
DELAYED_RECORDS_MAX = 1_000_000
#: Names and values of the labels of a record, together. More: refused.
DELAYED_LABELS_BYTES_MAX = 4096
#: Records that are delivered to a partition as one batch; it is cut at `GATHERED_BATCH_BYTES_MAX`,
#: too. The rest follows in the next one.
DELAYED_BATCH_RECORDS_MAX = 1000
#: Batches that are on their way to partitions of one node; they are in memory meanwhile. More wait.
DELAYED_DELIVERIES_MAX = 32
#: Records that have come due, are asked about or are dropped in one loop turn.
DELAYED_RECORDS_PER_SLICE = 500
#: Seconds until a delivery that failed is tried again.
DELAYED_RETRY_S = 1.0
#: Longest time that is waited for the next record at once: the wall clock may be set forwards.
DELAYED_LOOK_S_MAX = 60.0
#: Decisions that are remembered, so that who repeats one hears the same. The oldest go first.
DELAYED_DECISIONS_KEPT = 10_000

# ---- compaction and maintenance

#: Seconds that everybody else has between two slices of a compaction.
COMPACTION_PAUSE_S = 0.002
#: Partitions that one slice of a maintenance round looks at.
MAINTENANCE_PARTITIONS_PER_SLICE = 20

# ---- stopping

#: How long a node that stops waits for others to lead what it leads. Then it stops all the same.
HAND_OVER_TIMEOUT_S = 3.0
#: Seconds that peers get at a clean stop to take their last replies. Then the connection is cut.
CONNECTION_CLOSE_GRACE_S = 2.0

#: First bytes of a connection to `any` from which its protocol is told. More that tell nothing:
#: closed. No protocol needs more than a command behind the longest topic.
DETECTION_BYTES_MAX = 512

# ---- fetch sessions

#: Partitions in one fetch session, and in all sessions of a node together; one takes about 500
#: bytes. More: the client goes on without a session.
FETCH_SESSION_PARTITIONS_MAX = 10_000
FETCH_SESSIONS_PARTITIONS_MAX = 100_000
#: Seconds of disuse after which a fetch session may be dropped for another. Kafka's value.
FETCH_SESSION_IDLE_S = 120.0
#: How long Metadata still lists a node that was fenced, so that Kafka clients look for a new
#: coordinator instead of forgetting the old one at once. Later: not listed.
KAFKA_FENCED_NODE_LISTED_S = 30.0

# ---- retention and compaction

#: Memory for the newest offset of each key in one round of compaction. What does not fit is left to
#: the next round.
COMPACTION_KEYS_BYTES_MAX = 64 << 20
#: What a key costs besides its bytes: a bytes object, an integer, their slots in a dict.
COMPACTION_KEY_OVERHEAD_BYTES = 150
#: Time after which compaction lets the loop turn; a slice may exceed it by one record.
COMPACTION_SLICE_S = 0.0015
#: Output gathered before it is written to the file.
COMPACTION_WRITE_BYTES = 256 << 10

# ---- clients of every protocol

#: Addresses given to a client. More: refused, since each may cost a time-out.
CLIENT_ADDRESSES_MAX = 100

# ---- the raw Kafka client

#: A reply larger than this ends its connection: a peer must not make the client take more memory.
KAFKA_CLIENT_REPLY_BYTES_MAX = 256 << 20
#: Bytes a fetch asks one broker for, over all partitions, unless told otherwise. Kafka's default.
KAFKA_CLIENT_FETCH_BYTES = 50 << 20
#: The same for one partition; a first batch that is larger comes whole all the same.
KAFKA_CLIENT_FETCH_PARTITION_BYTES = 1 << 20
#: Topics whose partitions and leaders are remembered. The longest known are asked for again.
KAFKA_CLIENT_TOPICS_MAX = 10_000
#: Groups whose coordinator is remembered. The longest known are asked for again.
KAFKA_CLIENT_COORDINATORS_MAX = 10_000
#: Times a topic that the broker is to create is asked for before it counts as missing.
KAFKA_CLIENT_AUTO_CREATE_TRIES = 10
#: Seconds for which a broker's throttle is honoured; what it asks beyond that is not believed.
KAFKA_CLIENT_THROTTLE_MAX_S = 30.0
#: Encoded records that make a producer's batch full: below the usual `max.message.bytes`.
KAFKA_CLIENT_BATCH_BYTES = 512 << 10
#: Records in one batch of a producer, so that a batch of tiny ones cannot keep the loop for long.
KAFKA_CLIENT_BATCH_RECORDS_MAX = 10_000
#: Records that a producer holds, in bytes; past it, `send` waits.
KAFKA_CLIENT_BUFFER_BYTES_MAX = 32 << 20
#: A line that `dragoman produce` reads. Longer: refused, and what was read before is written.
CLI_LINE_BYTES_MAX = 64 << 20
#: Bytes that `dragoman produce` reads before it hands records over to the producer.
CLI_READ_BYTES = 256 << 10
#: Records that a client of the command line has under way, or is given, at once.
CLI_RECORDS_AT_ONCE = 4096
#: Values that the command line sends in one batch of mlog, in bytes: below the usual
#: Bodies of messages that the command line sends to RocketMQ in one batch. More: in the next.
CLI_ROCKETMQ_BATCH_BYTES = 512 << 10
#: `max.message.bytes`. A larger one goes alone.
CLI_MLOG_BATCH_BYTES = 256 << 10
#: Partitions of a topic that are looked for over mlog, which does not say how many there are.
CLI_MLOG_PARTITIONS_MAX = 10_000

# ---- mlog

#: Values in one ProduceBatch: a request must not keep the loop for long. More: refused.
MLOG_BATCH_VALUES_MAX = 20_000
#: Bytes of records that a FetchBatch reads, in base64 well below the 4 MiB of a message.
MLOG_FETCH_BYTES_MAX = 512 << 10
#: Records in one reply, whatever the client asks for.
MLOG_FETCH_COUNT_MAX = 10_000
#: Bytes that a Fetch of one record reads ahead, for the next one.
MLOG_FETCH_ONE_BYTES_MAX = 64 << 10

# ---- RocketMQ

#: Bytes of messages in one reply to a pull, and how much is looked through for one that matches.
ROCKETMQ_PULL_BYTES_MAX = 256 << 10
ROCKETMQ_SCAN_BYTES_MAX = 1 << 20
#: Messages in one reply, whatever the client asks for.
ROCKETMQ_PULL_COUNT_MAX = 1024
#: A queue with this many records and none deleted is young: groups that are new to it may begin at
#: its first. The original says so of queues whose first message is still in memory.
ROCKETMQ_YOUNG_QUEUE_RECORDS_MAX = 100_000
#: Seconds that a pull is held at most: clients give up after 30.
ROCKETMQ_HOLD_S_MAX = 25.0
#: Seconds that a pull waits for a copy which is behind its leader.
ROCKETMQ_COPY_WAIT_S = 2.0
#: Positions that a connection keeps open between its pulls. The longest unused is closed.
ROCKETMQ_READERS_MAX = 256
#: Requests to one client that it has not answered. More: refused.
ROCKETMQ_ASKED_MAX = 64
#: Seconds that a client has to answer.
ROCKETMQ_ANSWER_TIMEOUT_S = 10.0
#: Seconds without a heartbeat after which a client is taken for gone, and between looks for such.
ROCKETMQ_CLIENT_TIMEOUT_S = 120.0
ROCKETMQ_CLIENT_LOOK_INTERVAL_S = 10.0
#: Groups that one heartbeat may name, as consumer or producer. More: refused.
ROCKETMQ_HEARTBEAT_GROUPS_MAX = 1000
#: The body of a request that carries no messages: JSON, of which a byte costs 20 ns to read.
#: Larger: refused before it is read.
ROCKETMQ_PLAIN_BODY_BYTES_MAX = 1 << 20
#: Messages in one batch of a producer: a request must not keep the loop for long. More: refused.
ROCKETMQ_BATCH_MESSAGES_MAX = 20_000
#: Subscriptions in one heartbeat. More: refused.
ROCKETMQ_HEARTBEAT_SUBSCRIPTIONS_MAX = 10_000
#: Seconds that a node's members of a group are listed for without word from it, and how long it
#: waits for a list that has changed.
ROCKETMQ_LISTING_LEASE_S = 15.0
ROCKETMQ_LISTING_WAIT_S = 5.0
#: Seconds between tries to tell a coordinator of members.
ROCKETMQ_LISTING_RETRY_S = 0.2
#: Seconds that a queue stays locked for orderly consumption; clients ask again every 20.
ROCKETMQ_LOCK_S = 60.0
#: Queues that one request may lock. More: refused.
ROCKETMQ_LOCKS_PER_REQUEST_MAX = 10_000
#: What a compressed body may expand to.
ROCKETMQ_INFLATED_BYTES_MAX = 32 << 20
#: Entries of RocketMQ's own configuration: keys of the name server, groups, what groups may not
#: read. All nodes have them in memory. More: refused.
ROCKETMQ_STATE_ENTRIES_MAX = 100_000
#: Of one such entry, its name included. Larger: refused.
ROCKETMQ_STATE_VALUE_BYTES_MAX = 64 << 10
#: Offsets of groups that one node tells another at once. More: the question is refused.
ROCKETMQ_TOLD_OFFSETS_MAX = 200_000
#: What a look-up reads of a partition at once; then others get their turn.
ROCKETMQ_LOOK_UP_BYTES_MAX = 256 << 10
#: Look-ups by key under way on a node. More: refused.
ROCKETMQ_LOOK_UPS_MAX = 16
#: How long a look-up by key goes on; then what was found is the answer. Clients wait for 15.
ROCKETMQ_LOOK_UP_S_MAX = 10.0
#: Groups and topics whose rates of consumption are kept. More: the longest unused are forgotten.
ROCKETMQ_GROUP_RATES_MAX = 1000
#: Messages in the answer to a look-up, and their bytes. More: left out.
ROCKETMQ_FOUND_COUNT_MAX = 256
ROCKETMQ_FOUND_BYTES_MAX = 8 << 20

# ---- administration

#: Changes of one topic's or node's configuration, or appends to one event stream, that wait for the
#: one under way. More: refused.
CONFIG_CHANGES_WAITING_MAX = 1000
#: Overrides that one resource may be given in one request; there are fewer keys. More: refused.
CONFIG_KEYS_PER_REQUEST_MAX = 1000
#: Keys without effect that are kept for one node, or for all nodes, because Kafka's clients set
#: them; Kafka has some two hundred of its own. More: refused.
INERT_CONFIG_KEYS_MAX = 256
#: Names and values of those keys together; all nodes keep them in memory. More: refused.
INERT_CONFIG_BYTES_MAX = 64 << 10
#: Groups with a configuration of their own; each stays in memory. One more is refused.
GROUP_CONFIGS_MAX = 100_000
#: Entities with quotas; each stays in memory on every node. One more is refused.
CLIENT_QUOTA_ENTITIES_MAX = 100_000
#: The name of a user or client in a quota. Longer: refused.
QUOTA_NAME_BYTES_MAX = 1024
#: Partitions described in one reply, whatever the client asks for; the rest follows by cursor.
DESCRIBED_PARTITIONS_MAX = 2000
#: Partitions opened per loop turn while the sizes of all of them are gathered.
LOG_SIZES_PER_SLICE = 50
#: A pattern for transactional ids. Longer: refused before it is compiled.
ID_PATTERN_BYTES_MAX = 1024

# ---- consumer groups (KIP-848)

#: A pattern for topic names. Longer: the heartbeat is refused.
TOPIC_PATTERN_BYTES_MAX = 10_000
#: What one compiled pattern may take. A pattern that needs more is refused as invalid.
PATTERN_MEMORY_BYTES_MAX = 1 << 20
#: Patterns kept compiled, with the names they match, over all groups. Longest unused go first.
TOPIC_PATTERNS_CACHED = 256
#: Partitions that one member may be said to own in a heartbeat. More: refused.
MEMBER_OWNED_PARTITIONS_MAX = 1_000_000

# ---- Cursus

#: A command without the message that it carries; a commit of 10,000 partitions fits. Longer:
#: refused before it is taken apart.
CURSUS_COMMAND_BYTES_MAX = 256 << 10
#: Messages in one batch of a producer: a request must not keep the loop for long. More: refused.
CURSUS_PUBLISHED_MESSAGES_MAX = 20_000
#: Idempotent Cursus producers that are remembered, whatever the partition. The longest unused is
#: forgotten; if it comes back, its next sequence has to be 1.
CURSUS_PRODUCERS_MAX = 100_000
#: Keys and values in the reply to a CONSUME; a first record that is larger comes all the same.
CURSUS_CONSUME_BYTES_MAX = 4 << 20
#: The longest that a CONSUME may wait for data. What it asks beyond that is not granted.
CURSUS_WAIT_MS_MAX = 300_000
#: How long the first command of a client waits for the internal topic of groups or transactions to
#: be made or read back, and how often it is looked for; then the command is refused as retryable.
CURSUS_COORDINATOR_WAIT_S = 10.0
CURSUS_COORDINATOR_RETRY_S = 0.1
#: Partitions that a CLUSTER_STATUS lists: the reply is one frame, and is built in one turn of the
#: loop. It is refused for a larger cluster.
CURSUS_STATUS_PARTITIONS_MAX = 20_000
#: Keys and values in one push of a stream, and what a stream pushes before others have their turn.
CURSUS_PUSH_BYTES = 256 << 10
CURSUS_TURN_BYTES_MAX = 1 << 20
#: Events of one partition that are kept in the index of event streams, eight bytes each. Past it,
#: commands on that partition's streams are refused.
CURSUS_EVENTS_MAX = 20_000_000
#: Keys and payloads in one batch of the client's producer, and unsent in all; then `send` waits.
CURSUS_CLIENT_BATCH_BYTES = 800_000
CURSUS_CLIENT_BUFFER_BYTES_MAX = 32 << 20
#: Records that wait for the client's caller before its streams are not read on.
CURSUS_CLIENT_QUEUE_MAX = 10_000

# ---- captures: the node

#: Captures in a cluster: each is a process on some node. One more is refused.
CAPTURES_MAX = 256
#: JSON of what a capture is told. Larger: refused.
CAPTURE_DEFINITION_BYTES_MAX = 64 << 10
#: Seconds until a process that has ended is started again: twice as long each time, up to the
#: latter; one that lived that long, or captured something, begins anew.
CAPTURE_RESTART_S_MIN = 1.0
CAPTURE_RESTART_S_MAX = 60.0
#: Seconds that a process has to finish its transaction; then it is killed.
CAPTURE_STOP_GRACE_S = 10.0
#: Seconds without a report, which comes once a second, after which a process is taken to hang and
#: killed.
CAPTURE_SILENCE_S = 120.0
#: Commands that a capture has not answered yet. One more is refused.
CAPTURE_COMMANDS_MAX = 16
#: Seconds that it has for one, and that looking at a database may take; then the caller is told.
CAPTURE_COMMAND_TIMEOUT_S = 20.0
CAPTURE_CHECK_TIMEOUT_S = 15.0
#: Seconds that another node has to say how its captures are; then it is said that it does not.
CAPTURE_ASK_TIMEOUT_S = 5.0
#: Looks at databases under way on a node, each a process. One more is refused.
CAPTURE_CHECKS_MAX = 4

# ---- captures: their processes

#: Offsets of the internal topic that are read first to find a capture's last position; then eight
#: times as many, and so on.
CAPTURE_POSITION_WINDOW = 256
#: Encoded records that a capture holds: past it, nothing is read from the database.
CAPTURE_HELD_BYTES_MAX = 32 << 20
#: Of one transaction of the database, from which it is written before its end is known.
CAPTURE_SPILL_BYTES = 4 << 20
#: Bytes taken from the database at a time, before the event loop has its turn.
CAPTURE_READ_BYTES = 256 << 10
#: Records of a snapshot, or of a transaction read from a file, between two turns of the event loop.
CAPTURE_RECORDS_AT_A_TIME = 500
#: Seconds after which a position is written that moved without events.
CAPTURE_IDLE_POSITION_S = 1.0
#: Files of transactions that the database sends while they are under way. Past it, the capture
#: waits and says so.
CAPTURE_SPOOL_BYTES_MAX = 64 << 30
#: What is gathered for such a file before it is written, and read of it at a time.
CAPTURE_SPOOL_BUFFER_BYTES = 256 << 10
#: Seconds between two looks at what may be confirmed, and after which the database hears something
#: in any case.
CAPTURE_CONFIRM_S = 0.5
CAPTURE_FEEDBACK_S = 10.0
#: Seconds for what was read to reach the log when a capture is told to end. Then it ends without.
CAPTURE_STOP_S = 5.0
#: The same when its node is gone.
CAPTURE_ORPHAN_S = 1.0
#: A record of a captured row, as topics that captures make allow it. Larger: the capture waits and
#: says so.
CAPTURE_RECORD_BYTES_MAX = 32 << 20
#: Forms of topics' names that are compared for two captures, and templates of one that its tables
#: are compared with, some microseconds each. Beyond it, that two captures share a topic goes
#: unnoticed; each record still names its capture.
CAPTURE_OVERLAP_STEPS_MAX = 100
#: Topics of one capture: an outbox names them by its rows. One more is an error of the capture.
CAPTURE_TOPICS_MAX = 10_000
#: Pause before a capture tries again what failed; it doubles up to the second.
CAPTURE_RETRY_MIN_S = 0.5
CAPTURE_RETRY_MAX_S = 60.0
#: A certificate, key or password file that a capture's address names. Larger: refused.
CAPTURE_FILE_BYTES_MAX = 1 << 20
#: One line between a node and a capture's process, or of what that logs. After a longer report the
#: process is ended; longer words for the log are left out.
CAPTURE_LINE_BYTES_MAX = 1 << 20
#: Seconds between two reports to the node.
CAPTURE_REPORT_S = 1.0
#: Text of rows in one chunk of a snapshot. More: the chunk ends there, and the next asks for fewer.
SNAPSHOT_CHUNK_BYTES = 16 << 20
#: Keys that change while a chunk is read. More: it is read again, with fewer rows.
SNAPSHOT_KEYS_MAX = 250_000
#: Transactions that are remembered in case they are not visible yet. An older one that is hidden
#: still would have been so for that many others.
SNAPSHOT_RECENT_XIDS = 65_536
#: The longest pause between two looks whether a transaction that a snapshot waits for is over.
SNAPSHOT_LOOK_PAUSE_MAX_S = 0.5
#: How often it is looked whether other tables match the patterns by now.
SNAPSHOT_NEW_TABLES_S = 60.0
#: After which a table whose snapshot somebody has to act on is tried again.
SNAPSHOT_RETRY_S = 20.0
#: How often it is looked how much log the database keeps for a capture, and how many looks in a row
#: have to find too much, and no less than before, until something is done about it.
GUARD_LOOK_S = 10.0
GUARD_LOOKS = 3

# ---- Spark

#: Bytes of the log that a Spark task reads at once, from a file or from a broker: enough for the
#: decoder to work on whole columns, few enough for many tasks on one machine.
SPARK_READ_BYTES = 8 << 20
#: Replies without records after which a range that the broker says it has is taken for a gap.
SPARK_EMPTY_REPLIES_MAX = 3
#: Milliseconds that a broker may hold back a reply to a Spark task, so that a stop is noticed.
SPARK_FETCH_WAIT_MS = 500
#: Spark partitions of one read. More are refused: each is a task, and its plan stays in memory.
SPARK_PARTITIONS_MAX = 100_000
#: Types within types of a value. Deeper schemas are refused before Python's own stack ends.
SPARK_TYPE_DEPTH_MAX = 64
#: Bytes of a file with a schema or with descriptors. Larger ones are refused: tasks carry them.
SPARK_SCHEMA_BYTES_MAX = 16 << 20
#: Bytes of spark-defaults.conf that are looked at. What comes after is left to Spark, which reads
#: the file itself, and may be replaced by a default of ours.
SPARK_DEFAULTS_BYTES_MAX = 1 << 20

# ---- pipelines

#: Bytes of a pipeline's file, and its sources, steps, sinks and jobs together. More are refused.
PIPELINE_FILE_BYTES_MAX = 1 << 20
PIPELINE_PARTS_MAX = 500
#: Characters of a name or a sentence in a pipeline's report to a node. Longer: refused.
PIPELINE_WORDS_MAX = 10_000
#: Pipelines whose reports a node remembers. One more: the one longest not heard of is forgotten.
PIPELINES_REPORTED_MAX = 100
#: Seconds without a report after which a pipeline that ran is said to have died, and after which
#: any is forgotten.
PIPELINE_SILENCE_S = 30.0
PIPELINE_MEMORY_S = 24 * 3600.0
#: Bytes of a pipeline's status. What is past them is not read.
PIPELINE_STATUS_BYTES_MAX = 4 << 20

# ---- jobs of pipelines

#: Records and bytes of the log in one micro-batch of a materialized table, which the driver holds
#: in memory several times over. More wait for the next one; options may say otherwise.
MATERIALIZED_BATCH_RECORDS = 200_000
MATERIALIZED_BATCH_BYTES = 64 << 20
#: Offsets of one partition in one batch of a replay: what is staged before it is published, and
#: held in memory where it comes from Parquet.
REPLAY_BATCH_RECORDS = 100_000
#: Offsets in one Parquet file of a topic's twin, unless an option says otherwise; the next file
#: takes the rest.
TIER_FILE_RECORDS = 1_000_000
#: Of the rows of one group of such a file, before compression: what a writer holds in memory per
#: file. Large groups cost readers less.
TIER_ROW_GROUP_BYTES = 64 << 20
#: Files that one task writes at once, one for each day. The longest unused is closed for another.
TIER_OPEN_FILES_MAX = 16
#: The manifest of a twin, which is read whole. Larger ones are not written.
TIER_MANIFEST_BYTES_MAX = 256 << 20
#: Keys that a profile counts, and fields of JSON that it knows; rarer keys and later fields are
#: left out. Fields within fields; deeper ones count as one.
PROFILE_KEYS_MAX = 10_000
PROFILE_FIELDS_MAX = 2_000
PROFILE_FIELD_DEPTH_MAX = 6
#: Spans of time that a profile counts records in. More: spans become twice as long.
PROFILE_TIMES_MAX = 2_000
