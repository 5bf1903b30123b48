"""Encodes changes of rows as records.

    message and transaction → table → envelope's value, key and headers → partition

The encoder does no I/O and reads no clock. When it needs to know a topic, it raises `TopicNeeded`
before it changes any state, so that the caller can retry the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from dragoman.captures.definition import Definition, any_matches, table_matches
from dragoman.captures.topics import channel_topic, is_dotted, mark_topics, table_topic, topic_apart
from dragoman.cdc.events import marks
from dragoman.cdc.events.envelopes import (
    DebeziumEnvelope,
    Envelope,
    FlatEnvelope,
    PgcdcEnvelope,
    debezium_form,
)
from dragoman.cdc.events.payloads import Outbox, key_in, operation_and_value
from dragoman.cdc.events.records import (
    EventRecord,
    TopicNeeded,
    Transaction,
    headers_bytes,
    headers_opening,
    partitioner,
    source_headers,
    unique_id,
)
from dragoman.cdc.events.tables import Table, check_patterns
from dragoman.errors import CdcError
from dragoman.limits import CAPTURE_TOPICS_MAX
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.messages import UNCHANGED, Row
from dragoman.protocols.postgres.types import Kind, Types
from dragoman.protocols.postgres.values import Form, form_of

Change: TypeAlias = m.Insert | m.Update | m.Delete | m.Truncate
_log = logging.getLogger(__name__)
_DEFAULT = "default"


class CapturedTable:
    """A table with its envelope, and the first headers of its events."""

    def __init__(self, table: Table, envelope: Envelope) -> None:
        self.table = table
        self.envelope = envelope
        self.topic = table.topic
        self.has_key = table.has_key
        self.inserted = headers_opening(table.channel, "INSERT")
        self.updated = headers_opening(table.channel, "UPDATE")
        self.deleted = headers_opening(table.channel, "DELETE")
        self.truncated = headers_opening(table.channel, "TRUNCATE")
        self.snapshotted = headers_opening(table.channel, "SNAPSHOT")


class Encoder:
    def __init__(self, definition: Definition, *, database: str, system: str) -> None:
        """`system` is the identifier of the database system, on which event ids depend."""
        check_patterns(definition)
        self._definition = definition
        self._database = database
        self._system = system
        self._source = source_headers(definition.name, database)
        self._types = Types()
        #: By relation id, the input of each table: description, primary key, kinds of columns.
        self._looks: dict[int, tuple[m.Relation, tuple[str, ...], list[Kind]]] = {}
        #: By relation id; None for a table that is not captured.
        self._tables: dict[int, CapturedTable | Outbox | None] = {}
        #: By topic, the number of its partitions.
        self.partitions: dict[str, int] = {}
        self._partitioners: dict[str, tuple[int, Callable[[bytes], int]]] = {}
        self._notifications = 0
        self._warned_of_updates = False
        #: By topic, the captured tables whose names map to it.
        self._sharing: dict[str, set[tuple[str, str]]] = {}
        self._mark_topics = mark_topics(definition)
        #: Current warnings, by subject.
        self._warnings: dict[tuple[str, str], str] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings.values())

    # ---- descriptions of tables

    def learn_types(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Learn types from rows of `types.TYPES_QUERY`."""
        self._types.learn(rows)

    def type(self, message: m.Type) -> None:
        self._types.learn_message(message)

    def unknown_types(self, relation: m.Relation) -> tuple[int, ...]:
        """Types to look up and pass to `learn_types`. An unknown type is not an error."""
        return self._types.unknown(relation)

    def relation(
        self,
        relation: m.Relation,
        primary_key: Sequence[str] = (),
        transaction: Transaction | None = None,
    ) -> list[EventRecord]:
        """Store the description of a table. Returns a schema change event for it, if configured.

        `primary_key` matters only for replica identity FULL. Raises `ConfigError` when the
        capture's settings do not fit the table.
        """
        kinds = [self._types.kind(column.type_oid) for column in relation.columns]
        look = (msgspec.structs.replace(relation, xid=0), tuple(primary_key), kinds)
        before = self._looks.get(relation.id)
        if look == before:
            # The server repeats a description whenever the table may have changed.
            return []
        captured = self._captured(relation, primary_key)
        if isinstance(captured, CapturedTable):
            self._move_apart(relation)
        records: list[EventRecord] = []
        if (
            self._definition.schema_changes
            and transaction is not None
            and captured is not None
            and (before is None or _shape(before[0]) != _shape(relation))
        ):
            known = None if before is None else before[0]
            value = marks.schema_value(known, relation, self._types)
            records = self._mark(marks.SCHEMAS, "SCHEMA_CHANGE", value, transaction)
        self._looks[relation.id] = look
        self._tables[relation.id] = captured
        return records

    def table(self, relation: m.Relation, primary_key: Sequence[str] = ()) -> CapturedTable:
        """The table that encodes rows of a snapshot. Raises `ConfigError`."""
        definition = self._definition
        self._note_tables([(relation.schema, relation.name)])
        topic = self._table_topic(relation.schema, relation.name)
        table = Table(definition, topic, relation, primary_key, self._form)
        envelope: Envelope
        match definition.envelope:
            case "pgcdc":
                envelope = PgcdcEnvelope(table)
            case "debezium":
                envelope = DebeziumEnvelope(table, definition.name, self._database)
            case "flat":
                envelope = FlatEnvelope(table)
        return CapturedTable(table, envelope)

    def outbox(self, relation: m.Relation) -> Outbox | None:
        """The outbox, if the table is one."""
        wanted = self._definition.outbox
        if not wanted or not table_matches(wanted, relation.schema, relation.name):
            return None
        return Outbox(self._definition, self._database, relation, self._types)

    def _captured(
        self, relation: m.Relation, primary_key: Sequence[str]
    ) -> CapturedTable | Outbox | None:
        if (outbox := self.outbox(relation)) is not None:
            return outbox
        if not any_matches(self._definition.tables, relation.schema, relation.name):
            return None
        return self.table(relation, primary_key)

    def _form(self, column: m.Column) -> Form:
        kind = self._types.kind(column.type_oid)
        if self._definition.envelope == "debezium":
            return debezium_form(kind, column)
        return form_of(kind)

    # ---- columns that were added

    def new_columns(self, relation: m.Relation, primary_key: Sequence[str] = ()) -> tuple[str, ...]:
        """The columns shown in events that the table's previous description did not have."""
        before = self._looks.get(relation.id)
        if before is None or before[0].columns == relation.columns:
            return ()
        known = {column.name for column in before[0].columns}
        captured = self._captured(relation, primary_key)
        if not isinstance(captured, CapturedTable):
            return ()
        return tuple(each.name for each in captured.table.fields if each.name not in known)

    def filled_by_default(self, relation: m.Relation, columns: Sequence[str]) -> None:
        """Warn about columns that were added with a default, because PostgreSQL applies it to
        existing rows without changes in the WAL.
        """
        label, names = f"{relation.schema}.{relation.name}", ", ".join(columns)
        text = (
            f"{names} was added to {label} with a default: earlier records do not contain it,"
            f" although their rows in the database do; `dragoman cdc snapshot"
            f" {self._definition.name} --tables {label}` sends the rows again"
        )
        _log.warning("capture %s: %s", self._definition.name, text)
        self._warnings[label, _DEFAULT] = text

    # ---- changes

    def change(self, message: Change, transaction: Transaction) -> list[EventRecord]:
        if type(message) is m.Truncate:
            return self._truncate(message, transaction)
        assert not isinstance(message, m.Truncate)
        table = self._known(message.relation_id)
        if type(table) is not CapturedTable:
            return self._outbox_change(table, message, transaction)
        partition = self._partitioner(table.topic)
        if self._definition.transactions:
            transaction.counts[table.table.label] = transaction.counts.get(table.table.label, 0) + 1
        if type(message) is m.Insert:
            return [self._inserted(table, message.new, transaction, partition)]
        if type(message) is m.Update:
            return self._updated(table, message, transaction, partition)
        assert isinstance(message, m.Delete)
        return self._deleted(table, message.old, message.is_old_whole, transaction, partition)

    def _known(self, relation_id: int) -> CapturedTable | Outbox | None:
        try:
            return self._tables[relation_id]
        except KeyError:
            raise CdcError(f"a change of table {relation_id}, which was not described") from None

    def _inserted(
        self,
        table: CapturedTable,
        new: Row,
        transaction: Transaction,
        partition: Callable[[bytes], int],
    ) -> EventRecord:
        value = table.envelope.insert(new, transaction, transaction.seq + 1)
        key = table.envelope.key(new) if table.has_key else None
        return self._record(table, table.inserted, key, value, transaction, partition)

    def _updated(
        self,
        table: CapturedTable,
        message: m.Update,
        transaction: Transaction,
        partition: Callable[[bytes], int],
    ) -> list[EventRecord]:
        new, old, is_whole = message.new, message.old, message.is_old_whole
        if old is not None:
            new = _filled(new, old, is_whole)
            if table.has_key and table.envelope.key(old) != table.envelope.key(new):
                # Ordering holds per key and partition, so an update that changes the key sends an
                # event to each of the two keys.
                if self._definition.transactions:
                    transaction.counts[table.table.label] += 1
                records = self._deleted(table, old, is_whole, transaction, partition)
                return [*records, self._inserted(table, new, transaction, partition)]
        value = table.envelope.update(new, old, is_whole, transaction, transaction.seq + 1)
        key = table.envelope.key(new) if table.has_key else None
        return [self._record(table, table.updated, key, value, transaction, partition)]

    def _deleted(
        self,
        table: CapturedTable,
        old: Row,
        is_whole: bool,
        transaction: Transaction,
        partition: Callable[[bytes], int],
    ) -> list[EventRecord]:
        value = table.envelope.delete(old, is_whole, transaction, transaction.seq + 1)
        key = table.envelope.key(old) if table.has_key else None
        record = self._record(table, table.deleted, key, value, transaction, partition)
        if key is None or not self._definition.tombstones:
            return [record]
        # The tombstone has the same headers, because compaction leaves only the tombstone.
        place = (record.topic, record.partition, key)
        return [record, EventRecord(*place, None, record.headers, record.timestamp)]

    def _truncate(self, message: m.Truncate, transaction: Transaction) -> list[EventRecord]:
        tables = [self._known(number) for number in message.relation_ids]
        captured = [each for each in tables if isinstance(each, CapturedTable)]
        for table in captured:
            self._partitioner(table.topic)
        records = []
        for table in captured:
            if self._definition.transactions:
                label = table.table.label
                transaction.counts[label] = transaction.counts.get(label, 0) + 1
            value = table.envelope.truncate(transaction, transaction.seq + 1)
            first = self._record(table, table.truncated, None, value, transaction, lambda _: 0)
            # Every partition gets the event, because a reader may read only one partition.
            records += [
                EventRecord(
                    first.topic, partition, first.key, value, first.headers, first.timestamp
                )
                for partition in range(self.partitions[table.topic])
            ]
        return records

    def _record(
        self,
        table: CapturedTable,
        opening: bytes,
        key: bytes | None,
        value: bytes,
        transaction: Transaction,
        partition: Callable[[bytes], int],
    ) -> EventRecord:
        """Make the next event of the transaction."""
        seq = self._next(transaction)
        headers = transaction.headers(opening, seq)
        if key is not None:
            number = partition(key)
        else:
            event_id = transaction.event_id(seq)
            number = partition(event_id)
            key = None if self._definition.envelope == "debezium" else event_id
        return EventRecord(table.topic, number, key, value, headers, transaction.time_ms)

    def _next(self, transaction: Transaction) -> int:
        if transaction.system != self._system:
            transaction.belong_to(self._system, self._source)
        transaction.seq += 1
        return transaction.seq

    # ---- outbox

    def _outbox_change(
        self,
        table: Outbox | CapturedTable | None,
        message: m.Insert | m.Update | m.Delete,
        transaction: Transaction,
    ) -> list[EventRecord]:
        if not isinstance(table, Outbox):
            return []
        if isinstance(message, m.Insert):
            return self.outbox_row(table, message.new, transaction)
        if isinstance(message, m.Update) and not self._warned_of_updates:
            self._warned_of_updates = True
            name = f"{table.relation.schema}.{table.relation.name}"
            _log.warning("a row of outbox %s was updated: only inserted ones are sent", name)
        return []

    def outbox_row(self, outbox: Outbox, row: Row, transaction: Transaction) -> list[EventRecord]:
        topic, key, value = outbox.topic(row), outbox.key(row), outbox.value(row)
        partition = self._partitioner(topic)(key)
        seq = self._next(transaction)
        headers = outbox.headers(row, transaction, seq)
        return [EventRecord(topic, partition, key, value, headers, transaction.time_ms)]

    # ---- snapshots

    def snapshot_row(
        self, table: CapturedTable, row: Row, transaction: Transaction
    ) -> list[EventRecord]:
        partition = self._partitioner(table.topic)
        value = table.envelope.snapshot(row, transaction, transaction.seq + 1)
        key = table.envelope.key(row) if table.has_key else None
        return [self._record(table, table.snapshotted, key, value, transaction, partition)]

    def snapshot_started(self, table: CapturedTable, transaction: Transaction) -> list[EventRecord]:
        return self._snapshot_mark("SNAPSHOT_STARTED", table, None, transaction)

    def snapshot_completed(
        self, table: CapturedTable, rows: int, transaction: Transaction
    ) -> list[EventRecord]:
        records = self._snapshot_mark("SNAPSHOT_COMPLETED", table, rows, transaction)
        self._warnings.pop((table.table.label, _DEFAULT), None)
        return records

    def _snapshot_mark(
        self, operation: str, table: CapturedTable, rows: int | None, transaction: Transaction
    ) -> list[EventRecord]:
        value = marks.snapshot_value(operation, self._definition.name, table.table, rows)
        return self._mark(marks.SNAPSHOTS, operation, value, transaction)

    # ---- marks

    def begin(self, transaction: Transaction) -> list[EventRecord]:
        if not self._definition.transactions:
            return []
        value = marks.begin_value(transaction)
        return self._mark(marks.TRANSACTIONS, "BEGIN", value, transaction)

    def commit(self, transaction: Transaction) -> list[EventRecord]:
        if not self._definition.transactions:
            return []
        value = marks.commit_value(transaction)
        return self._mark(marks.TRANSACTIONS, "COMMIT", value, transaction)

    def heartbeat(self, transaction: Transaction) -> list[EventRecord]:
        value = marks.heartbeat_value(self._definition.name, transaction)
        return self._mark(marks.HEARTBEATS, "HEARTBEAT", value, transaction)

    def _mark(
        self, channel: str, operation: str, value: bytes, transaction: Transaction
    ) -> list[EventRecord]:
        topic = channel.replace(":", ".")
        key = self._definition.name.encode()
        partition = self._partitioner(topic, marks.MARK_PARTITIONS)(key)
        seq = self._next(transaction)
        headers = transaction.headers(headers_opening(channel, operation), seq)
        return [EventRecord(topic, partition, key, value, headers, transaction.time_ms)]

    # ---- notifications

    def notification(self, channel: str, payload: str, now_us: int) -> list[EventRecord]:
        """The event of a NOTIFY. It has neither a transaction nor a position."""
        topic = channel_topic(channel)
        partition = self._partitioner(topic)
        operation, value = operation_and_value(payload)
        self._notifications += 1
        event_id = unique_id(
            now_us // 1000, self._system, channel, payload, now_us, self._notifications
        )
        key = key_in(payload) or event_id
        headers = headers_bytes(
            (
                ("pgcdc-channel", channel.encode()),
                ("pgcdc-operation", operation.encode()),
                ("pgcdc-event-id", event_id),
                ("pgcdc-capture", self._definition.name.encode()),
                ("pgcdc-database", self._database.encode()),
            )
        )
        return [EventRecord(topic, partition(key), key, value, headers, now_us // 1000)]

    # ---- topics

    def topics_to_be(self, tables: Iterable[tuple[str, str]]) -> list[TopicNeeded]:
        """The topics of tables, given by schema and name, and of channels. An outbox has none: each
        of its rows names a topic. Raises `ConfigError` as `relation` does.
        """
        definition = self._definition
        names = [channel_topic(each) for each in definition.channels]
        captured = [
            (schema, name)
            for schema, name in tables
            if any_matches(definition.tables, schema, name)
            and not (definition.outbox and table_matches(definition.outbox, schema, name))
        ]
        self._note_tables(captured)
        names += [self._table_topic(*each) for each in captured]
        # Truncated at the bound: the first event of a topic beyond it raises the error.
        distinct = list(dict.fromkeys(names))[:CAPTURE_TOPICS_MAX]
        return [TopicNeeded(each, definition.partitions) for each in distinct]

    def _note_tables(self, tables: Iterable[tuple[str, str]]) -> None:
        for schema, name in tables:
            topic = table_topic(self._definition, self._database, schema, name)
            self._sharing.setdefault(topic, set()).add((schema, name))

    def _table_topic(self, schema: str, name: str) -> str:
        """The topic of a registered table: a substitute if another table or the marks use its
        own.
        """
        topic = table_topic(self._definition, self._database, schema, name)
        others = self._sharing[topic] - {(schema, name)}
        is_apart = others and is_dotted(self._definition, schema, name)
        if not is_apart and topic not in self._mark_topics:
            return topic
        apart = topic_apart(topic, schema, name)
        known = ", ".join(sorted(f"{each[0]}.{each[1]}" for each in others)) or "events of its own"
        text = (
            f"{schema}.{name} goes to the topic {apart}, since {topic} is that of {known};"
            f" --topic of a capture names another"
        )
        if self._warnings.get((schema, name)) != text:
            _log.warning("capture %s: %s", self._definition.name, text)
            self._warnings[schema, name] = text
        return apart

    def _move_apart(self, relation: m.Relation) -> None:
        """Move tables with dots in their names off the topic of a new table."""
        name = table_topic(self._definition, self._database, relation.schema, relation.name)
        if len(self._sharing.get(name, ())) < 2:
            return
        for number, table in list(self._tables.items()):
            if not isinstance(table, CapturedTable) or number == relation.id:
                continue
            shown = table.table.relation
            if table.topic != self._table_topic(shown.schema, shown.name):
                looks = self._looks[number]
                self._tables[number] = self.table(looks[0], looks[1])

    def _partitioner(self, topic: str, wanted: int = 0) -> Callable[[bytes], int]:
        count = self.partitions.get(topic)
        if count is None:
            if len(self.partitions) >= CAPTURE_TOPICS_MAX:
                raise CdcError(
                    f"the capture has {CAPTURE_TOPICS_MAX} topics, and {topic} would be one more: "
                    "name fewer, in topics or in the outbox's aggregatetype"
                )
            raise TopicNeeded(topic, wanted or self._definition.partitions)
        known = self._partitioners.get(topic)
        if known is None or known[0] != count:
            known = self._partitioners[topic] = (count, partitioner(count))
        return known[1]


def _shape(relation: m.Relation) -> tuple[object, ...]:
    return relation.schema, relation.name, relation.columns


def _filled(new: Row, old: Row | None, is_whole: bool) -> Row:
    """The new row, with unchanged values filled in from the old row where available."""
    if old is None or UNCHANGED not in new:
        return new
    return [
        before if now is UNCHANGED and (is_whole or before is not None) else now
        for now, before in zip(new, old, strict=True)
    ]
