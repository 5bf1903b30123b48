"""`dragoman group`: list and describe groups."""

from __future__ import annotations

from cyclopts import App

from dragoman.api.values import GroupDescription
from dragoman.cli.output import Output, print_fields, print_json, print_table
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server, group_path

app = App(name="group", help="Groups of a running node.")


@app.command(name="list")
def list_groups(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """List groups."""
    groups = Remote(server).groups()
    if output == "json":
        print_json(groups)
        return
    print_table(
        ("GROUP", "PROTOCOL", "STATE", "MEMBERS"),
        ((each.group, each.protocol, each.state, each.members) for each in groups),
    )


@app.command
def describe(name: str, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show a group's members, committed offsets and lag.

    Parameters
    ----------
    name
        Group to show.
    """
    group = Remote(server).get(group_path(name), GroupDescription)
    if output == "json":
        print_json(group)
    else:
        _print_description(group)


def _print_description(group: GroupDescription) -> None:
    print_fields(
        (
            ("group", group.group),
            ("protocol", group.protocol),
            ("state", group.state),
            ("generation", group.generation),
            ("coordinator", group.coordinator),
        )
    )
    print()
    print_table(
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
    print()
    print_table(
        ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG"),
        (
            (
                each.topic,
                each.partition,
                each.committed_offset,
                each.log_end_offset,
                each.lag_records,
            )
            for each in group.offsets
        ),
    )
