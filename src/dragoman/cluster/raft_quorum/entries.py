"""Entries of the metadata log that the quorum writes for itself, as batches.

An entry is a record batch; its offsets are its index, its leader epoch is its term. Beside the
events of proposals there are two kinds that concern the quorum: the beginning of a term and a
change of membership. Both are ordinary events, so that every reader of the log can read them.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.cluster.events import Event, TermBegan, VotersChanged, decode_event, encode_event
from dragoman.errors import DecodeError
from dragoman.log.batch import NO_TIMESTAMP, Record, build_batch, read_header, records
from dragoman.raft.membership import Membership
from dragoman.types import Buffer

_MEMBERSHIP_TAG = str(VotersChanged.__struct_config__.tag).encode()


def event_batch(events: Sequence[Event], timestamp: int = NO_TIMESTAMP) -> bytearray:
    return build_batch([Record(value=encode_event(each), timestamp=timestamp) for each in events])


def events_in(batch: Buffer) -> list[Event]:
    """Raises `FormatError` for events of a newer release, `DecodeError` for what is no batch."""
    view = memoryview(batch)
    return [decode_event(_value(each)) for each in records(view, read_header(view))]


def _value(record: Record) -> bytes:
    if record.value is None:
        raise DecodeError(f"metadata record at {record.offset} has no value")
    return record.value


class MetadataEntries:
    """The port of the Raft core by which it writes and reads entries of its own."""

    def term_batch(self, leader: int) -> bytearray:
        return event_batch([TermBegan(leader=leader)])

    def membership_batch(self, membership: Membership) -> bytearray:
        return event_batch([VotersChanged(voters=membership.voters, learners=membership.learners)])

    def membership_in(self, batch: Buffer) -> Membership | None:
        # Batches of metadata are not compressed, and very few contain this tag.
        if _MEMBERSHIP_TAG not in bytes(batch):
            return None
        for event in events_in(batch):
            if isinstance(event, VotersChanged):
                return Membership(event.voters, event.learners)
        return None
