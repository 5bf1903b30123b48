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
#: Bytes gathered into one group before it is committed without waiting for the end of the loop turn.
GROUP_BYTES_MAX = 8 << 20
#: Appended bytes kept in memory for tail readers, over all partitions. Oldest go first.
TAIL_BYTES_MAX = 16 << 20
#: Journalled bytes not yet written to their segments, over all partitions. At the bound they are written.
DIRTY_BYTES_MAX = 4 << 20
#: The same for one partition: a large write costs less per byte than many small ones.
DIRTY_PARTITION_BYTES_MAX = 64 << 10
#: Open segment files. Least recently used are closed.
OPEN_SEGMENTS_MAX = 512
#: Sparse indexes of rolled segments kept in memory. Least recently used are dropped.
CACHED_INDEXES_MAX = 64
#: A segment rolls before an offset would lie further than this from its base (index entries are 32 bit).
SEGMENT_OFFSET_SPAN_MAX = (1 << 31) - 1
#: Bytes read at once when a segment is scanned.
SCAN_CHUNK_BYTES = 1 << 20
#: Batches remembered per producer to recognise a repeat; Kafka clients keep at most five in flight.
PRODUCER_BATCHES_KEPT = 5
#: Producers remembered per partition; the longest idle is forgotten first.
PRODUCERS_PER_PARTITION_MAX = 10_000
