"""`dragoman security key`: the key that encrypts the secrets of a cluster.

Key files are made and changed on this machine only. Copying them to the nodes is up to the
operator: a key never leaves a machine through a node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dragoman.api.values import ClusterKeyStatus, KeyCommand
from dragoman.cli.output import Output, print_fields, print_json, print_table
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import say

app = App(name="key", help="Make, rotate and show the key that encrypts secrets in the metadata.")
_PATH = "/api/v1/security/key"


@app.command
def new(file: Annotated[Path, Parameter(help="Key file to make or extend.")], /) -> None:
    """Make a key file that only you can read, or put a new first key into an existing one.

    Copy the file to every node and name it there with cluster.key.file. Nodes use the new key after
    `rotate`.
    """
    from dragoman.offline import add_cluster_key

    key_id, is_new = add_cluster_key(str(file))
    if is_new:
        say(f"made {file} with key {key_id}: copy it to every node, and keep it secret")
    else:
        say(
            f"added key {key_id} to {file}: copy the file to every node, then run `dragoman"
            " security key rotate`"
        )


@app.command
def rotate(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Encrypt all secrets with the first key of the nodes' key files.

    Every node must have the key. A rotation that was interrupted continues by itself; running this
    again does no harm.
    """
    status_ = Remote(server).post(
        f"{_PATH}/commands", KeyCommand(command="rotate"), ClusterKeyStatus
    )
    _show(status_, output)


@app.command
def status(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show which key is current, which keys the nodes have, and what is encrypted with each."""
    _show(Remote(server).get(_PATH, ClusterKeyStatus), output)


def _show(found: ClusterKeyStatus, output: Output) -> None:
    if output == "json":
        print_json(found)
        return
    print_fields(
        (
            ("current key", found.current or "none before the first secret"),
            ("secrets", ", ".join(f"{found.sealed[key]} with {key}" for key in found.sealed) or 0),
            ("in clear text", found.clear),
        )
    )
    print_table(
        ("NODE", "KEYS", "PROBLEM"),
        ((each.node, ", ".join(each.keys) or "-", each.problem or "-") for each in found.nodes),
    )
    unused = sorted(
        {key for each in found.nodes for key in each.keys} - {found.current} - set(found.sealed)
    )
    if found.current and unused:
        say(f"nothing is encrypted with {', '.join(unused)}: an older key may leave the key files")
