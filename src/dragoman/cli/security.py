"""`dragoman security`: what protects the cluster as a whole: its mode, and the key of its secrets.

Key files are made and changed on this machine only. Copying them to the nodes is up to the
operator: a key never leaves a machine through a node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from dragoman.api.access_values import NewMode, SecurityStatus
from dragoman.api.values import ClusterKeyStatus, KeyCommand
from dragoman.cli.output import Fields, Output, Table, show, show_change
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import say

app = App(
    name="security", help="Whether access rules are enforced, and the key that encrypts secrets."
)
key = App(name="key", help="Make, rotate and show the key that encrypts secrets in the metadata.")
app.command(key)
_PATH = "/api/v1/security"
_KEY = f"{_PATH}/key"


@app.command
def mode(
    mode: Literal["open", "audit", "enforce"],
    /,
    *,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Change whether access rules are enforced, on all nodes at once.

    The caller has to be an administrator by the rules and to have logged in, for example on the
    node's machine: `dragoman security mode enforce --server unix:DATA-DIRECTORY`.

    Parameters
    ----------
    mode
        `open` asks nothing, `audit` lets everything pass and reports what the rules do not allow in
        the audit log, `enforce` refuses it.

    Examples
    --------
    dragoman security mode audit --server unix:dragoman-data
    """
    found = Remote(server).post(f"{_PATH}/mode", NewMode(mode=mode), SecurityStatus)
    show_change(output, f"the security mode is {found.mode}", found, SecurityStatus)


@app.command
def status(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show the security mode, and what would keep it from being changed.

    Examples
    --------
    dragoman security status
    """
    found = Remote(server).get(_PATH, SecurityStatus)
    fields = Fields(
        (
            ("mode", found.mode),
            ("users", found.users),
            ("rules", found.rules),
            ("super users", ", ".join(found.super_users) or "none"),
            ("allow.everyone.if.no.acl.found", found.allow_everyone_if_no_acl_found),
            ("administrator by the rules", found.has_administrator),
            ("nodes of older releases", found.older_nodes or "none"),
        )
    )
    show(output, found, SecurityStatus, fields)


class NewKey(msgspec.Struct, frozen=True):
    """The JSON form of `security key new`: never the key itself."""

    file: str
    key_id: str
    is_new_file: bool


@key.command
def new(
    file: Annotated[Path, Parameter(help="Key file to make or extend.")],
    /,
    *,
    output: Output = "table",
) -> None:
    """Make a key file that only you can read, or put a new first key into an existing one.

    Copy the file to every node and name it there with cluster.key.file. Nodes use the new key after
    `rotate`.

    Examples
    --------
    dragoman security key new cluster.key
    """
    from dragoman.offline import add_cluster_key

    key_id, is_new = add_cluster_key(str(file))
    if is_new:
        message = f"made {file} with key {key_id}: copy it to every node, and keep it secret"
    else:
        message = (
            f"added key {key_id} to {file}: copy the file to every node, then run `dragoman"
            " security key rotate`"
        )
    show_change(output, message, NewKey(str(file), key_id, is_new), NewKey)


@key.command
def rotate(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Encrypt all secrets with the first key of the nodes' key files.

    Every node must have the key. A rotation that was interrupted continues by itself; running this
    again does no harm.

    Examples
    --------
    dragoman security key rotate --server unix:dragoman-data
    """
    found = Remote(server).post(f"{_KEY}/commands", KeyCommand(command="rotate"), ClusterKeyStatus)
    _show(found, output)


@key.command(name="status")
def key_status(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show which key is current, which keys the nodes have, and what is encrypted with each.

    Examples
    --------
    dragoman security key status
    """
    _show(Remote(server).get(_KEY, ClusterKeyStatus), output)


def _show(found: ClusterKeyStatus, output: Output) -> None:
    fields = Fields(
        (
            ("current key", found.current or "none before the first secret"),
            ("secrets", ", ".join(f"{found.sealed[key]} with {key}" for key in found.sealed) or 0),
            ("in clear text", found.clear),
        )
    )
    nodes = Table(
        ("NODE", "KEYS", "PROBLEM"),
        ((each.node, ", ".join(each.keys) or "-", each.problem or "-") for each in found.nodes),
    )
    show(output, found, ClusterKeyStatus, fields, nodes)
    unused = sorted(
        {key for each in found.nodes for key in each.keys} - {found.current} - set(found.sealed)
    )
    if found.current and unused:
        say(f"nothing is encrypted with {', '.join(unused)}: an older key may leave the key files")
