"""`dragoman log`: read, repair and adopt a data directory without a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec
from cyclopts import App

from dragoman.cli.output import Output
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, say
from dragoman.errors import ConfigError, CorruptionError, DirectoryInUseError, FormatError
from dragoman.telemetry.logs import escape

app = App(name="log", help="Data directories, worked on without a node.")


@app.command
def inspect(directory: str, /, *, output: Output = "table") -> int:
    """Show what a data directory holds; exit status 1 when there is damage.

    Parameters
    ----------
    directory
        Data directory; one in use may be looked at, too.
    """
    from dragoman.log.inspect import Problem, describe
    from dragoman.offline import inspect_all

    status = OK
    try:
        # As it is found: a large directory should show progress.
        for found in inspect_all(directory):
            text = _json(found) if output == "json" else escape(describe(found))
            print(text)
            if isinstance(found, Problem) and found.is_damage:
                status = FAILED
    except FormatError as error:
        raise CommandError(str(error), USAGE) from None
    except OSError as error:
        raise CommandError(_not_readable(directory, error)) from None
    return status


@app.command
def verify(directory: str, /, *, output: Output = "table") -> int:
    """Check every byte of a data directory; exit status 1 when there is damage.

    Parameters
    ----------
    directory
        Data directory; one in use may be looked at, too.
    """
    from dragoman.log.inspect import describe, verified
    from dragoman.offline import inspect_all

    try:
        result = verified(inspect_all(directory))
    except FormatError as error:
        raise CommandError(str(error), USAGE) from None
    except OSError as error:
        raise CommandError(_not_readable(directory, error)) from None
    if output == "json":
        print(_json(result))
    else:
        for problem in result.problems:
            print(escape(describe(problem)))
        if result.is_in_use:
            print("a node is using the directory: its newest data may be half written")
        read = f"{result.files} files, {result.bytes_read} bytes"
        if result.is_sound:
            print(f"sound: {read}")
        if result.unread_files:
            print(f"not checked: {result.unread_files} of {read}, which this user cannot read")
        if result.damaged_files:
            print(f"damaged: {result.damaged_files} of {read}")
            say(
                f"`dragoman log repair {directory} --dry-run` shows what can be kept; "
                "in a cluster, a node copies what others have when it starts"
            )
    return OK if result.is_sound else FAILED


@app.command
def repair(directory: str, /, *, dry_run: bool = False, output: Output = "table") -> int:
    """Make damaged partitions readable again: damaged records are taken out and kept aside.

    The offsets of what is lost are not given again; readers get the next record. The damaged files
    are kept in the directory's `quarantine/`. Exit status 1 when something damaged is left.

    Parameters
    ----------
    directory
        Data directory that no node is using.
    dry_run
        Only show what would be done.
    """
    from dragoman.offline import repair as repair_directory

    with _refusals(directory):
        report = repair_directory(directory, is_dry=dry_run)
    if output == "json":
        print(_json(report))
        return FAILED if report.left else OK
    word = "would be taken out" if dry_run else "taken out"
    for each in report.repairs:
        where = f"{each.topic}-{each.partition}: {each.path}"
        if not each.lost:
            print(escape(f"{where}: readable again"))
        for first, next_good, position in each.lost:
            print(escape(f"{where} at byte {position}: offsets {first} to {next_good - 1} {word}"))
        if each.lost:
            kept = f"{each.kept_batches} batches, {each.kept_bytes} bytes"
            print(escape(f"{where}: {kept} are kept, the damaged file in {each.quarantine}"))
    if report.has_new_metadata:
        what = "would be made again" if dry_run else "was made again; what it was is in quarantine/"
        print(f"the metadata is damaged and {what}")
    for topic in report.topics_without_settings:
        print(escape(f"{topic}: its settings are lost; it keeps records until they are set again"))
    for text in report.left:
        print(escape(f"left as it is: {text}"))
    for text in report.journal:
        print(escape(f"lost with the journal: {text}"))
    lost = sum(each.lost_offsets for each in report.repairs)
    print(f"{len(report.repairs)} files, {lost} offsets {word}")
    return FAILED if report.left else OK


@app.command
def adopt(directory: str, /, *, durability: Literal["fsync", "os"] | None = None) -> None:
    """Give a data directory that has lost its `node.json` another, made from what is there.

    For a node that is alone. In a cluster, remove the node, and add it with an empty directory.

    Parameters
    ----------
    directory
        Data directory that no node is using.
    durability
        How its records were written; by default as `journal/mark` says, or else `fsync`.
    """
    from dragoman.log.node import Durability
    from dragoman.offline import adopt as adopt_directory

    with _refusals(directory):
        adopted = adopt_directory(directory, Durability(durability) if durability else None)
    print(
        f"{directory}: id {adopted.state.directory_id} from {adopted.source}; "
        f"the next start replays {adopted.groups} groups of the journal"
    )


@contextmanager
def _refusals(directory: str) -> Iterator[None]:
    """Errors of work on a directory as those of a command."""
    try:
        yield
    except CorruptionError as error:
        advice = f"; `dragoman log adopt {directory}` helps" if error.path == "node.json" else ""
        raise CommandError(f"{error}{advice}") from None
    except (DirectoryInUseError, FormatError, ConfigError) as error:
        raise CommandError(str(error), USAGE) from None
    except OSError as error:
        raise CommandError(_not_readable(directory, error)) from None


def _not_readable(directory: str, error: OSError) -> str:
    where = error.filename or directory
    return f"{where}: {error.strerror or error}; use the account that the node runs under"


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
