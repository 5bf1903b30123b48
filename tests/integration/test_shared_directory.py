"""Goal: `data.group` opens the files of topics to a group, and nothing else, however old they are.

Method: a real node with topics; the permissions of every file and directory on the way to it say
what a member of the group could read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from nodes.process import ServedNode, serve

#: A group that no other process here has, or the only one that an ordinary user may give.
GROUP = 54_321 if os.geteuid() == 0 else os.getgid()


def used(node: ServedNode) -> None:
    """Write to topics, and let the node make its internal ones."""
    address = node.bootstrap_servers
    producer = Producer({"bootstrap.servers": address})
    for topic in ("orders", "__mine"):
        producer.produce(topic, b"value")
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(60) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


def may_read(path: Path, root: Path) -> bool:
    """Whether a member of the group, who is not the owner, could open a file."""
    on_the_way = [each for each in path.parents if each == root or root in each.parents]
    return all(_bits(each) & 1 for each in on_the_way) and bool(_bits(path) & 4)


def _bits(path: Path) -> int:
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    return (mode >> 3) & 7 if found.st_gid == GROUP else mode & 7


def open_files(root: Path) -> set[str]:
    files = [each for each in root.rglob("*") if each.is_file()]
    assert len(files) > 8
    return {str(each.relative_to(root)) for each in files if may_read(each, root)}


def is_of_orders(name: str) -> bool:
    return name.startswith("partitions/") and "-orders-" in name


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_only_files_of_topics_are_open_to_the_group(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        root = tmp_path / "data"
        with serve(root, "--set", f"data.group={GROUP}") as node:
            used(node)
            assert node.stop() == 0
        found = open_files(root)
        assert any(each.endswith(".log") for each in found)
        assert any(each.endswith("manifest.json") for each in found)
        assert all(map(is_of_orders, found)), found
        assert stat.S_IMODE(root.stat().st_mode) & 0o007 == 0
    finally:
        os.umask(before)


def test_an_existing_directory_is_opened_and_closed_again(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with serve(root) as node:
        used(node)
        assert node.stop() == 0
    assert open_files(root) == set()
    with serve(root, "--set", f"data.group={GROUP}") as node:
        assert node.stop() == 0
    opened = open_files(root)
    assert opened
    assert all(map(is_of_orders, opened)), opened
    with serve(root) as node:
        assert node.stop() == 0
    assert open_files(root) == set()


def test_an_unknown_group_prevents_the_start(tmp_path: Path) -> None:
    node = ServedNode("--data", str(tmp_path / "data"), "--set", "data.group=no-such-group")
    assert node.finish() == 2
    assert any("there is no group no-such-group" in line for line in node.log)
