"""Messages of `pgoutput` as bytes: what a server would send, for tests without one."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.constants import EPOCH_US

#: Kinds that name their transaction in a streamed block.
STREAMED = (m.Relation, m.Type, m.Insert, m.Update, m.Delete, m.Truncate, m.LogicalMessage)


def encode(message: m.Message, *, in_block: bool = False) -> bytes:
    kind, fields = _fields(message)
    if in_block and isinstance(message, STREAMED):
        kind += struct.pack(">I", message.xid)
    return kind + fields


def row_bytes(row: m.Row) -> bytes:
    pieces = [struct.pack(">H", len(row))]
    for text in row:
        if text is None:
            pieces.append(b"n")
        elif isinstance(text, bytes):
            pieces += (b"t", struct.pack(">I", len(text)), text)
        else:
            pieces.append(b"u")
    return b"".join(pieces)


def _name(text: str) -> bytes:
    return text.encode() + b"\0"


def _schema(text: str) -> bytes:
    return _name("" if text == "pg_catalog" else text)


def _column(column: m.Column) -> bytes:
    place = struct.pack(">Ii", column.type_oid, column.modifier)
    return bytes((column.is_key,)) + _name(column.name) + place


def _numbers(form: str, *numbers: int) -> bytes:
    return struct.pack(form, *numbers)


def _old(row: m.Row, is_whole: bool) -> bytes:
    return (b"O" if is_whole else b"K") + row_bytes(row)


def _columns(columns: Sequence[m.Column]) -> bytes:
    return struct.pack(">H", len(columns)) + b"".join(map(_column, columns))


def _fields(message: m.Message) -> tuple[bytes, bytes]:
    match message:
        case m.Begin(lsn, time, xid):
            return b"B", _numbers(">QqI", lsn, time - EPOCH_US, xid)
        case m.Commit(lsn, end, time):
            return b"C", _numbers(">BQQq", 0, lsn, end, time - EPOCH_US)
        case m.Origin(lsn, name):
            return b"O", _numbers(">Q", lsn) + _name(name)
        case m.Relation(_, number, schema, name, identity, columns):
            head = _numbers(">I", number) + _schema(schema) + _name(name) + identity.encode()
            return b"R", head + _columns(columns)
        case m.Type(_, oid, schema, name):
            return b"Y", _numbers(">I", oid) + _schema(schema) + _name(name)
        case m.Insert(_, relation, new):
            return b"I", _numbers(">I", relation) + b"N" + row_bytes(new)
        case m.Update(_, relation, new, old, is_whole):
            before = b"" if old is None else _old(old, is_whole)
            return b"U", _numbers(">I", relation) + before + b"N" + row_bytes(new)
        case m.Delete(_, relation, old, is_whole):
            return b"D", _numbers(">I", relation) + _old(old, is_whole)
        case m.Truncate(_, relations, cascades, restarts):
            flags = cascades | restarts << 1
            return b"T", _numbers(f">IB{len(relations)}I", len(relations), flags, *relations)
        case m.LogicalMessage(_, transactional, lsn, prefix, content):
            head = _numbers(">BQ", transactional, lsn) + _name(prefix)
            return b"M", head + _numbers(">I", len(content)) + content
        case _:
            return _transaction_fields(message)


def _transaction_fields(message: m.Message) -> tuple[bytes, bytes]:
    match message:
        case m.StreamStart(xid, is_first):
            return b"S", _numbers(">IB", xid, is_first)
        case m.StreamStop():
            return b"E", b""
        case m.StreamCommit(xid, lsn, end, time):
            return b"c", _numbers(">IBQQq", xid, 0, lsn, end, time - EPOCH_US)
        case m.StreamAbort(xid, sub_xid, 0, 0):
            return b"A", _numbers(">II", xid, sub_xid)
        case m.StreamAbort(xid, sub_xid, lsn, time):
            return b"A", _numbers(">IIQq", xid, sub_xid, lsn, time - EPOCH_US)
        case m.BeginPrepare(lsn, end, time, xid, gid):
            return b"b", _numbers(">QQqI", lsn, end, time - EPOCH_US, xid) + _name(gid)
        case m.Prepare(lsn, end, time, xid, gid):
            return b"P", _numbers(">BQQqI", 0, lsn, end, time - EPOCH_US, xid) + _name(gid)
        case m.CommitPrepared(lsn, end, time, xid, gid):
            return b"K", _numbers(">BQQqI", 0, lsn, end, time - EPOCH_US, xid) + _name(gid)
        case m.StreamPrepare(lsn, end, time, xid, gid):
            return b"p", _numbers(">BQQqI", 0, lsn, end, time - EPOCH_US, xid) + _name(gid)
        case m.RollbackPrepared(before, end, prepared, time, xid, gid):
            times = (prepared - EPOCH_US, time - EPOCH_US)
            return b"r", _numbers(">BQQqqI", 0, before, end, *times, xid) + _name(gid)
    raise AssertionError(message)
