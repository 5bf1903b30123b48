"""`dragoman user`: create, list and delete users, and change their credentials."""

from __future__ import annotations

from typing import Annotated, TypeAlias
from urllib.parse import quote

from cyclopts import App, Parameter

from dragoman.api.access_values import (
    CreatedToken,
    NewToken,
    NewUser,
    TokenDescription,
    UserCommand,
    UserDescription,
    UserSummary,
)
from dragoman.api.values import Told
from dragoman.cli.output import Change, Fields, Output, Part, Table, note, show, show_change
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.secret_input import Reference, new_secret
from dragoman.cli.status import USAGE, CommandError, say

app = App(name="user", help="Create, list and delete users, and change their credentials.")
token = App(name="token", help="Make and revoke API tokens of a user.")
app.command(token)

_USERS = "/api/v1/security/users"
Name: TypeAlias = Annotated[str, Parameter(help="User to change.")]
_DAY_MS = 86_400_000


def _user_path(name: str) -> str:
    return f"{_USERS}/{quote(name, safe='')}"


@app.command
def create(
    name: str,
    /,
    *,
    new_password: Reference = "",
    no_password: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Create a user who logs in with a password.

    The password is good for SCRAM-SHA-256 and -512, PLAIN, HTTP and Cursus.

    Parameters
    ----------
    name
        User to create.
    no_password
        The user has no password, only API tokens or a signing secret.

    Examples
    --------
    dragoman user create bob --new-password file:bob.password
    """
    if no_password and new_password:
        raise CommandError("--no-password and --new-password exclude each other", USAGE)
    password = None if no_password else new_secret("password", new_password)
    wanted = NewUser(name=name, password=password)
    user = Remote(server).post(_USERS, wanted, UserDescription)
    show_change(output, f"created user {user.name!r}", user, UserDescription)


@app.command
def password(
    name: str,
    /,
    *,
    new_password: Reference = "",
    remove: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Change the password of a user. Connections that are logged in stay open.

    Parameters
    ----------
    name
        User to change.
    remove
        Take the password away instead.

    Examples
    --------
    dragoman user password alice --new-password file:alice.password
    """
    if remove:
        command, message = UserCommand(command="remove_password"), "has no password any more"
    else:
        secret = new_secret("password", new_password)
        command, message = UserCommand(command="set_password", secret=secret), "has a new password"
    _change(name, command, f"user {name!r} {message}", server, output)


@app.command
def signing_secret(
    name: str,
    /,
    *,
    new_secret_: Annotated[Reference, Parameter(name="--new-secret")] = "",
    remove: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Set the secret key with which a user signs RocketMQ requests.

    The access key is the name of the user. The secret is stored encrypted with the cluster's key.

    Parameters
    ----------
    name
        User to change.
    remove
        Take the signing secret away instead.

    Examples
    --------
    dragoman user signing-secret alice --new-secret file:alice.secret
    """
    if remove:
        command = UserCommand(command="remove_signing_secret")
        message = "has no signing secret any more"
    else:
        secret = new_secret("signing secret", new_secret_)
        command = UserCommand(command="set_signing_secret", secret=secret)
        message = "has a new signing secret"
    _change(name, command, f"user {name!r} {message}", server, output)


@app.command
def enable(name: Name, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Let a disabled user log in again.

    Examples
    --------
    dragoman user enable alice
    """
    _change(name, UserCommand(command="enable"), f"enabled user {name!r}", server, output)


@app.command
def disable(name: Name, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Refuse the logins of a user and close its connections.

    Examples
    --------
    dragoman user disable alice
    """
    _change(name, UserCommand(command="disable"), f"disabled user {name!r}", server, output)


@app.command
def delete(*names: str, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Delete users and close their connections. Their access rules remain.

    Parameters
    ----------
    names
        Users to delete.

    Examples
    --------
    dragoman user delete carol
    """
    if not names:
        raise CommandError("NAMES: expected the name of at least one user", USAGE)
    remote = Remote(server)
    deleted = []
    for name in names:
        deleted.append(Change(name, remote.remove(_user_path(name), Told).detail))
        if output == "table":
            say(deleted[-1].detail)
    if output != "table":
        show(output, deleted, Change)


@app.command(name="list")
def list_users(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """List users.

    Examples
    --------
    dragoman user list
    """
    users = Remote(server).users()
    table = Table(
        ("USER", "ENABLED", "PASSWORD", "SIGNING SECRET", "TOKENS"),
        (
            (
                each.name,
                each.enabled,
                ", ".join(each.mechanisms) or "no",
                each.signing_secret,
                each.tokens,
            )
            for each in users
        ),
    )
    show(output, users, UserSummary, table)


@app.command
def describe(name: str, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Show a user and its API tokens.

    Parameters
    ----------
    name
        User to show.

    Examples
    --------
    dragoman user describe alice
    """
    user = Remote(server).get(_user_path(name), UserDescription)
    fields = Fields(
        (
            ("name", user.name),
            ("enabled", user.enabled),
            ("password", ", ".join(user.mechanisms) or "no"),
            ("signing secret", user.signing_secret),
        )
    )
    tokens: tuple[Part, ...] = (_tokens(user.tokens),) if user.tokens else ()
    show(output, user, UserDescription, fields, *tokens)


@token.command(name="create")
def create_token(
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

    A file with the token is the value of --token-file of other commands.

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

    Examples
    --------
    (umask 077; dragoman user token create alice --days 30 > token)
    """
    if days is not None and days < 1:
        raise CommandError("--days: expected at least 1", USAGE)
    lifetime_ms = None if days is None else days * _DAY_MS
    wanted = NewToken(label=label, lifetime_ms=lifetime_ms, read_only=read_only)
    created = Remote(server).post(f"{_user_path(name)}/tokens", wanted, CreatedToken)
    show(output, created, CreatedToken, created.token)
    note(
        output, f"made token {created.description.token_id} of user {name!r}; it is not shown again"
    )


@token.command(name="revoke")
def revoke_token(
    name: str, token_id: str, /, *, server: Server = DEFAULT_SERVER, output: Output = "table"
) -> None:
    """Revoke an API token.

    Parameters
    ----------
    name
        User whose token it is.
    token_id
        Id of the token, as `user describe` shows it.

    Examples
    --------
    dragoman user token revoke alice 5fa2c81d
    """
    Remote(server).delete(f"{_user_path(name)}/tokens/{quote(token_id, safe='')}")
    message = f"revoked token {token_id} of user {name!r}"
    show_change(output, message, Change(token_id, message), Change)


def _tokens(tokens: tuple[TokenDescription, ...]) -> Table:
    from dragoman.world import utc_text

    return Table(
        ("TOKEN", "LABEL", "READ-ONLY", "CREATED", "EXPIRES"),
        (
            (
                each.token_id,
                each.label,
                each.read_only,
                utc_text(each.created_ms),
                "never" if each.expires_ms is None else utc_text(each.expires_ms),
            )
            for each in tokens
        ),
    )


def _change(name: str, command: UserCommand, message: str, server: Server, output: Output) -> None:
    user = Remote(server).post(f"{_user_path(name)}/commands", command, UserDescription)
    show_change(output, message, user, UserDescription)
