"""Data directories as the original server leaves them, made by hand."""

from __future__ import annotations

import os
from pathlib import Path

from dragoman.protocols.minibroker.storage import encode_record

#: When the segments were last written, in seconds.
WRITTEN_S = 1_700_000_000


def write_segment(
    root: Path, topic: str, partition: int, records: list[tuple[int, bytes, bytes]]
) -> Path:
    """A segment with these (offset, key, payload); named after the first offset."""
    folder = root / topic / f"part-{partition}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{records[0][0]:020d}.log"
    path.write_bytes(b"".join(encode_record(*each) for each in records))
    os.utime(path, (WRITTEN_S, WRITTEN_S))
    return path


def write_commit(root: Path, topic: str, group: str, partition: int, text: str) -> None:
    folder = root / topic / "offsets" / group
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{partition}.off").write_text(text)


def write_example(root: Path, records: int = 50) -> None:
    """Two topics of four and two partitions, segments of ten records, gaps, and commits."""
    for topic, count in (("events", 4), ("other", 2)):
        for partition in range(count):
            (root / topic / f"part-{partition}").mkdir(parents=True, exist_ok=True)
            # Partition 3 stays empty; partition 1 begins late, as after retention.
            if partition == 3:
                continue
            first = 20 if partition == 1 else 0
            stored = [
                (offset, b"" if offset % 3 else b"k%d" % offset, b"%d:%d" % (partition, offset))
                for offset in range(first, records)
                # Compaction leaves gaps.
                if offset % 7 != 5
            ]
            for start in range(0, len(stored), 10):
                write_segment(root, topic, partition, stored[start : start + 10])
    write_commit(root, "events", "workers", 0, "7")
    write_commit(root, "events", "workers", 1, "30")
    write_commit(root, "other", "late", 1, "50\n")
    (root / "raft").mkdir()
    (root / "raft" / "raft.bolt").write_bytes(b"not ours")
