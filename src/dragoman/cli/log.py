"""`dragoman log`: inspect, repair and adopt a data directory without a node."""

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

app = App(name="log", help="Inspect and repair data directories without a node.")


@app.command
def inspect(directory: str, /, *, output: Output = "table") -> int:
    """Show the content of a data directory. The exit status is 1 if it is damaged.

    Parameters
    ----------
    directory
        Data directory; a node may be using it.
    """
    from dragoman.log.inspect import Problem, describe
    from dragoman.offline import inspect_all

    status = OK
    try:
        # Printed as they are found, so that a large directory shows progress.
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
    """Check every byte of a data directory. The exit status is 1 if it is damaged.

    Parameters
    ----------
    directory
        Data directory; a node may be using it.
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
                "in a cluster, the node copies damaged records from other nodes when it starts"
            )
    return OK if result.is_sound else FAILED


@app.command
def repair(directory: str, /, *, dry_run: bool = False, output: Output = "table") -> int:
    """Make damaged partitions readable again by removing the damaged records.

    Offsets of lost records are not reused; readers get the next record. The damaged files are kept
    in `quarantine/` of the directory. The exit status is 1 if damage remains.

    Parameters
    ----------
    directory
        Data directory that no node is using.
    dry_run
        Show the changes and make none.
    """
    from dragoman.offline import repair as repair_directory

    with _refusals(directory):
        report = repair_directory(directory, is_dry=dry_run)
    if output == "json":
        print(_json(report))
        return FAILED if report.left else OK
    word = "would be removed" if dry_run else "removed"
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
        what = "would be rebuilt" if dry_run else "was rebuilt; the damaged one is in quarantine/"
        print(f"the metadata is damaged and {what}")
    for topic in report.topics_without_settings:
        print(escape(f"{topic}: its settings are lost; it keeps records until they are set again"))
    for text in report.left:
        print(escape(f"not repaired: {text}"))
    for text in report.journal:
        print(escape(f"lost with the journal: {text}"))
    lost = sum(each.lost_offsets for each in report.repairs)
    print(f"{len(report.repairs)} files, {lost} offsets {word}")
    return FAILED if report.left else OK


@app.command
def adopt(directory: str, /, *, durability: Literal["fsync", "os"] | None = None) -> None:
    """Rebuild the lost `node.json` of a data directory from its other files.

    This is for a single node. In a cluster, remove the node and add it with an empty directory.

    Parameters
    ----------
    directory
        Data directory that no node is using.
    durability
        Durability of its records; by default as in `journal/mark`, or else `fsync`.
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
    """Convert errors about a directory to a `CommandError` with advice."""
    try:
        yield
    except CorruptionError as error:
        advice = f"; run `dragoman log adopt {directory}`" if error.path == "node.json" else ""
        raise CommandError(f"{error}{advice}") from None
    except (DirectoryInUseError, FormatError, ConfigError) as error:
        raise CommandError(str(error), USAGE) from None
    except OSError as error:
        raise CommandError(_not_readable(directory, error)) from None


def _not_readable(directory: str, error: OSError) -> str:
    where = error.filename or directory
    return f"{where}: {error.strerror or error}; run the command as the user of the node"


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
