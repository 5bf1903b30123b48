"""`dragoman context`: named contexts: where commands connect, and what they log in with."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.completers import ContextName
from dragoman.cli.contexts import (
    FILES,
    VARIABLE,
    Context,
    Mechanism,
    changed,
    check_name,
    contexts_file,
    current_name,
    find,
    read,
    with_files,
)
from dragoman.cli.output import Change, Fields, Output, Table, show, show_change
from dragoman.cli.remote import UNIX, check_url
from dragoman.cli.status import USAGE, CommandError, say

app = App(name="context", help="Name clusters, with their addresses and logins.")


class NamedContext(Context, frozen=True, kw_only=True):
    """An item of the JSON form of `context list`."""

    name: str
    is_current: bool


def _option(text: str) -> Parameter:
    return Parameter(help=text, show_default=False, negative="")


@dataclass(frozen=True, kw_only=True)
class _Values:
    server: Annotated[str, _option("URL of a node's HTTP listener, or unix:DIR.")] = ""
    bootstrap: Annotated[
        str, _option("Listeners of brokers, as HOST:PORT, separated by commas.")
    ] = ""
    token_file: Annotated[str, _option("File with an API token.")] = ""
    user: Annotated[str, _option("User to log in as.")] = ""
    password_file: Annotated[str, _option("File with the user's password.")] = ""
    mechanism: Annotated[Mechanism | None, _option("SASL mechanism, for Kafka.")] = None
    tls: Annotated[bool, _option("Connect to brokers with TLS.")] = False
    ca_file: Annotated[str, _option("CA certificates (PEM) to trust.")] = ""
    certificate_file: Annotated[str, _option("Certificate (PEM) to show to brokers.")] = ""
    key_file: Annotated[str, _option("Key (PEM) of the certificate.")] = ""


_NO_VALUES: Final = _Values()


@app.command(name="list")
def list_contexts(*, output: Output = "table") -> None:
    """List contexts.

    Examples
    --------
    dragoman context list
    """
    found = read(contexts_file())
    current = current_name()
    named = [_named(name, found.context[name], current) for name in sorted(found.context)]
    rows = (
        (each.name, each.is_current, each.server or None, each.bootstrap or None, _login(each))
        for each in named
    )
    columns = ("NAME", "CURRENT", "SERVER", "BOOTSTRAP", "LOGIN")
    show(output, named, NamedContext, Table(columns, rows))


@app.command(name="show")
def show_context(name: ContextName | None = None, /, *, output: Output = "table") -> None:
    """Show a context.

    Parameters
    ----------
    name
        Context to show; the current one by default.

    Examples
    --------
    dragoman context show production
    """
    chosen = name or current_name()
    if not chosen:
        raise CommandError("no context is current", hint="`dragoman context use NAME`")
    named = _named(chosen, find(chosen), current_name())
    values = {"name": chosen} | msgspec.structs.asdict(find(chosen))
    fields = ((field.replace("_", " "), value) for field, value in values.items() if value)
    show(output, named, NamedContext, Fields(fields))


@app.command
def add(
    name: str,
    /,
    *,
    values: Annotated[_Values, Parameter(name="*")] = _NO_VALUES,
    use: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
) -> None:
    """Add a context, or change the given values of one.

    Secrets stay in their files, which the context only names.

    Parameters
    ----------
    name
        Context to add.
    use
        Make it the current context.

    Examples
    --------
    dragoman context add staging --server http://10.0.0.5:8080 --bootstrap 10.0.0.5:9092
    """
    check_name(name)
    given = {field: value for field, value in asdict(values).items() if value}
    if values.server and not values.server.startswith(UNIX):
        check_url(values.server)
    with changed(contexts_file()) as contexts:
        is_new = name not in contexts.context
        if is_new and not (values.server or values.bootstrap):
            raise CommandError("a context needs --server or --bootstrap", USAGE)
        context = msgspec.structs.replace(contexts.context.get(name, Context()), **given)
        context = with_files(context, Path.cwd())
        contexts.context[name] = context
        if use:
            contexts.current = name
    message = f"{'added' if is_new else 'changed'} context {name!r}"
    message += ", the current one" if contexts.current == name else ""
    show_change(output, message, _named(name, context, contexts.current), NamedContext)
    for field in FILES:
        if given.get(field) and not Path(getattr(context, field)).exists():
            say(f"warning: {getattr(context, field)} does not exist yet")


@app.command
def use(name: ContextName, /, *, output: Output = "table") -> None:
    """Make a context the current one, which commands use without --context.

    Parameters
    ----------
    name
        Context to use; `none` for no current context.

    Examples
    --------
    dragoman context use production
    dragoman context use none
    """
    with changed(contexts_file()) as contexts:
        if name == "none" and name not in contexts.context:
            contexts.current, message = "", "no context is current"
        else:
            find(name)
            contexts.current, message = name, f"context {name!r} is current"
    show_change(output, message, Change(name, message), Change)
    _warn_of_variable(name)


@app.command
def remove(*names: ContextName, output: Output = "table") -> None:
    """Remove contexts. The files that they name stay.

    Parameters
    ----------
    names
        Contexts to remove.

    Examples
    --------
    dragoman context remove production
    """
    if not names:
        raise CommandError("NAMES: expected the name of at least one context", USAGE)
    removed = []
    with changed(contexts_file()) as contexts:
        for name in names:
            find(name)
        for name in dict.fromkeys(names):
            del contexts.context[name]
            removed.append(Change(name, f"removed context {name!r}"))
        if contexts.current in names:
            contexts.current = ""
            removed[-1] = Change(removed[-1].name, f"{removed[-1].detail}; no context is current")
    if output == "table":
        for each in removed:
            say(each.detail)
    else:
        show(output, removed, Change)


def _named(name: str, context: Context, current: str) -> NamedContext:
    return NamedContext(name=name, is_current=name == current, **msgspec.structs.asdict(context))


def _login(context: Context) -> str | None:
    logins = ["token"] if context.token_file else []
    logins += [f"user {context.user}"] if context.user else []
    logins += ["certificate"] if context.certificate_file else []
    return ", ".join(logins) or None


def _warn_of_variable(name: str) -> None:
    variable = os.environ.get(VARIABLE)
    if variable and variable != name:
        say(f"warning: {VARIABLE} names {variable!r}, which is preferred")
