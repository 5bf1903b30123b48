"""What a real PostgreSQL replicates, read without the capturing process."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
from psycopg.pq import ExecStatus

from dragoman.protocols.postgres import codec
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import Decoder
from dragoman.protocols.postgres.constants import SESSION_SETTINGS
from dragoman.types import Lsn

DEADLINE_S = 60

#: As libpq's parameter `options`, which a replicating connection takes as well.
_OPTIONS = " ".join(
    f"-c {name}={value}" for name, value in SESSION_SETTINGS.items() if name != "client_encoding"
)


def session(dsn: str, **parameters: str) -> psycopg.Connection[tuple[object, ...]]:
    """One whose rows have the text that values are decoded from."""
    return psycopg.connect(
        dsn, options=_OPTIONS, client_encoding="UTF8", autocommit=True, **parameters
    )


def create_slot(dsn: str, slot: str, *, two_phase: bool = False) -> None:
    with session(dsn) as connection:
        connection.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, %s)",
            (slot, two_phase),
        )


def read_frames(dsn: str, slot: str, publication: str, version: int, *options: str) -> list[bytes]:
    """Messages that the slot has, up to what was in the log when this was called."""
    with session(dsn) as connection:
        (end,) = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()  # type: ignore[misc]
    wanted = codec.parse_lsn(str(end))
    with closing(session(dsn, replication="database")) as connection:
        return [
            frame[codec.MESSAGE_START :]
            for frame in _frames(connection, slot, publication, version, options, wanted)
        ]


def _frames(
    connection: psycopg.Connection[tuple[object, ...]],
    slot: str,
    publication: str,
    version: int,
    options: tuple[str, ...],
    wanted: int,
) -> Iterator[bytes]:
    settings = ", ".join(
        (f"proto_version '{version}'", f"publication_names '{publication}'", *options)
    )
    command = f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({settings})"
    server = connection.pgconn
    started = server.exec_(command.encode())
    assert started.status == ExecStatus.COPY_BOTH, started.error_message
    deadline = time.monotonic() + DEADLINE_S
    while True:
        size, data = server.get_copy_data(1)
        if size == 0:
            select.select([server.socket], [], [], 0.1)
            server.consume_input()
            assert time.monotonic() < deadline, "the server sends nothing more"
            continue
        assert size > 0, server.error_message
        frame = codec.decode_frame(bytes(data))
        if isinstance(frame, codec.WalData):
            yield bytes(data)
        elif frame.wal_end >= wanted:
            return
        elif frame.wants_reply:
            server.put_copy_data(codec.encode_status(Lsn(0), frame.time_us))


def decoded(frames: list[bytes], version: int) -> list[m.Message]:
    decoder = Decoder(version)
    return [decoder.decode(frame) for frame in frames]
