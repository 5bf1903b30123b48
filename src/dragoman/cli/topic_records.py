"""`dragoman topic delete` and `truncate`: what deletes records, after a look at the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from cyclopts import Parameter

from dragoman.api.places import PLACES
from dragoman.api.topic_values import (
    TopicDeletion,
    TruncatedPartition,
    TruncatedTopic,
    Truncation,
)
from dragoman.cli.completers import TopicName
from dragoman.cli.confirmation import DryRun, Yes, ask, refuse_unasked
from dragoman.cli.names import matching, require_names
from dragoman.cli.output import Output, Table, show, show_change
from dragoman.cli.positions import parse_place
from dragoman.cli.remote import CHECK_ONLY, DEFAULT_SERVER, Remote, Server, topic_path
from dragoman.cli.status import CommandError, say
from dragoman.plural import plural
from dragoman.telemetry.logs import escape

#: Partitions that a question lists.
_LISTED_MAX = 20


class DeletedTopic(msgspec.Struct, frozen=True):
    """An item of the JSON output of `topic delete`."""

    name: str


class Truncated(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the output of `topic truncate`."""

    topic: str
    partition: int
    #: The offset of the first record before and after.
    start: int
    new_start: int
    #: At most: offsets without a record count, too.
    records: int
    #: Why the partition was not truncated; empty: it was.
    problem: str = ""


# ---- delete


def delete(
    *names: TopicName,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Delete topics and their records.

    Parameters
    ----------
    names
        Topics to delete, or quoted patterns such as 'test-*'.

    Examples
    --------
    dragoman topic delete orders --dry-run
    dragoman topic delete 'test-*' --yes
    """
    require_names("topic", names)
    if not (yes or dry_run):
        refuse_unasked("topic delete")
    remote = Remote(server)
    chosen = matching("topic", names, lambda: _deletable(remote))
    if dry_run or not yes:
        losses = [remote.remove(topic_path(name) + CHECK_ONLY, TopicDeletion) for name in chosen]
        if dry_run:
            show(output, losses, TopicDeletion, _losses_table(losses))
            for each in losses:
                if each.unreachable:
                    say(f"warning: topic {each.name!r}: {_unreachable(each)}")
            return
        ask("\n".join([*map(_loss_text, losses), "Delete for good?"]))
    for name in chosen:
        remote.delete(topic_path(name))
        if output == "table":
            say(f"deleted topic {name!r}")
    if output != "table":
        show(output, [DeletedTopic(name) for name in chosen], DeletedTopic)


def _deletable(remote: Remote) -> list[str]:
    return [each.name for each in remote.topics() if not each.internal]


def _groups_of(loss: TopicDeletion) -> str:
    more = loss.group_count - len(loss.groups)
    return ", ".join(loss.groups) + (f" and {more} more" if more else "")


def _unreachable(loss: TopicDeletion) -> str:
    nodes = ", ".join(map(str, loss.unreachable))
    return f"not counted is what these nodes have, which do not answer: {nodes}"


def _loss_text(loss: TopicDeletion) -> str:
    missing = f"; {_unreachable(loss)}" if loss.unreachable else ""
    groups = f", offsets of groups {_groups_of(loss)}" if loss.groups else ""
    return escape(
        f"topic {loss.name!r}: partitions: {loss.partitions}, records: {loss.records:,} "
        f"({loss.size_bytes:,} bytes){groups}{missing}"
    )


def _losses_table(losses: Sequence[TopicDeletion]) -> Table:
    return Table(
        ("NAME", "PARTITIONS", "RECORDS", "BYTES", "GROUPS"),
        (
            (each.name, each.partitions, each.records, each.size_bytes, _groups_of(each) or None)
            for each in losses
        ),
    )


# ---- truncate


def truncate(
    name: TopicName,
    /,
    *,
    before: Annotated[
        str, Parameter(allow_leading_hyphen=True, help=f"First record to keep: {PLACES}.")
    ],
    partition: Annotated[tuple[int, ...], Parameter(name=["--partition", "-p"], negative="")] = (),
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Delete the records of a topic before a place, such as an offset or a time.

    Parameters
    ----------
    name
        Topic to truncate.
    partition
        Partition to truncate; may be repeated. All by default.

    Examples
    --------
    dragoman topic truncate orders --before @-7d --dry-run
    """
    parse_place("--before", before)
    if not (yes or dry_run):
        refuse_unasked("topic truncate")
    remote, path = Remote(server), f"{topic_path(name)}/truncate"
    wanted = Truncation(before=before, partitions=partition)
    checked = remote.post(path + CHECK_ONLY, wanted, TruncatedTopic)
    items = [_truncated(name, each) for each in checked.items]
    count = sum(each.records for each in items)
    if dry_run:
        show(output, items, Truncated, _truncated_table(items))
        if output == "table":
            say(f"would delete at most {plural(count, 'record')} of topic {name!r}")
        return
    if not yes:
        ask(f"{_truncation_text(name, items)}\nDelete at most {plural(count, 'record')} for good?")
    # What was shown is what is deleted: a place may have moved since.
    shown = Truncation(offsets={each.partition: each.after for each in checked.items})
    done = remote.post(path, shown, TruncatedTopic)
    items = [_truncated(name, each) for each in done.items]
    count = sum(each.records for each in items)
    message = f"deleted at most {plural(count, 'record')} of topic {name!r}"
    show_change(output, message, items, Truncated)
    failed = [each for each in items if each.problem]
    if failed:
        text = "; ".join(f"partition {each.partition}: {each.problem}" for each in failed)
        raise CommandError(f"not truncated: {text}")


def _truncated(topic: str, found: TruncatedPartition) -> Truncated:
    return Truncated(
        topic=topic,
        partition=found.partition,
        start=found.before,
        new_start=found.after,
        records=found.after - found.before,
        problem=found.problem,
    )


def _truncated_table(items: Sequence[Truncated]) -> Table:
    return Table(
        ("PARTITION", "START", "NEW START", "RECORDS"),
        ((each.partition, each.start, each.new_start, each.records) for each in items),
    )


def _truncation_text(topic: str, items: Sequence[Truncated]) -> str:
    lines = [
        f"topic {topic!r}, partition {each.partition}: from offset {each.start} to "
        f"{each.new_start}, records: {each.records:,}"
        for each in items
        if each.records
    ]
    more = len(lines) - _LISTED_MAX
    return "\n".join(lines[:_LISTED_MAX] + ([f"and {more} more partitions"] if more > 0 else []))
