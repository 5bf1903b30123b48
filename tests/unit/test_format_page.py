"""Goal: the page about the format on disk says what the code writes.

Method: each layout of the page is read back as a `struct` format and compared with the one in the
code; names of files, kinds, fields and versions are compared, too. A directory that a real broker
wrote holds nothing that the page does not name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dragoman.broker.broker import METADATA_TOPIC, directory_name
from dragoman.broker.delayed import DELAYED_TOPIC
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.staged_writes.publication import STAGING_TOPIC
from dragoman.broker.staged_writes.records import TOPIC as PUBLICATIONS_TOPIC
from dragoman.broker.transactions.service import TRANSACTIONS_TOPIC
from dragoman.captures.definition import POSITIONS_TOPIC
from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.cluster.events import LEVELS
from dragoman.cluster.raft_quorum.storage import SNAPSHOT_FILE
from dragoman.limits import JOURNAL_BLOCK_BYTES, JOURNAL_FILE_BYTES, JOURNAL_FIRST_FILE_BYTES
from dragoman.log import batch, index, journal, manifest, node, pins
from dragoman.log import producer_file as producers
from dragoman.log.directory import LOCK_FILE, PARTITIONS, QUARANTINE
from dragoman.log.manifest import Identity, Manifest, SegmentEntry
from dragoman.log.segment import segment_name
from dragoman.log.truncations import RESTART, truncation_entry_data
from dragoman.protocols.cursus.handlers.state import STATE_TOPIC as CURSUS_TOPIC
from dragoman.protocols.rocketmq.handlers.state import STATE_TOPIC as ROCKETMQ_TOPIC
from dragoman.raft.snapshots import Snapshot
from dragoman.testing import EphemeralBroker
from dragoman.world import aside_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "format.md").read_text()
CODES = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "u64": "Q",
    "i64": "q",
}


class Field(msgspec.Struct, frozen=True):
    offset: int
    type: str
    name: str


def _layouts() -> dict[str, tuple[str, list[Field]]]:
    """By the first words of a block: the rest of its first line, and its fields."""
    found = {}
    for block in re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        head, *lines = block.splitlines()
        name, _, rest = head.partition("  ")
        fields = [
            Field(int(offset or 0), kind, words.strip())
            for offset, kind, words in re.findall(
                r"^ +(\d*) +([ui]\d+|b\d+|pad)\b *(.*)$", "\n".join(lines), re.MULTILINE
            )
        ]
        assert not fields or len(fields) == len(lines), head
        found[name] = (rest.strip(), fields)
    return found


LAYOUTS = _layouts()
STRUCTS = {
    "record batch": batch.HEADER,
    "index block": index._BLOCK,
    "journal group": journal._GROUP,
    "journal entry": journal._ENTRY,
    "mark slot": journal._SLOT,
    "producer file": producers._HEAD,
    "producer snapshot": producers._PREFIX,
    "counts": producers._COUNTS,
    "producer": producers._PRODUCER,
    "cached batch": producers._BATCH,
    "aborted transaction": producers._ABORTED,
}


def _codes(fields: list[Field]) -> Iterator[str]:
    for each in fields:
        if each.type == "pad":
            yield "x"
        elif each.type.startswith("b"):
            yield f"{each.type[1:]}s"
        else:
            yield CODES[each.type]


def _table(heading: str) -> list[list[str]]:
    """Rows of the table that follows a heading or a phrase, without its head."""
    rows = []
    for line in PAGE.partition(heading)[2].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def _names(rows: list[list[str]]) -> list[str]:
    return [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]


# ---- layouts


def test_every_layout_of_the_page_is_compared() -> None:
    drawn = {name for name, (_, fields) in LAYOUTS.items() if fields}
    assert drawn == STRUCTS.keys() | {"index columns"}


@pytest.mark.parametrize("name", STRUCTS)
def test_layout_is_that_of_the_code(name: str) -> None:
    head, fields = LAYOUTS[name]
    written = STRUCTS[name]
    codes = "".join(_codes(fields))
    assert re.sub(r"\s", "", written.format)[1:] == codes
    assert written.format[0] == (">" if "big-endian" in head else "<")
    offset = 0
    for each, code in zip(fields, _codes(fields), strict=True):
        assert each.offset == offset, each
        offset += struct.calcsize(f"<{code}")
    (said,) = re.findall(r"(\d+) bytes", head)
    assert int(said) == offset == written.size


def test_columns_of_the_index_are_those_of_the_code() -> None:
    _, fields = LAYOUTS["index columns"]
    empty = index.SparseIndex()
    columns = (empty._offsets, empty._positions, empty._times, empty._checks)
    codes = list(_codes(fields))
    assert codes == [each.typecode for each in columns]
    assert sum(struct.calcsize(f"<{code}") for code in codes) == index._ENTRY_BYTES
    assert f"first {batch.WALKED_PREFIX_BYTES} bytes of every batch" in PAGE


@pytest.mark.parametrize(
    ("name", "magic"),
    [
        ("index block", index._MAGIC),
        ("journal group", journal._MAGIC),
        ("mark slot", journal._SLOT_MAGIC),
        ("producer snapshot", int.from_bytes(producers._MAGIC, "little")),
    ],
)
def test_magic_is_that_of_the_code(name: str, magic: int) -> None:
    first = LAYOUTS[name][1][0].name
    (text,) = re.findall(r'"(.{4})"', first)
    assert int.from_bytes(text.encode(), "little") == magic


def test_magic_of_batches_and_version_of_producer_snapshots() -> None:
    fields = {each.name.split("  ")[0]: each.name for each in LAYOUTS["record batch"][1]}
    assert fields["magic"].split()[-1] == str(batch.MAGIC)
    (version,) = [each for each in LAYOUTS["producer snapshot"][1] if "version" in each.name]
    assert version.name.split()[-1] == str(producers.VERSION)


def test_bits_of_batch_attributes() -> None:
    (said,) = [each.name for each in LAYOUTS["record batch"][1] if "attributes" in each.name]
    bits = {
        "append time": batch.LOG_APPEND_TIME,
        "transactional": batch.TRANSACTIONAL,
        "control": batch.CONTROL,
        "delete horizon": batch.DELETE_HORIZON,
    }
    for name, mask in bits.items():
        assert f"{mask.bit_length() - 1} {name}" in said
    assert batch.CODEC_MASK == 0b111


# ---- the journal


def test_kinds_of_journal_entries() -> None:
    rows = _table("   25  u32  data length")
    assert [int(row[0]) for row in rows] == [kind.value for kind in journal.EntryKind]
    for row, kind in zip(rows, journal.EntryKind, strict=True):
        assert kind.name.lower().replace("_", " ").split()[0] in row[1].replace("leader ", "")
    sizes = [sum(int(bits) // 8 for bits in re.findall(r"[ui](\d+)", row[2])) for row in rows]
    assert sizes[1] == len(truncation_entry_data(0, 0))
    assert sizes[4] == len(node.ballot_entry_data(node.Ballot()))
    assert f"position {RESTART} when the log begins anew" in rows[1][1]


def test_figures_of_the_journal() -> None:
    text = " ".join(PAGE.split())
    first, later = JOURNAL_FIRST_FILE_BYTES >> 20, JOURNAL_FILE_BYTES >> 20
    assert f"The first has {first} MiB, others {later} MiB" in text
    assert f"multiples of {JOURNAL_BLOCK_BYTES:,} bytes" in text
    assert f"at bytes 0 and {journal._SLOT_STRIDE_BYTES} after each group" in text
    digits = journal.seed_of("0123456789abcdef" * 2)
    assert digits == 0x01234567
    assert "first 8 hex digits of the directory's id" in text


# ---- files of JSON


def test_fields_of_node_json() -> None:
    assert _names(_table("## node.json")) == list(node.NodeState.__struct_fields__)


def test_fields_of_manifests() -> None:
    assert _names(_table("## manifest.json")) == list(Manifest.__struct_fields__)
    segment = PAGE.partition("A segment has `base_offset`")[2].partition("Fields at their")[0]
    assert ["base_offset", *re.findall(r"`(\w+)`", segment)] == list(SegmentEntry.__struct_fields__)


def test_fields_of_the_metadata_snapshot() -> None:
    rows = _table("`metadata.snapshot` is the CRC-32C")
    assert _names(rows) == list(Snapshot.__struct_fields__)


def test_fields_of_identities() -> None:
    (row,) = [row for row in _table("## manifest.json") if row[0] == "`identity`"]
    assert re.findall(r"`(\w+)`", row[1]) == list(Identity.__struct_fields__)


# ---- names, versions, topics


def test_tree_names_the_files_of_the_code() -> None:
    tree = PAGE.partition("```\nDATA/\n")[2].partition("```")[0]
    for name in (
        LOCK_FILE,
        node.NODE_FILE,
        SNAPSHOT_FILE,
        f"{journal.DIRECTORY}/",
        journal.MARK_FILE.rpartition("/")[2],
        f"{PARTITIONS}/",
        manifest.NAME,
        f"{segment_name(4096, 3)}.log",
        f"{segment_name(4096, 3)}.idx",
        producers.NAME,
        f"{pins.PINS}/",
        pins.EXPIRES,
        f"{QUARANTINE}/",
    ):
        assert re.search(rf"^ +{re.escape(name)}", tree, re.MULTILINE), name
    assert aside_of("NAME") == "NAME.new"
    assert "`NAME.new`" in PAGE


def test_names_of_partition_directories() -> None:
    long = Identity(partition_id=7, topic="a/b" + "x" * 200, partition=2, topic_id="")
    name = directory_name(long)
    assert name.startswith("7-a~b")
    assert name.endswith("-2")
    (most,) = re.findall(r"names longer than (\d+) characters are cut", " ".join(PAGE.split()))
    assert len(name) == len("7-") + int(most) + len("-2")


def test_versions_are_those_of_the_code() -> None:
    assert {row[1] for row in _table("## node.json") if row[0] == "`format`"} == {str(node.FORMAT)}
    formats = {row[1] for row in _table("## manifest.json") if row[0] == "`format`"}
    assert formats == {str(manifest.FORMAT)}
    rows = _table("The feature level says what the data uses.")
    levels = [int(row[0]) for row in rows]
    assert levels == list(range(node.FEATURE_LEVEL_MIN, node.FEATURE_LEVEL + 1))
    said = {int(row[0]): row[1] for row in rows}
    for event, level in LEVELS.items():
        assert f"`{event.__name__}`" in said[level]
    assert "seeded checksums" in said[node.TAGGED_FILES_LEVEL]


def test_internal_topics_are_those_of_the_code() -> None:
    assert {*_names(_table("## Internal topics"))} == {
        METADATA_TOPIC,
        OFFSETS_TOPIC,
        TRANSACTIONS_TOPIC,
        STAGING_TOPIC,
        PUBLICATIONS_TOPIC,
        DELAYED_TOPIC,
        POSITIONS_TOPIC,
        CURSUS_TOPIC,
        ROCKETMQ_TOPIC,
    }


def test_directory_of_a_broker_holds_what_the_page_names(tmp_path: Path) -> None:
    with (
        EphemeralBroker(storage="directory", directory=str(tmp_path)) as broker,
        BlockingKafkaClient(broker.bootstrap_servers) as client,
    ):
        client.create_topic(NewTopic(name="orders", partitions=2))
        client.produce_records("orders", [NewRecord(value=b"3 apples", partition=0)])
    names = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    known = re.compile(
        r"lock|node\.json|metadata\.snapshot|journal(/mark|/\d{8}\.jnl)?|pins|quarantine|spool|history(/(15s|5m)-\d{8})?|"
        r"partitions(/\d+-[^/]+-\d+"
        r"(/manifest\.json|/\d{20}\.\d+\.(log|idx)|/producers\.snapshot)?)?"
    )
    assert any(name.endswith(".log") for name in names)
    assert [name for name in names if not known.fullmatch(name)] == []
