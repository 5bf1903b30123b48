"""`dragoman consume`: records of a topic to stdout.

With a group, reading begins where the group is, and what was printed is committed. The group is not
joined: nothing is divided among several readers. Commits follow the printing, so that records at
which the command is interrupted may be printed again, and none is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.positions import Bounds, Place, bounds_of, parse_place, resolve
from dragoman.cli.record_output import DEFAULT_FORMAT, Write, compile_format, write_json
from dragoman.cli.status import OK, USAGE, CommandError
from dragoman.cli.wire import DEFAULT_BOOTSTRAP, Bootstrap, connected, refuse_live_group
from dragoman.client.kafka import (
    BlockingKafkaClient,
    BlockingReader,
    ConsumedRecord,
    Isolation,
    TopicPartition,
)

app = App(name="consume", help="Read records of a topic.")


@app.default
def consume(
    topic: str,
    /,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    start: Annotated[str, Parameter(name="--from", allow_leading_hyphen=True)] = "beginning",
    until: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-F"], negative="")] = False,
    max_records: Annotated[int | None, Parameter(name=["--max", "-c"])] = None,
    partition: Annotated[tuple[int, ...], Parameter(name=["--partition", "-p"], negative="")] = (),
    format_string: Annotated[str | None, Parameter(name=["--format", "-f"])] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
) -> int:
    r"""Print records, up to the present end unless told to follow.

    Parameters
    ----------
    topic
        Topic to read.
    start
        Where to begin: beginning, end, an offset, -N, @MILLISECONDS or a time like
        2026-11-15T10:00:00Z.
    until
        Where to stop, in the same words; the record there is not printed.
    follow
        Wait for new records instead of stopping at the end.
    max_records
        Stop after so many records.
    partition
        Read only this partition; may be repeated.
    format_string
        How to print a record: %t %p %o %T %k %s %K %S %h %% and \n \t \xNN.
    json
        Print lines of JSON.
    group
        Begin at this group's committed offsets, and commit what was printed.
    isolation
        Whether records of aborted and unfinished transactions are read too.
    """
    if json and format_string is not None:
        raise CommandError("--json and --format: give one of them", USAGE)
    if max_records is not None and max_records < 1:
        raise CommandError(f"--max: expected at least 1, got {max_records}", USAGE)
    plan = _Plan(
        topic=topic,
        partitions=partition,
        start=parse_place("--from", start),
        until=_until(until, follow),
        follow=follow,
        max_records=max_records,
        write=write_json if json else _format(format_string or DEFAULT_FORMAT),
        group=group,
        isolation=Isolation[isolation.upper()],
    )
    with connected(bootstrap) as client:
        _run(client, plan)
    return OK


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partitions: tuple[int, ...]
    start: Place
    #: None: there is no end.
    until: Place | None
    follow: bool
    max_records: int | None
    write: Write
    group: str | None
    isolation: Isolation


def _until(text: str | None, follow: bool) -> Place | None:
    if text is None:
        return None if follow else Place("end")
    place = parse_place("--until", text)
    if follow and place.kind != "offset":
        raise CommandError("--until: with --follow, expected an offset", USAGE)
    return place


def _format(text: str) -> Write:
    try:
        return compile_format(text)
    except ValueError as error:
        raise CommandError(f"--format: {error}", USAGE) from None


def _run(client: BlockingKafkaClient, plan: _Plan) -> None:
    partitions = _partitions(client, plan)
    bounds = bounds_of(client, partitions, plan.isolation)
    starts = resolve(client, plan.start, bounds)
    if plan.group is not None:
        refuse_live_group(client, plan.group)
        starts |= _committed(client, plan.group, bounds)
    ends = _ends(client, plan, bounds)
    progress = _Progress(client, plan.group, starts)
    with client.reader(starts, until=ends, isolation=plan.isolation) as reader:
        try:
            _print_all(reader, plan, progress)
        finally:
            # Also when interrupted: what was printed was read.
            progress.commit()


def _partitions(client: BlockingKafkaClient, plan: _Plan) -> list[TopicPartition]:
    every = client.topic(plan.topic).all_partitions()
    if not plan.partitions:
        return every
    wanted = [TopicPartition(plan.topic, each) for each in dict.fromkeys(plan.partitions)]
    for where in wanted:
        if where not in every:
            raise CommandError(
                f"topic {plan.topic!r} has no partition {where.partition}; it has {len(every)}"
            )
    return wanted


def _ends(client: BlockingKafkaClient, plan: _Plan, bounds: Bounds) -> dict[TopicPartition, int]:
    if plan.until is None:
        return {}
    if plan.follow:
        # Not limited by the present end: an offset that is not there yet is waited for.
        return dict.fromkeys(bounds.first, plan.until.number)
    return resolve(client, plan.until, bounds)


def _committed(
    client: BlockingKafkaClient, group: str, bounds: Bounds
) -> dict[TopicPartition, int]:
    found = client.committed_offsets(group, bounds.first)
    # A commit from before records were deleted means the first that are left.
    return {
        where: min(max(each.offset, bounds.first[where]), bounds.end[where])
        for where, each in found.items()
    }


class _Progress:
    """How far records were printed, and how far that is committed."""

    def __init__(
        self, client: BlockingKafkaClient, group: str | None, starts: Mapping[TopicPartition, int]
    ) -> None:
        self._client = client
        self._group = group
        self._committed = dict(starts)
        self._printed = dict(starts)

    def note_records(self, records: Iterable[ConsumedRecord]) -> None:
        for record in records:
            self._printed[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def note_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """Behind records that are not for printing, such as the ends of transactions."""
        self._printed.update(positions)

    def commit(self) -> None:
        if self._group is None:
            return
        news = {
            where: offset
            for where, offset in self._printed.items()
            if offset != self._committed[where]
        }
        if news:
            self._client.commit_offsets(self._group, news)
            self._committed.update(news)


def _print_all(reader: BlockingReader, plan: _Plan, progress: _Progress) -> None:
    out = sys.stdout.buffer
    left = plan.max_records
    while records := reader.next_records():
        shown = records if left is None else records[:left]
        out.write(b"".join(map(plan.write, shown)))
        out.flush()
        if len(shown) == len(records):
            progress.note_positions(reader.positions)
        else:
            progress.note_records(shown)
        progress.commit()
        if left is not None:
            left -= len(shown)
            if not left:
                return
    progress.note_positions(reader.positions)
