"""`dragoman group reset`: moves the committed offsets of a group without members.

The node says first what the reset would change. What was shown is what is committed, because a
place such as `@-15m` moves on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from cyclopts import Parameter

from dragoman.api.group_values import OffsetChange, OffsetChanges, OffsetReset, PartitionOffset
from dragoman.api.places import PLACES, place_of
from dragoman.cli.completers import GroupName
from dragoman.cli.confirmation import DryRun, Yes, ask, refuse_unasked
from dragoman.cli.offset_file import offsets_in
from dragoman.cli.output import Output, Table, note, show
from dragoman.cli.remote import CHECK_ONLY, DEFAULT_SERVER, Remote, Server, group_path
from dragoman.cli.status import USAGE, CommandError
from dragoman.plural import plural

_FILE: Final = "file:"
#: Partitions behind the name of a topic.
_PARTITIONS: Final = re.compile(r"(.+):([0-9]{1,9}(?:,[0-9]{1,9})*)", re.DOTALL)
#: By topic, the chosen partitions, or None for all; empty: all partitions with an offset.
_Choice: TypeAlias = Mapping[str, Collection[int] | None]
#: Offsets that a question lists.
_LISTED_MAX = 20


class MovedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the output of `group reset`."""

    topic: str
    partition: int
    #: Null: nothing was committed.
    committed_offset: int | None
    #: The new one.
    offset: int
    #: How many records are skipped, or with a minus sign read again; null without a committed
    #: offset.
    records: int | None


def reset(
    name: GroupName,
    /,
    *,
    to: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help=f"New position: {PLACES}, shift:N from the committed offset, or file:PATH with "
            "CSV or JSON of topic, partition and offset.",
        ),
    ],
    topic: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Move the committed offsets of a group. Refused while the group has members.

    Parameters
    ----------
    name
        Group to reset.
    topic
        Topic to reset, with partitions such as orders:0,1 if not all; may be repeated. By default
        all partitions with a committed offset.

    Examples
    --------
    dragoman group reset reports --to @-15m --topic orders --dry-run
    dragoman group reset reports --to earliest --topic orders:0,1 --yes
    dragoman group reset reports --to file:offsets.csv --yes
    """
    if not name:
        raise CommandError("NAME: expected the name of a group, got an empty one", USAGE)
    chosen = _chosen(topic)
    wanted = _wanted(to, chosen)
    if not (yes or dry_run):
        refuse_unasked("group reset")
    remote, path = Remote(server), f"{group_path(name)}/reset"
    checked = remote.post(path + CHECK_ONLY, wanted, OffsetChanges)
    changes = [each for each in checked.items if _is_chosen(chosen, each.topic, each.partition)]
    _require_all(chosen, changes, to)
    if not changes:
        raise CommandError(f"group {name!r} has no committed offsets; give --topic NAME")
    moves = list(map(_move, changes))
    count = plural(len(moves), "offset")
    if dry_run:
        show(output, moves, MovedOffset, _moves_table(moves))
        note(output, f"would move {count} of group {name!r}")
        return
    if not yes:
        ask(f"{_moves_text(moves)}\nMove {count} of group {name!r}?")
    shown = tuple(
        PartitionOffset(topic=each.topic, partition=each.partition, offset=each.after)
        for each in changes
    )
    remote.post(path, OffsetReset(offsets=shown), OffsetChanges)
    show(output, moves, MovedOffset, _moves_table(moves))
    note(output, f"moved {count} of group {name!r}")


def _chosen(topics: Sequence[str]) -> _Choice:
    found: dict[str, set[int] | None] = {}
    for each in topics:
        if not each:
            raise CommandError("--topic: expected the name of a topic, got an empty one", USAGE)
        parts = _PARTITIONS.fullmatch(each)
        if parts is None:
            found[each] = None
            continue
        known = found.setdefault(parts[1], set())
        if known is not None:
            known.update(map(int, parts[2].split(",")))
    return found


def _wanted(to: str, chosen: _Choice) -> OffsetReset:
    if to.startswith(_FILE):
        offsets = tuple(
            each
            for each in offsets_in(to.removeprefix(_FILE))
            if not chosen or _is_chosen(chosen, each.topic, each.partition)
        )
        if not offsets:
            raise CommandError(f"{to.removeprefix(_FILE)} has no offsets of these topics", USAGE)
        return OffsetReset(offsets=offsets)
    try:
        place_of(to, time.time_ns() // 1_000_000, with_shift=True)
    except ValueError as error:
        raise CommandError(f"--to: {error}", USAGE) from None
    return OffsetReset(to=to, topics=tuple(chosen))


def _is_chosen(chosen: _Choice, topic: str, partition: int) -> bool:
    if not chosen:
        return True
    partitions = chosen.get(topic, frozenset[int]())
    return partitions is None or partition in partitions


def _require_all(chosen: _Choice, changes: Sequence[OffsetChange], to: str) -> None:
    """Raises `CommandError` for a chosen partition that the reset does not reach."""
    found = {(each.topic, each.partition) for each in changes}
    for topic, partitions in chosen.items():
        for each in sorted(partitions or ()):
            if (topic, each) not in found:
                why = "has no offset for" if to.startswith(_FILE) else "does not reach"
                raise CommandError(f"--to {to} {why} partition {each} of topic {topic!r}")


def _move(change: OffsetChange) -> MovedOffset:
    return MovedOffset(
        topic=change.topic,
        partition=change.partition,
        committed_offset=change.before,
        offset=change.after,
        records=None if change.before is None else change.after - change.before,
    )


def _moves_table(moves: Sequence[MovedOffset]) -> Table:
    return Table(
        ("TOPIC", "PARTITION", "COMMITTED", "NEW", "SKIPPED", "READ AGAIN"),
        (
            (
                each.topic,
                each.partition,
                each.committed_offset,
                each.offset,
                None if each.records is None else max(0, each.records),
                None if each.records is None else max(0, -each.records),
            )
            for each in moves
        ),
    )


def _moves_text(moves: Sequence[MovedOffset]) -> str:
    lines = [
        f"topic {each.topic!r}, partition {each.partition}: from "
        f"{'nothing' if each.committed_offset is None else each.committed_offset} to {each.offset}"
        f"{_effect(each)}"
        for each in moves
        if each.records != 0
    ]
    more = len(lines) - _LISTED_MAX
    return "\n".join(lines[:_LISTED_MAX] + ([f"and {more} more partitions"] if more > 0 else []))


def _effect(move: MovedOffset) -> str:
    if move.records is None:
        return ""
    return f", records {'skipped' if move.records > 0 else 'read again'}: {abs(move.records):,}"
