"""`dragoman cdc`: captures of databases, on a running node.

The options of a capture on the command line become its definition.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Literal, TypeAlias
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
from dragoman.captures.addresses import has_secret, hide_secrets, resolved
from dragoman.captures.control import Finding, decode_finding
from dragoman.captures.definition import Definition, EnvelopeName, MaskWay
from dragoman.cli.cdc_display import (
    list_table,
    print_findings,
    state_parts,
    states_table,
    wait_until_it_runs,
    watch,
)
from dragoman.cli.output import Output, Stream, note, show, show_change
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, say
from dragoman.client_core import credentials
from dragoman.installation import install_command
from dragoman.limits import CAPTURE_CHECK_TIMEOUT_S, CLI_PAGES_MAX
from dragoman.operating_system import child_environment

_WAYS = ("hash", "null", "stars")
#: A definition with the default of each option.
_USUAL = Definition(name="usual", dsn="-", tables=("-",))
_Many: TypeAlias = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """Options of `add` and `doctor`. Values of lists are separated by commas, or repeated.

    Parameters
    ----------
    dsn
        Address of the database, as for libpq, or - to read it from stdin. Other users can see an
        address on the command line; use stdin or the environment for one with a password.
    tables
        Tables to capture, as schema.table with * and ?; the schema is public by default.
    channels
        Channels to LISTEN to, for payloads of NOTIFY.
    outbox
        Outbox table: each inserted row is a message with its own topic, key and payload.
    envelope
        Envelope of the events.
    topic
        Topic for tables that match a pattern, as TABLE=TOPIC; TOPIC may contain {database},
        {schema} and {table}. The first matching pattern applies.
    partitions
        Number of partitions of new topics.
    key
        Key columns for tables that match a pattern, as TABLE=COLUMN,COLUMN; the replica identity by
        default.
    include
        Columns to capture, as schema.table.column with * and ?; all by default.
    exclude
        Columns to leave out.
    mask
        How to mask the values of a column: COLUMN=hash, COLUMN=null or COLUMN=stars.
    tombstones
        Send a record without a value after each delete.
    transactions
        Send transaction events to pgcdc._txn.
    schema_changes
        Send schema change events to pgcdc._schema.
    snapshot
        When to send existing rows: initial, before their changes, or never.
    snapshot_rows
        Maximum number of rows in a chunk of a snapshot.
    publication
        Publication to use; dragoman_NAME by default.
    slot
        Replication slot to use; dragoman_NAME by default.
    create
        Create the publication and the slot if they do not exist.
    streaming
        Receive large transactions while they are in progress.
    two_phase
        Send prepared transactions when they are prepared, not when they are committed.
    heartbeat
        Seconds between heartbeats, which release WAL while the captured tables do not change; 0 for
        none.
    wal_warn
        Bytes of retained WAL above which there is a warning; 0 for never.
    wal_limit
        Bytes of retained WAL above which --wal-policy applies; 0 for never.
    wal_policy
        What to do above the limit: stop the capture, or drop the slot.
    keep_wal
        Bytes of captured WAL to retain for `rewind`.
    """

    dsn: Annotated[
        str, Parameter(env_var="DRAGOMAN_CDC_DSN", show_default=False, allow_leading_hyphen=True)
    ] = field(default="", repr=False)
    tables: _Many = ()
    channels: _Many = ()
    outbox: str = _USUAL.outbox
    envelope: EnvelopeName = _USUAL.envelope
    topic: _Many = ()
    partitions: int = _USUAL.partitions
    key: _Many = ()
    include: _Many = ()
    exclude: _Many = ()
    mask: _Many = ()
    tombstones: bool = _USUAL.tombstones
    transactions: bool = _USUAL.transactions
    schema_changes: bool = _USUAL.schema_changes
    snapshot: Literal["initial", "never"] = _USUAL.snapshot
    snapshot_rows: int = _USUAL.snapshot_rows
    publication: str = _USUAL.publication
    slot: str = _USUAL.slot
    create: bool = _USUAL.create
    streaming: bool = _USUAL.streaming
    two_phase: bool = _USUAL.two_phase
    heartbeat: float = _USUAL.heartbeat_s
    wal_warn: int = _USUAL.wal_warn_bytes
    wal_limit: int = _USUAL.wal_limit_bytes
    wal_policy: Literal["stop", "drop"] = _USUAL.wal_policy
    keep_wal: int = _USUAL.keep_wal_bytes

    def definition(self, name: str) -> Definition:
        """Raises `CommandError` and `ConfigError` for options that are not valid."""
        return Definition(
            name=name,
            dsn=self._dsn(),
            tables=_listed(self.tables),
            channels=_listed(self.channels),
            outbox=self.outbox,
            envelope=self.envelope,
            topics=_pairs("--topic", self.topic),
            partitions=self.partitions,
            keys={table: _listed((text,)) for table, text in _pairs("--key", self.key).items()},
            include=_listed(self.include),
            exclude=_listed(self.exclude),
            mask={column: _way(way) for column, way in _pairs("--mask", self.mask).items()},
            tombstones=self.tombstones,
            transactions=self.transactions,
            schema_changes=self.schema_changes,
            snapshot=self.snapshot,
            snapshot_rows=self.snapshot_rows,
            publication=self.publication,
            slot=self.slot,
            create=self.create,
            streaming=self.streaming,
            two_phase=self.two_phase,
            heartbeat_s=self.heartbeat,
            wal_warn_bytes=self.wal_warn,
            wal_limit_bytes=self.wal_limit,
            wal_policy=self.wal_policy,
            keep_wal_bytes=self.keep_wal,
        )

    def _dsn(self) -> str:
        dsn = sys.stdin.readline().strip() if self.dsn == "-" else self.dsn
        if has_secret(dsn) and any(dsn in each for each in sys.argv):
            raise CommandError(
                "other users of this machine can see a password on the command line: give --dsn -"
                " and the address on stdin, set DRAGOMAN_CDC_DSN, or refer to a file of the node,"
                " as in password=file:/etc/dragoman/shop.password",
                USAGE,
            )
        if not dsn:
            raise CommandError(
                "the address of the database is missing: give --dsn "
                "postgresql://USER:PASSWORD@HOST/DATABASE, or --dsn - and the address on stdin, or "
                "set DRAGOMAN_CDC_DSN",
                USAGE,
            )
        return dsn


def _listed(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not (name.strip() and equals and rest.strip()):
            raise CommandError(f"{option}: expected NAME=VALUE, got {value!r}", USAGE)
        found[name.strip()] = rest.strip()
    return found


def _way(text: str) -> MaskWay:
    for way in _WAYS:
        if way == text:
            return way  # type: ignore[return-value]
    raise CommandError(f"--mask: expected one of {', '.join(_WAYS)}, got {text!r}", USAGE)


# ---- commands


app = App(name="cdc", help="Capture databases: row changes become records.")

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
    principal: str = "",
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Capture a database: row changes become records of topics.

    The database is checked first. If there is a problem, the command prints its remedy and adds
    nothing. A capture first sends a snapshot of the tables, and then their changes.

    Parameters
    ----------
    check
        Check the database first.
    detach
        Do not wait for the snapshot.
    principal
        User that the capture runs as, as User:NAME, who has to hold every right that it uses; you
        by default.

    Examples
    --------
    echo postgresql://app@127.0.0.1/shop | dragoman cdc add shop --dsn - --tables orders
    """
    definition = options.definition(name)
    remote = Remote(server)
    if check:
        findings = remote.post(_CHECKS, CaptureCheck(definition=definition), Findings).items
        print_findings(each for each in findings if each.level != "ok")
        problems = sum(each.level == "problem" for each in findings)
        if problems:
            raise CommandError(f"nothing was added; see above for problems: {problems}")
    query = f"?{urlencode({'principal': principal})}" if principal else ""
    capture = remote.post(_PATH + query, definition, CaptureDescription)
    note(output, f"added capture {name}")
    if not detach:
        capture = wait_until_it_runs(lambda: _described(remote, name))
        note(output, f"capture {name} is {capture.status.state}")
    if output != "table":
        show(output, capture, CaptureDescription)


@app.command(name="list")
def list_captures(*, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """List captures with their tables and channels.

    Examples
    --------
    dragoman cdc list
    """
    captures = _all(Remote(server))
    show(output, captures, CaptureDescription, list_table(captures))


@app.command
def status(
    name: Annotated[str | None, Parameter(help="Capture to show; all by default.")] = None,
    /,
    *,
    watch_: Annotated[bool, Parameter(name=["--watch", "-w"], negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Show the state of captures: lag, rows, retained WAL, progress of snapshots.

    Parameters
    ----------
    watch_
        Repeat every second.

    Examples
    --------
    dragoman cdc status
    dragoman cdc status shop --watch
    """
    remote = Remote(server)

    stream = Stream(output, CaptureDescription) if watch_ and output != "table" else None

    def show_status() -> None:
        if stream is not None:
            for each in _all(remote) if name is None else [_described(remote, name)]:
                stream.show(each)
        elif name is None:
            captures = _all(remote)
            show(output, captures, CaptureDescription, states_table(captures))
        else:
            capture = _described(remote, name)
            show(output, capture, CaptureDescription, *state_parts(capture))
            if output == "table":
                for warning in capture.status.warnings:
                    say(f"warning: {warning}")

    if watch_:
        watch(show_status)
    else:
        show_status()


@app.command
def pause(name: Name, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Pause a capture until `resume`. The database retains its WAL until then.

    Examples
    --------
    dragoman cdc pause shop
    """
    _command(server, output, name, CaptureCommand(command="pause"))


@app.command
def resume(name: Name, /, *, server: Server = DEFAULT_SERVER, output: Output = "table") -> None:
    """Resume a capture after `pause`, or retry it at once after a failure.

    Examples
    --------
    dragoman cdc resume shop
    """
    _command(server, output, name, CaptureCommand(command="resume"))


@app.command(name="run-as")
def run_as(
    name: Name, principal: str, /, *, server: Server = DEFAULT_SERVER, output: Output = "table"
) -> None:
    """Let a capture run as another user, who has to hold every right that it uses.

    Parameters
    ----------
    principal
        The user, as User:NAME.

    Examples
    --------
    dragoman cdc run-as shop User:alice
    """
    _command(server, output, name, CaptureCommand(command="run_as", principal=principal))


@app.command
def rewind(
    name: Name, /, *, to: str, server: Server = DEFAULT_SERVER, output: Output = "table"
) -> None:
    """Capture the changes after an earlier position again. This duplicates their records in the
    topics.

    Parameters
    ----------
    to
        LSN in the WAL of the database, such as 0/16B3748. The slot must still retain it.

    Examples
    --------
    dragoman cdc rewind shop --to 0/16B3748
    """
    _command(server, output, name, CaptureCommand(command="rewind", lsn=to))


@app.command
def snapshot(
    name: Name,
    /,
    *,
    tables: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Send a snapshot of tables again, while their changes continue.

    Parameters
    ----------
    tables
        Tables to read, separated by commas; all captured tables by default.

    Examples
    --------
    dragoman cdc snapshot shop --tables public.orders
    """
    listed = tuple(part for each in tables for part in each.split(",") if part)
    _command(server, output, name, CaptureCommand(command="snapshot", tables=listed))


@app.command
def remove(
    name: Name,
    /,
    *,
    keep_slot: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Remove a capture. Its topics are not deleted.

    Parameters
    ----------
    keep_slot
        Keep the slot and the publication. The database then retains WAL for the slot.

    Examples
    --------
    dragoman cdc remove shop
    """
    query = "?keep_slot=true" if keep_slot else ""
    result = Remote(server).remove(_path(name) + query, Told)
    show_change(output, result.detail, result, Told)


@app.command
def doctor(
    name: Annotated[str | None, Parameter(help="Name of an existing or a new capture.")] = None,
    /,
    *,
    options: CaptureOptions = _NO_OPTIONS,
    local: Annotated[bool, Parameter(negative="")] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> int:
    """Check whether a database can be captured. The exit status is 1 if it cannot.

    Give the name of a capture, or the options of `add`.

    Parameters
    ----------
    local
        Check from this machine instead of the node.

    Examples
    --------
    dragoman cdc doctor shop
    """
    # The address is no criterion, because it may come from the environment.
    is_new = options.tables or options.channels or options.outbox
    if options.dsn and is_new:
        definition = options.definition(name or "doctor")
        check = CaptureCheck(definition=definition)
        findings = _examine(definition) if local else Remote(server).post(_CHECKS, check, Findings)
    elif name is None or local:
        what = "--local needs" if local else "expected the name of a capture, or"
        raise CommandError(f"{what} --dsn DSN and --tables TABLES", USAGE)
    else:
        findings = Remote(server).post(_CHECKS, CaptureCheck(name=name), Findings)
    match output:
        case "json":
            show(output, findings, Findings)
        case "csv":
            show(output, findings.items, Finding)
        case "table":
            print_findings(findings.items)
    return FAILED if any(each.level == "problem" for each in findings.items) else OK


def _examine(definition: Definition) -> Findings:
    """Run the doctor in a child process, as a node does. The address is passed on stdin, with the
    secrets that it refers to on this machine.
    """
    if find_spec("psycopg") is None:
        raise CommandError(f"--local needs a driver for PostgreSQL: {install_command('cdc')}")
    dsn = resolved(definition.dsn, credentials.resolved)
    definition = msgspec.structs.replace(definition, dsn=dsn)
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "dragoman.cdc.doctor"],
            input=msgspec.json.encode(definition),
            capture_output=True,
            timeout=CAPTURE_CHECK_TIMEOUT_S,
            check=False,
            env=child_environment(os.environ),
        )
        found: list[Finding] = [decode_finding(line) for line in ended.stdout.splitlines()]
    except subprocess.TimeoutExpired:
        raise CommandError(
            f"the database did not respond within {CAPTURE_CHECK_TIMEOUT_S} s"
        ) from None
    except msgspec.DecodeError:
        found = []
    if not found:
        lines = ended.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
        why = hide_secrets(lines[-1], definition.dsn)
        raise CommandError(f"the database could not be checked: {why}")
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
    raise CommandError(f"the node lists more than {CLI_PAGES_MAX} pages of captures")


def _command(server: Server, output: Output, name: str, wanted: CaptureCommand) -> None:
    result = Remote(server).post(f"{_path(name)}/commands", wanted, Told)
    show_change(output, result.detail, result, Told)
