"""`dragoman user token`: make and revoke API tokens of a user."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from cyclopts import App, Parameter

from dragoman.api.access_values import CreatedToken, NewToken
from dragoman.cli.output import Output, print_json
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.cli.user import user_path

app = App(name="token", help="Make and revoke API tokens of a user.")
_DAY_MS = 86_400_000


@app.command
def create(
    name: str,
    /,
    *,
    label: str = "",
    days: Annotated[int | None, Parameter(show_default=False)] = None,
    read_only: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Make an API token and print it. It cannot be shown again.

    Example: `(umask 077; dragoman user token create alice --days 30 > token)`, then `dragoman topic
    list --token-file token`.

    Parameters
    ----------
    name
        User whose token it is.
    label
        What the token is for.
    days
        Days until the token expires; without this it does not.
    read_only
        The token is good for requests that change nothing only.
    """
    if days is not None and days < 1:
        raise CommandError("--days: expected at least 1", USAGE)
    lifetime_ms = None if days is None else days * _DAY_MS
    wanted = NewToken(label=label, lifetime_ms=lifetime_ms, read_only=read_only)
    created = Remote(server).post(f"{user_path(name)}/tokens", wanted, CreatedToken)
    if output == "json":
        print_json(created)
    else:
        print(created.token)
    say(f"made token {created.description.token_id} of user {name!r}; it is not shown again")


@app.command
def revoke(name: str, token_id: str, /, *, server: Server = DEFAULT_SERVER) -> None:
    """Revoke an API token.

    Parameters
    ----------
    name
        User whose token it is.
    token_id
        Id of the token, as `user describe` shows it.
    """
    Remote(server).delete(f"{user_path(name)}/tokens/{quote(token_id, safe='')}")
    say(f"revoked token {token_id} of user {name!r}")
