"""`dragoman pipeline`: runs pipelines on Spark, and shows the pipelines of this machine or of a
node.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.client_security import (
    THIS_MACHINE,
    Broker,
    BrokerOptions,
    BrokerTarget,
    spark_login,
)
from dragoman.cli.kafka_client import DEFAULT_BOOTSTRAP
from dragoman.cli.output import Change, Fields, Output, Table, show, show_change
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, say
from dragoman.errors import ConfigError, DragomanError
from dragoman.installation import install_command

if TYPE_CHECKING:
    from dragoman.pipelines.definition import Definition
    from dragoman.pipelines.state import Status

app = App(name="pipeline", help="Pipelines on Spark.")

State: TypeAlias = Annotated[
    str,
    Parameter(
        help="Folder with status and checkpoints of pipelines; by default "
        "$XDG_STATE_HOME/dragoman/pipelines, else ~/.local/state/dragoman/pipelines."
    ),
]
Node: TypeAlias = Annotated[
    str, Parameter(name="--server", help="URL of the HTTP listener of a node that collects status.")
]
Name: TypeAlias = Annotated[str, Parameter(help="Name of the pipeline.")]
#: A password in the options of a source or a sink that is not a reference.
_CLEAR_PASSWORD = re.compile(r'\bpassword\s*+=\s*+"?+(?!file:|env:)', re.IGNORECASE)
#: Options of a job, which its own module declares.
JobOptions = Annotated[str, Parameter(allow_leading_hyphen=True)]


@app.command
def init(
    directory: str = ".",
    /,
    *,
    template: Literal["topic-to-delta", "cdc-materialize", "windowed", "sdp"] = "topic-to-delta",
    output: Output = "table",
) -> int:
    """Create a project from a template.

    Parameters
    ----------
    directory
        Project folder; created if it does not exist.
    template
        topic-to-delta: writes records of a topic to a Delta table. cdc-materialize: keeps a Delta
        table in sync with a PostgreSQL table. windowed: writes sums per minute to a topic. sdp: a
        plain Spark Declarative Pipelines project.

    Examples
    --------
    dragoman pipeline init my-pipeline --template topic-to-delta
    """
    from dragoman.pipelines.templates import write_project

    written = [
        Change(str(path), f"wrote {path}") for path in write_project(Path(directory), template)
    ]
    if output == "table":
        for each in written:
            say(each.detail)
        say(f"next: dragoman pipeline run {directory}")
    else:
        show(output, written, Change)
    return OK


@app.command
def run(
    target: str = ".",
    /,
    *options: JobOptions,
    state: State = "",
    check: bool = False,
    trigger: str = "",
    master: str = "",
    broker: BrokerOptions = THIS_MACHINE,
    server: Node = "",
    output: Output = "table",
) -> int:
    """Run a pipeline until it is done, fails, or is stopped. Ctrl-C stops it after a batch.

    Addresses of --bootstrap are used instead of the file's; a part that names another cluster keeps
    its own. A file uses a context only if --context names it.

    Exit status 2: the file has an error. 1: the pipeline failed.

    Parameters
    ----------
    target
        A file in TOML or Python, a folder with a pipeline.toml or a spark-pipeline.yml, or a job:
        materialize, tier, replay, profile.
    options
        Options of the job, such as: --topic pgcdc.orders --table orders
    check
        Check the file, the topics and the queries without running the pipeline.
    trigger
        Trigger to use instead of the file's: continuous, once, or an interval such as "every 10s".
    master
        Spark master to use instead of the file's.

    Examples
    --------
    dragoman pipeline run my-pipeline --check
    dragoman pipeline run profile --topic orders
    """
    with _one_line_failures():
        from dragoman.pipelines import sdp
        from dragoman.pipelines.pipeline_file import load, single_job

        if (project := sdp.project_in(target)) is not None:
            if broker.bootstrap:
                raise CommandError(
                    "--bootstrap: a Spark project names its brokers in its code", USAGE
                )
            if broker.is_secure:
                raise CommandError(
                    "--user, --tls: a Spark project has its logins in its code", USAGE
                )
            return sdp.run(project, is_dry=check, say=say)
        keys = _job_keys(target, options)
        if keys is None:
            definition = load(target)
            # Its own address keeps the current context away from a file.
            own = None if broker.context else definition.bootstrap
            found = replace(broker, bootstrap=broker.bootstrap or own).resolved(DEFAULT_BOOTSTRAP)
        else:
            found = broker.resolved(DEFAULT_BOOTSTRAP)
            definition = single_job(target, keys, found.bootstrap)
        named = found.bootstrap if broker.bootstrap or broker.context else ""
        definition = _with(definition, trigger, master, named)
        definition = _with_security(definition, broker, found)
        status = _run(definition, _root(state), server, is_check=check)
        if check:
            message = f"{definition.file} is valid"
            show_change(output, message, Change(definition.name, message), Change)
        elif output != "table" and status is not None:
            show(output, status, type(status))
        else:
            _print_profiles(definition)
        return OK


def _run(definition: Definition, root: Path, server: str, *, is_check: bool) -> Status | None:
    """The last status; None of a pipeline that was only checked."""
    from dragoman.cli.pipeline_status import StatusReports, StatusView
    from dragoman.pipelines.runner import Run
    from dragoman.pipelines.state import StateFolder

    with StatusView() as view, StatusReports(server) as reports:
        last: Status | None = None

        def watch(status: Status) -> None:
            nonlocal last
            last = status
            view.show(status)
            reports.send(status)

        run = Run(definition, StateFolder(root, definition.name), watch)
        say("starting Spark …")
        if is_check:
            run.check()
            return None

        def stop(*_: object) -> None:
            if not run.stop():
                raise KeyboardInterrupt
            say("stopping after the current batch …")

        def on_started() -> None:
            # Spark replaces the handler when it starts.
            signal.signal(signal.SIGINT, stop)

        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGTERM, stop)
        try:
            run.run(on_started)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    return last


def _job_keys(target: str, options: tuple[str, ...]) -> dict[str, str] | None:
    """The options of a job, when the target is the name of a job and not a file."""
    from dragoman.pipelines.pipeline_file import JOBS

    if target not in JOBS or os.path.exists(target):
        if options:
            raise CommandError(f"unexpected {' '.join(options)!r}: only jobs have options", USAGE)
        return None
    keys: dict[str, str] = {}
    given = iter(options)
    for each in given:
        name, equals, value = each.partition("=")
        if not name.startswith("--"):
            raise CommandError(f"expected --OPTION VALUE, got {each!r}", USAGE)
        keys[name[2:].replace("-", "_")] = value if equals else next(given, "")
    if any(map(_CLEAR_PASSWORD.search, keys.values())):
        # Others on the machine can read arguments.
        raise CommandError("no passwords in arguments: password=file:PATH or env:NAME", USAGE)
    return keys


def _with(definition: Definition, trigger: str, master: str, bootstrap: str) -> Definition:
    """The definition with the values of the command line instead of the file's."""
    from dragoman.pipelines.brokers import with_bootstrap
    from dragoman.pipelines.definition import check_trigger

    if bootstrap:
        definition = with_bootstrap(definition, bootstrap)
    if trigger:
        try:
            check_trigger(trigger)
        except ValueError as error:
            raise CommandError(f"--{error}", USAGE) from None
        sinks = {
            name: msgspec.structs.replace(sink, trigger="")
            for name, sink in definition.sinks.items()
        }
        definition = msgspec.structs.replace(definition, trigger=trigger, sinks=sinks)
    if master:
        spark = msgspec.structs.replace(definition.spark, master=master)
        definition = msgspec.structs.replace(definition, spark=spark)
    return definition


def _with_security(definition: Definition, broker: BrokerTarget, found: Broker) -> Definition:
    """The definition with the login and the TLS of the command line instead of the file's.

    The environment adds to the command line, and stands for a file that has neither.
    """
    from dragoman.pipelines.definition import SecurityKeys

    keys = definition.security
    if keys is not None and not broker.is_secure:
        ca = keys.ca or (os.environ.get("DRAGOMAN_CA_FILE", "") if keys.is_encrypted else "")
        return msgspec.structs.replace(definition, security=msgspec.structs.replace(keys, ca=ca))
    tls, login = found.tls, spark_login(found.credentials)
    if tls is None and login is None:
        return definition
    security = SecurityKeys(
        protocol="SASL_SSL" if tls and login else "SSL" if tls else "SASL_PLAINTEXT",
        ca=tls.ca if tls else "",
        certificate=tls.certificate if tls else "",
        key=tls.key if tls else "",
        mechanism=found.credentials.mechanism,
        user=login.name if login else "",
        password=login.password if login else "",
    )
    return msgspec.structs.replace(definition, security=security)


def _print_profiles(definition: Definition) -> None:
    """Print the reports of profile jobs to stdout."""
    for job in definition.jobs.values():
        report = Path(getattr(job.options, "place", ""), "profile.txt")
        if job.type == "profile" and report.exists():
            print(report.read_text(), end="")


@app.command(name="list")
def list_(*, state: State = "", server: Node = "", output: Output = "table") -> int:
    """List the pipelines that were run on this machine, or that reported to a node.

    Examples
    --------
    dragoman pipeline list
    """
    found = _known(state, server)
    from dragoman.pipelines.state import Status

    rows = ((s.name, s.state, s.pid, *_sums(s), s.file) for s in found)
    show(output, found, Status, Table(("NAME", "STATE", "PID", "ROWS/S", "LAG", "FILE"), rows))
    return OK


def _sums(status: Status) -> tuple[int, int | None]:
    lags = [part.lag_records for part in status.parts if part.lag_records >= 0]
    return round(sum(part.rows_per_s for part in status.parts)), sum(lags) if lags else None


def _known(state: str, server: str) -> list[Status]:
    if server:
        from dragoman.api.values import PipelineList
        from dragoman.cli.remote import Remote

        return list(Remote(server).get("/api/v1/pipelines", PipelineList).items)
    from dragoman.pipelines.state import known_pipelines

    return known_pipelines(_root(state))


@app.command
def status(name: Name, /, *, state: State = "", server: Node = "", output: Output = "table") -> int:
    """Show the status of a pipeline. Exit status 1: it failed or died.

    Examples
    --------
    dragoman pipeline status my-pipeline
    """
    from dragoman.cli.pipeline_status import COLUMNS, row

    found = next((each for each in _known(state, server) if each.name == name), None)
    if found is None:
        where = f"has not reported to {server}" if server else "was never run here"
        raise CommandError(
            f"pipeline {name} {where}", code="unknown_pipeline", hint="`dragoman pipeline list`"
        )
    fields = Fields(
        [
            ("name", found.name),
            ("state", found.state),
            ("file", found.file),
            ("pid", found.pid),
            ("master", found.master),
            *([("problem", found.problem)] if found.problem else []),
        ]
    )
    show(output, found, type(found), fields, Table(COLUMNS, map(row, found.parts)))
    return FAILED if found.state in ("failed", "died") else OK


@app.command
def stop(
    name: Name, /, *, state: State = "", timeout: float = 60.0, output: Output = "table"
) -> int:
    """Stop a running pipeline after its current batch.

    Parameters
    ----------
    timeout
        Seconds before it is killed. Killing it neither loses nor duplicates records.

    Examples
    --------
    dragoman pipeline stop my-pipeline
    """
    from dragoman.pipelines.state import StateFolder

    folder = StateFolder(_root(state), name)
    try:
        message = f"{name} has stopped" if folder.stop(timeout) else f"{name} was killed"
    except ConfigError as error:
        raise CommandError(str(error), code="unknown_pipeline") from None
    show_change(output, message, Change(name, message), Change)
    return OK


def _root(state: str) -> Path:
    from dragoman.pipelines.state import default_root

    return Path(state).absolute() if state else default_root()


@contextmanager
def _one_line_failures() -> Iterator[None]:
    try:
        yield
    except (CommandError, ConfigError):
        raise
    except ImportError as error:
        raise CommandError(f"{error}: `{install_command('pipelines')}`") from None
    except DragomanError as error:
        raise CommandError(str(error), code=error.code) from None
    except Exception as error:
        # Spark has many exception classes, each with a stack trace in its text.
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        from dragoman.spark.failures import readable

        raise CommandError(readable(error)) from None
