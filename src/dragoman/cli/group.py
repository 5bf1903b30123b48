"""`dragoman group`: list, describe and delete groups; `group_reset` moves their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.api.group_values import GroupDeletion
from dragoman.api.values import GroupDescription, GroupOffset, GroupSummary
from dragoman.cli.completers import GroupName
from dragoman.cli.confirmation import DryRun, Yes, ask, refuse_unasked
from dragoman.cli.group_reset import reset
from dragoman.cli.names import matching, require_names
from dragoman.cli.output import Fields, Output, Part, Table, show
from dragoman.cli.remote import CHECK_ONLY, DEFAULT_SERVER, Remote, Server, group_path
from dragoman.cli.status import CommandError, say

app = App(name="group", help="List, describe, delete and reset groups.")
app.command(reset)


# ---- list


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the output of `group list --lag`."""

    group: str
    protocol: str
    state: str
    members: int
    #: Null, with the lag, when the node that coordinates the group does not answer.
    topics: int | None
    #: Null when the end of a partition is not known.
    lag_records: int | None
    #: Age of the oldest record that is not committed; null when it is not known.
    lag_seconds: float | None


@app.command(name="list")
def list_groups(
    *,
    lag: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """List groups.

    Parameters
    ----------
    lag
        Show how far the groups are behind, which takes a request for each.

    Examples
    --------
    dragoman group list --lag
    """
    remote = Remote(server)
    groups = remote.groups()
    columns = ("GROUP", "PROTOCOL", "STATE", "MEMBERS")
    if not lag:
        rows = ((each.group, each.protocol or None, each.state, each.members) for each in groups)
        show(output, groups, GroupSummary, Table(columns, rows))
        return
    lags = [_lag(each, _offsets(remote, each.group)) for each in groups]
    table = Table(
        (*columns, "TOPICS", "LAG", "LAG SECONDS"),
        (
            (
                each.group,
                each.protocol or None,
                each.state,
                each.members,
                each.topics,
                each.lag_records,
                seconds(each.lag_seconds),
            )
            for each in lags
        ),
    )
    show(output, lags, GroupLag, table)


def _offsets(remote: Remote, group: str) -> Sequence[GroupOffset] | None:
    try:
        return remote.group(group).offsets
    except CommandError:
        # The group is listed without them.
        return None


def _lag(group: GroupSummary, offsets: Sequence[GroupOffset] | None) -> GroupLag:
    records = [None] if offsets is None else [each.lag_records for each in offsets]
    ages = [each.lag_seconds for each in offsets or () if each.lag_seconds is not None]
    return GroupLag(
        group=group.group,
        protocol=group.protocol,
        state=group.state,
        members=group.members,
        topics=None if offsets is None else len({each.topic for each in offsets}),
        lag_records=None if None in records else sum(each or 0 for each in records),
        lag_seconds=max(ages, default=None),
    )


def seconds(number: float | None) -> str | None:
    return None if number is None else f"{number:,.1f}"


# ---- describe


@app.command
def describe(
    name: GroupName, /, *, server: Server = DEFAULT_SERVER, output: Output = "table"
) -> None:
    """Show a group's members, committed offsets and lag. As CSV, the offsets.

    Parameters
    ----------
    name
        Group to show.

    Examples
    --------
    dragoman group describe reports --output csv > offsets.csv
    """
    group = Remote(server).group(name)
    if output == "csv":
        # What `group reset --to file:PATH` reads.
        show(output, group.offsets, GroupOffset)
    else:
        show(output, group, GroupDescription, *_description(group))


def _description(group: GroupDescription) -> tuple[Part, ...]:
    lag = _lag(
        GroupSummary(
            group=group.group,
            protocol=group.protocol,
            state=group.state,
            members=len(group.members),
        ),
        group.offsets,
    )
    fields = Fields(
        (
            ("group", group.group),
            ("protocol", group.protocol or None),
            ("state", group.state),
            ("members", len(group.members)),
            ("lag", lag.lag_records),
            ("lag seconds", seconds(lag.lag_seconds)),
            ("generation", group.generation),
            ("coordinator", group.coordinator),
        )
    )
    members = Table(
        ("MEMBER", "CLIENT", "HOST", "ASSIGNMENT"),
        (
            (
                member.member_id,
                member.client_id,
                member.host,
                " ".join(
                    f"{each.topic}:{','.join(map(str, each.partitions))}"
                    for each in member.assignment
                ),
            )
            for member in group.members
        ),
    )
    offsets = Table(
        ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG SECONDS"),
        (
            (
                each.topic,
                each.partition,
                each.committed_offset,
                each.log_end_offset,
                each.lag_records,
                seconds(each.lag_seconds),
            )
            for each in group.offsets
        ),
    )
    return fields, members, offsets


# ---- delete


@app.command
def delete(
    *names: GroupName,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Delete groups and their committed offsets. Refused while a group has members.

    Parameters
    ----------
    names
        Groups to delete, or quoted patterns such as 'test-*'.

    Examples
    --------
    dragoman group delete reports --dry-run
    """
    require_names("group", names)
    if not (yes or dry_run):
        refuse_unasked("group delete")
    remote = Remote(server)
    chosen = matching("group", names, lambda: [each.group for each in remote.groups()])
    losses = [remote.remove(group_path(name) + CHECK_ONLY, GroupDeletion) for name in chosen]
    if dry_run:
        rows = ((each.group, each.offsets) for each in losses)
        show(output, losses, GroupDeletion, Table(("GROUP", "OFFSETS"), rows))
        return
    if not yes:
        lines = [f"group {each.group!r}: committed offsets: {each.offsets}" for each in losses]
        ask("\n".join([*lines, "Delete for good?"]))
    for name in chosen:
        remote.delete(group_path(name))
        if output == "table":
            say(f"deleted group {name!r}")
    if output != "table":
        show(output, losses, GroupDeletion)
