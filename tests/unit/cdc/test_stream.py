"""What the database sends, in the order of its commits: each kind of transaction, by its messages.

The messages are built here; the encoder is the real one, the log a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import pack

import pytest

from captures.no_snapshots import NoSnapshots
from dragoman.captures.definition import Definition
from dragoman.cdc.events import Encoder, EventRecord, TopicNeeded, Transaction
from dragoman.cdc.position import Position
from dragoman.cdc.spool import Spool
from dragoman.cdc.stream import Counts, SnapshotChunk, Stream
from dragoman.errors import DecodeError
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import Decoder

TABLE, OTHER = 16384, 16385


def string(text: str) -> bytes:
    return text.encode() + b"\0"


def framed(message: bytes) -> bytes:
    return b"w" + pack(">QQq", 1, 5000, 0) + message


def begin(lsn: int, xid: int = 7) -> bytes:
    return framed(b"B" + pack(">QqI", lsn, 0, xid))


def commit(lsn: int, end: int) -> bytes:
    return framed(b"C" + pack(">BQQq", 0, lsn, end, 0))


def relation(number: int = TABLE, name: str = "t", xid: int | None = None) -> bytes:
    body = pack(">I", number) + string("public") + string(name) + b"d" + pack(">H", 1)
    body += b"\1" + string("id") + pack(">Ii", 23, -1)
    return framed(b"R" + _xid(xid) + body)


def insert(value: int, xid: int | None = None, number: int = TABLE) -> bytes:
    text = str(value).encode()
    row = pack(">H", 1) + b"t" + pack(">I", len(text)) + text
    return framed(b"I" + _xid(xid) + pack(">I", number) + b"N" + row)


def truncate(*numbers: int) -> bytes:
    tables = b"".join(pack(">I", number) for number in numbers)
    return framed(b"T" + pack(">IB", len(numbers), 0) + tables)


def message(prefix: str, content: bytes = b"", flags: int = 1) -> bytes:
    body = pack(">BQ", flags, 1) + string(prefix) + pack(">I", len(content)) + content
    return framed(b"M" + body)


def keepalive(end: int, *, wants_reply: bool = False) -> bytes:
    return b"k" + pack(">QqB", end, 0, wants_reply)


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else pack(">I", xid)


STREAM_STOP = framed(b"E")


def stream_start(xid: int) -> bytes:
    return framed(b"S" + pack(">IB", xid, 1))


def stream_commit(xid: int, lsn: int, end: int) -> bytes:
    return framed(b"c" + pack(">IBQQq", xid, 0, lsn, end, 0))


def stream_abort(xid: int, part: int) -> bytes:
    return framed(b"A" + pack(">II", xid, part))


def prepared(kind: bytes, lsn: int, end: int, xid: int = 7) -> bytes:
    flags = b"" if kind == b"b" else b"\0"
    return framed(kind + flags + pack(">QQqI", lsn, end, 0, xid) + string("gid"))


class Log:
    """In place of the writer: what became of each transaction."""

    def __init__(self) -> None:
        self.open: list[EventRecord] = []
        self.transactions: list[tuple[list[bytes | None], int]] = []
        self.positions: list[Position] = []
        self.advances: list[int] = []

    def add(self, records: Sequence[EventRecord]) -> None:
        self.open += records

    def commit(self, position: Position) -> None:
        self.transactions.append(([each.key for each in self.open], position.lsn))
        self.positions.append(position)
        self.open = []

    def advance(self, position: Position) -> None:
        assert not self.open
        self.advances.append(position.lsn)

    async def room(self) -> None: ...


class Around:
    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.needed: list[str] = []

    async def need(self, topic: TopicNeeded) -> None:
        self.needed.append(topic.topic)
        self._encoder.partitions[topic.topic] = topic.partitions

    async def describe(self, _relation: m.Relation) -> tuple[str, ...]:
        return ()


class Desk:
    def __init__(
        self, spool: Path, position: int = 100, snapshots: NoSnapshots | None = None, **told: object
    ) -> None:
        definition = Definition(
            name="shop",
            dsn="postgresql://h/d",
            tables=("*",),
            partitions=1,
            tombstones=False,
            **told,
        )  # type: ignore[arg-type]
        self.encoder = Encoder(definition, database="d", system="1")
        self.log = Log()
        self.around = Around(self.encoder)
        self.spool = Spool(str(spool))
        self.counts = Counts()
        self.stream = Stream(
            decoder=Decoder(4),
            encoder=self.encoder,
            snapshots=snapshots or NoSnapshots(),
            spool=self.spool,
            writer=self.log,  # type: ignore[arg-type]
            catalog=self.around,
            position=Position(lsn=position),
            heartbeat_prefix="beat",
            marks=definition.transactions,
            counts=self.counts,
        )

    async def take(self, *frames: bytes) -> bool:
        return await self.stream.take(frames)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "spool")


async def test_transactions_follow_each_other(desk: Desk) -> None:
    await desk.take(begin(110), relation(), insert(1), insert(2), commit(110, 120))
    await desk.take(begin(130), insert(3), commit(130, 140))
    assert desk.log.transactions == [([b"1", b"2"], 120), ([b"3"], 140)]
    assert desk.around.needed == ["pgcdc.t"]
    assert (desk.counts.rows, desk.counts.transactions) == (3, 2)
    assert desk.stream.position.lsn == 140


async def test_what_the_log_has_is_left_out_but_for_how_tables_look(desk: Desk) -> None:
    await desk.take(begin(90), relation(), insert(1), commit(90, 100))
    assert desk.stream.position.lsn == 100
    # One that was committed exactly where the last one ended is new.
    await desk.take(begin(100), insert(2), commit(100, 110))
    assert desk.log.transactions == [([b"2"], 110)]


async def test_transaction_without_events_only_moves_the_position(desk: Desk) -> None:
    await desk.take(begin(110), commit(110, 120))
    await desk.take(begin(130), message("somebody's"), commit(130, 140))
    assert desk.log.transactions == []
    assert desk.log.advances == [120, 140]


async def test_keepalive_moves_the_position_between_transactions_only(desk: Desk) -> None:
    assert not await desk.take(keepalive(110))
    assert desk.log.advances == [110]
    assert await desk.take(begin(120), keepalive(500, wants_reply=True))
    assert desk.log.advances == [110]
    await desk.take(commit(120, 130))
    await desk.take(keepalive(125))
    assert desk.log.advances == [110, 130]
    assert desk.stream.wal_end == 5000


async def test_block_is_taken_at_its_commit_without_parts_that_were_rolled_back(
    desk: Desk,
) -> None:
    await desk.take(stream_start(7), relation(xid=7), insert(1, 7), insert(2, 8), STREAM_STOP)
    await desk.take(begin(110, 5), relation(OTHER, "u"), insert(9, number=OTHER), commit(110, 120))
    await desk.take(stream_abort(7, 8))
    await desk.take(stream_start(7), insert(3, 7), STREAM_STOP)
    assert desk.log.transactions == [([b"9"], 120)]
    await desk.take(stream_commit(7, 130, 140))
    assert desk.log.transactions[1:] == [([b"1", b"3"], 140)]
    assert desk.spool.size == 0
    # The table is known from then on.
    await desk.take(begin(150), insert(4), commit(150, 160))
    assert desk.log.transactions[2:] == [([b"4"], 160)]


async def test_block_that_is_rolled_back_leaves_nothing(desk: Desk) -> None:
    await desk.take(stream_start(7), relation(xid=7), insert(1, 7), STREAM_STOP)
    await desk.take(stream_abort(7, 7))
    assert desk.log.transactions == []
    assert desk.spool.size == 0


async def test_block_that_the_log_has_is_left_out(desk: Desk) -> None:
    await desk.take(stream_start(7), relation(xid=7), insert(1, 7), STREAM_STOP)
    await desk.take(stream_commit(7, 90, 100))
    assert desk.log.transactions == []
    await desk.take(begin(110), insert(2), commit(110, 120))
    assert desk.log.transactions == [([b"2"], 120)]


async def test_prepared_transaction_is_taken_when_it_is_prepared(desk: Desk) -> None:
    await desk.take(prepared(b"b", 110, 120), relation(), insert(1), prepared(b"P", 110, 120))
    assert desk.log.transactions == [([b"1"], 120)]
    await desk.take(prepared(b"K", 130, 140))
    assert desk.log.advances == [140]
    await desk.take(stream_start(8), insert(2, 8), STREAM_STOP, prepared(b"p", 150, 160, 8))
    assert desk.log.transactions[1:] == [([b"2"], 160)]


async def test_prepared_one_from_before_the_slot_comes_late_and_counts(desk: Desk) -> None:
    await desk.take(prepared(b"b", 50, 60), relation(), insert(1), prepared(b"P", 50, 60))
    # Its place is that of its commit: else it would be sent again after a restart.
    assert desk.log.transactions == []
    await desk.take(prepared(b"K", 130, 140))
    assert desk.log.transactions == [([b"1"], 140)]


async def test_marks_enclose_rows(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "spool", transactions=True)
    await desk.take(begin(110), relation(), insert(1), insert(2), commit(110, 120))
    ((keys, _),) = desk.log.transactions
    assert keys == [b"shop", b"1", b"2", b"shop"]
    # A heart-beat is no row.
    await desk.take(begin(130), message("beat"), commit(130, 140))
    assert desk.log.transactions[1:] == [([b"shop"], 140)]


async def test_heartbeat_of_this_capture_is_an_event(desk: Desk) -> None:
    await desk.take(begin(110), message("beat"), commit(110, 120))
    assert desk.around.needed == ["pgcdc._heartbeat"]
    assert desk.log.transactions == [([b"shop"], 120)]
    # One outside a transaction has no place.
    await desk.take(message("beat", flags=0))
    assert len(desk.log.transactions) == 1


async def test_truncate_names_every_table(desk: Desk) -> None:
    await desk.take(begin(110), relation(), relation(OTHER, "u"), truncate(TABLE, OTHER))
    await desk.take(commit(110, 120))
    ((keys, _),) = desk.log.transactions
    assert len(keys) == 2
    assert desk.around.needed == ["pgcdc.t", "pgcdc.u"]


class Watching(NoSnapshots):
    """Has table `u` already, and a chunk at each of its marks."""

    is_watching = True

    def __init__(self, records: Sequence[EventRecord]) -> None:
        self._records = records
        self.begun: list[int] = []

    def begin(self, transaction: Transaction) -> None:
        self.begun.append(transaction.lsn)

    def changed(self, relation: m.Relation, _change: object) -> bool:
        return relation.name != "u"

    def message(self, prefix: str, content: bytes) -> SnapshotChunk | None:
        return (
            SnapshotChunk(iter(self._records), {"t": content.decode()})
            if prefix == "mark"
            else None
        )


async def test_snapshots_are_reported_and_chunks_are_written_with_their_progress(
    tmp_path: Path,
) -> None:
    chunk = [EventRecord("pgcdc.t", 0, key, b"{}", b"\0", 5) for key in (b"c1", b"c2")]
    watching = Watching(chunk)
    desk = Desk(tmp_path / "spool", snapshots=watching)
    await desk.take(begin(110), relation(), relation(OTHER, "u"), insert(1, number=OTHER))
    await desk.take(insert(2), truncate(TABLE, OTHER), commit(110, 120))
    await desk.take(begin(130), message("mark", b"done"), commit(130, 140))
    await desk.take(begin(150), insert(3), commit(150, 160))
    keys = [keys for keys, _ in desk.log.transactions]
    assert (len(keys[0]), keys[0][0]) == (2, b"2")
    assert keys[1:] == [[b"c1", b"c2"], [b"3"]]
    assert [each.snapshot for each in desk.log.positions] == [{}, {"t": "done"}, {"t": "done"}]
    assert watching.begun == [110, 130, 150]


@pytest.mark.parametrize(
    "frames",
    [
        (begin(110), begin(120)),
        (commit(110, 120),),
        (begin(110), relation(), insert(1, number=99)),
        (b"x",),
    ],
)
async def test_sequence_that_cannot_be_is_refused(desk: Desk, frames: tuple[bytes, ...]) -> None:
    with pytest.raises(
        Exception, match=r"begins in another|not begun|not described|begins with"
    ) as met:
        await desk.take(*frames)
    assert isinstance(met.value, DecodeError) or "not described" in str(met.value)
