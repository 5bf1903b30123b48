"""Steps about the node itself: start it, kill it, look at what it keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator

from demo.story import Stage, Step
from dragoman.api.values import TopicDescription
from dragoman.cli.remote import Remote, topic_path

#: The others are small: manifests, snapshots, the node's own state.
_DATA_FILES = (".jnl", ".log", ".idx")


def _start(stage: Stage) -> str:
    seconds = stage.broker.start()
    return f"ready after {seconds * 1000:.0f} ms on {stage.broker.bootstrap_servers}"


def _kill_and_restart(stage: Stage) -> str:
    stage.broker.kill()
    seconds = stage.broker.start()
    return f"recovered and ready after {seconds * 1000:.0f} ms"


def _show_what_landed(stage: Stage) -> str:
    remote = Remote(stage.broker.http_url)
    topics = [
        remote.get(topic_path(each.name), TopicDescription)
        for each in remote.topics()
        if not each.internal
    ]
    partitions = [row for topic in topics for row in _partition_rows(topic)]
    stage.screen.table(
        "topics, over HTTP",
        ("topic", "partition", "leader", "first offset", "high watermark", "bytes"),
        partitions,
    )
    rows = [
        (path, f"{size:,}")
        for path, size in sorted(_files(stage.broker.data))
        if path.endswith(_DATA_FILES)
    ]
    stage.screen.table("data directory, journal and segments", ("file", "bytes"), rows)
    stage.screen.say("")
    return f"{len(topics)} topics, {len(partitions)} partitions, {len(rows)} data files"


def _partition_rows(topic: TopicDescription) -> list[tuple[str, ...]]:
    return [
        (
            topic.name,
            str(each.partition),
            str(each.leader),
            str(each.log_start_offset),
            f"{each.high_watermark:,}",
            f"{each.size_bytes:,}",
        )
        for each in topic.partitions
    ]


def _files(root: str) -> Iterator[tuple[str, int]]:
    """Every file below a directory with its size. One that goes meanwhile is left out."""
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            try:
                yield os.path.relpath(path, root), os.stat(path).st_size
            except FileNotFoundError:
                continue


START = Step(title="Start a broker", run=_start)
KILL_AND_RESTART = Step(title="Kill it (-9) and start it again", run=_kill_and_restart)
SHOW_WHAT_LANDED = Step(title="Look at what landed", run=_show_what_landed)
