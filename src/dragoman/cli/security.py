"""`dragoman security`: what protects the cluster as a whole."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

from dragoman.api.access_values import NewMode, SecurityStatus
from dragoman.cli.output import Output, print_fields, print_json
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import say

app = App(
    name="security", help="Whether access rules are enforced, and the key that encrypts secrets."
)
app.command("dragoman.cli.security_key:app", name="key", help="Make, rotate and show the key.")
_PATH = "/api/v1/security"


@app.command
def mode(mode: Literal["open", "audit", "enforce"], /, *, server: Server = DEFAULT_SERVER) -> None:
    """Change whether access rules are enforced, on all nodes at once.

    The caller has to be an administrator by the rules and to have logged in, for example on the
    node's machine: `dragoman security mode enforce --server unix:DATA-DIRECTORY`.

    Parameters
    ----------
    mode
        `open` asks nothing, `audit` lets everything pass and reports what the rules do not allow in
        the audit log, `enforce` refuses it.
    """
    found = Remote(server).post(f"{_PATH}/mode", NewMode(mode=mode), SecurityStatus)
    say(f"the security mode is {found.mode}")


@app.command
def status(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show the security mode, and what would keep it from being changed."""
    found = Remote(server).get(_PATH, SecurityStatus)
    if output == "json":
        print_json(found)
        return
    print_fields(
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
