"""The commands of `dragoman cdc`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Annotated
from urllib.parse import quote, urlencode

import msgspec
from cyclopts import App, Parameter

from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    CapturePage,
    Findings,
    Told,
)
from dragoman.captures.addresses import hide_secrets
from dragoman.captures.control import Finding, decode_finding
from dragoman.captures.definition import Definition
from dragoman.captures.policy import capture_environment
from dragoman.cli.cdc.display import (
    print_findings,
    print_list,
    print_state,
    print_states,
    wait_until_it_runs,
    watch,
)
from dragoman.cli.cdc.options import CaptureOptions
from dragoman.cli.output import Output, print_json
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, say
from dragoman.limits import CAPTURE_CHECK_TIMEOUT_S, CLI_PAGES_MAX

app = App(name="cdc", help="Captures of databases: changes of rows become records.")

_PATH = "/api/v1/captures"
_CHECKS = "/api/v1/capture-checks"
_NO_OPTIONS = CaptureOptions()
Name = Annotated[str, Parameter(help="Name of the capture.")]


@app.command
def add(
    name: Name,
    /,
    *,
    options: CaptureOptions = _NO_OPTIONS,
    check: bool = True,
    detach: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Capture a database: its row changes become topics.

    The database is looked at first; when something is wrong, it is said what to do about it, and
    nothing is added. Then the tables are read, and what changes follows.

    Parameters
    ----------
    check
        Look at the database first.
    detach
        Do not wait until the tables have been read.
    """
    definition = options.definition(name)
    remote = Remote(server)
    if check:
        findings = remote.post(_CHECKS, CaptureCheck(definition=definition), Findings).items
        print_findings(each for each in findings if each.level != "ok")
        problems = sum(each.level == "problem" for each in findings)
        if problems:
            raise CommandError(f"nothing was added; problems in the way: {problems}, see above")
    capture = remote.post(_PATH, definition, CaptureDescription)
    say(f"added capture {name}")
    if not detach:
        capture = wait_until_it_runs(lambda: _described(remote, name))
        say(f"capture {name} is {capture.status.state}")
    if output == "json":
        print_json(capture)


@app.command(name="list")
def list_captures(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """List captures, and what they capture."""
    captures = _all(Remote(server))
    if output == "json":
        print_json(captures)
    else:
        print_list(captures)


@app.command
def status(
    name: Annotated[str | None, Parameter(help="Capture to show; all when left out.")] = None,
    /,
    *,
    watch_: Annotated[bool, Parameter(name=["--watch", "-w"], negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Show how captures are: lag, rows, log that the database keeps, tables being read.

    Parameters
    ----------
    watch_
        Show it again every second.
    """
    remote = Remote(server)

    def show() -> None:
        captures = _all(remote) if name is None else [_described(remote, name)]
        if output == "json":
            print_json(captures if name is None else captures[0])
        elif name is None:
            print_states(captures)
        else:
            print_state(captures[0])

    if watch_:
        watch(show)
    else:
        show()


@app.command
def pause(name: Name, /, *, server: Server = DEFAULT_SERVER) -> None:
    """Capture nothing more until `resume`; the database keeps its log meanwhile."""
    _command(server, name, CaptureCommand(command="pause"))


@app.command
def resume(name: Name, /, *, server: Server = DEFAULT_SERVER) -> None:
    """Go on after `pause`, or after a failure that was put right."""
    _command(server, name, CaptureCommand(command="resume"))


@app.command
def rewind(name: Name, /, *, to: str, server: Server = DEFAULT_SERVER) -> None:
    """Capture again what came after a position: it is in the topics twice then.

    Parameters
    ----------
    to
        Position in the database's log, such as 0/16B3748, as far back as the database has it.
    """
    _command(server, name, CaptureCommand(command="rewind", lsn=to))


@app.command
def snapshot(
    name: Name,
    /,
    *,
    tables: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    server: Server = DEFAULT_SERVER,
) -> None:
    """Send again what is in tables, beside what changes meanwhile.

    Parameters
    ----------
    tables
        Tables to read, with commas; all that are captured when left out.
    """
    listed = tuple(part for each in tables for part in each.split(",") if part)
    _command(server, name, CaptureCommand(command="snapshot", tables=listed))


@app.command
def remove(
    name: Name,
    /,
    *,
    keep_slot: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """End a capture; its topics stay.

    Parameters
    ----------
    keep_slot
        Leave slot and publication in the database, which keeps its log for the slot.
    """
    query = "?keep_slot=true" if keep_slot else ""
    say(Remote(server).remove(_path(name) + query, Told).detail)


@app.command
def doctor(
    name: Annotated[str | None, Parameter(help="Name of a capture, or of one to be.")] = None,
    /,
    *,
    options: CaptureOptions = _NO_OPTIONS,
    local: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> int:
    """Look whether a database is fit to be captured; exit status 1 when it is not.

    Either of a capture that there is, by its name, or of one that could be, with the options of
    `add`.

    Parameters
    ----------
    local
        Look from this machine, not from the node.
    """
    # The address alone does not tell: it may come from the environment.
    is_new = options.tables or options.channels or options.outbox
    if options.dsn and (local or name is None or is_new):
        definition = options.definition(name or "doctor")
        check = CaptureCheck(definition=definition)
        findings = _examine(definition) if local else Remote(server).post(_CHECKS, check, Findings)
    elif name is None or local:
        what = "--local needs the address of the database" if local else "name a capture"
        raise CommandError(f"{what}: --dsn DSN --tables TABLES", USAGE)
    else:
        findings = Remote(server).post(_CHECKS, CaptureCheck(name=name), Findings)
    if output == "json":
        print_json(findings)
    else:
        print_findings(findings.items)
    return FAILED if any(each.level == "problem" for each in findings.items) else OK


def _examine(definition: Definition) -> Findings:
    """Run the doctor in a process, as a node does. The address is not among its arguments."""
    if find_spec("psycopg") is None:
        raise CommandError("this needs a driver for PostgreSQL: pip install 'dragoman[cdc]'")
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "dragoman.cdc.doctor"],
            input=msgspec.json.encode(definition),
            capture_output=True,
            timeout=CAPTURE_CHECK_TIMEOUT_S,
            check=False,
            env=capture_environment(os.environ),
        )
        found: list[Finding] = [decode_finding(line) for line in ended.stdout.splitlines()]
    except subprocess.TimeoutExpired:
        raise CommandError("the database did not answer in time") from None
    except msgspec.DecodeError:
        found = []
    if not found:
        words = ended.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        why = hide_secrets(words[-1], definition.dsn)
        raise CommandError(f"the database could not be looked at: {why}")
    return Findings(items=tuple(found))


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"


def _described(remote: Remote, name: str) -> CaptureDescription:
    return remote.get(_path(name), CaptureDescription)


def _all(remote: Remote) -> list[CaptureDescription]:
    found: list[CaptureDescription] = []
    after: str | None = ""
    for _ in range(CLI_PAGES_MAX):
        page = remote.get(f"{_PATH}?{urlencode({'after': after})}", CapturePage)
        found += page.items
        after = page.next
        if after is None:
            return found
    raise CommandError("the node lists captures without end")


def _command(server: str, name: str, wanted: CaptureCommand) -> None:
    say(Remote(server).post(f"{_path(name)}/commands", wanted, Told).detail)
