"""`dragoman log`: inspect, repair and adopt a data directory without a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, get_args

import msgspec
from cyclopts import App

from dragoman.cli.output import Lines, Output, Stream, show
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, say
from dragoman.errors import ConfigError, CorruptionError, DirectoryInUseError, FormatError
from dragoman.plural import plural
from dragoman.telemetry.logs import escape

if TYPE_CHECKING:
    from dragoman.offline import RepairReport

app = App(name="log", help="Inspect and repair data directories without a node.")


@app.command
def inspect(directory: str, /, *, output: Output = "table") -> int:
    """Show the content of a data directory. The exit status is 1 if it is damaged.

    Parameters
    ----------
    directory
        Data directory; a node may be using it.

    Examples
    --------
    dragoman log inspect dragoman-data
    """
    from dragoman.log.inspect import Finding, Problem, describe
    from dragoman.offline import inspect_all

    status = OK
    stream = None if output == "table" else Stream(output, *get_args(Finding))
    try:
        # Printed as they are found, so that a large directory shows progress.
        for found in inspect_all(directory):
            if stream is None:
                print(escape(describe(found)))
            else:
                stream.show(found)
            if isinstance(found, Problem) and found.is_damage:
                status = FAILED
    except FormatError as error:
        raise CommandError(str(error), USAGE, code=error.code) from None
    except OSError as error:
        raise _not_readable(directory, error) from None
    return status


@app.command
def verify(directory: str, /, *, output: Output = "table") -> int:
    """Check every byte of a data directory. The exit status is 1 if it is damaged.

    Parameters
    ----------
    directory
        Data directory; a node may be using it.

    Examples
    --------
    dragoman log verify dragoman-data --output json
    """
    from dragoman.log.inspect import Verification, describe, verified
    from dragoman.offline import inspect_all

    try:
        result = verified(inspect_all(directory))
    except FormatError as error:
        raise CommandError(str(error), USAGE, code=error.code) from None
    except OSError as error:
        raise _not_readable(directory, error) from None
    lines = [describe(problem) for problem in result.problems]
    if result.is_in_use:
        lines.append("a node is using the directory: its newest data may be half written")
    read = f"{result.files} files, {result.bytes_read} bytes"
    if result.is_sound:
        lines.append(f"sound: {read}")
    if result.unread_files:
        lines.append(f"not checked: {result.unread_files} of {read}, which this user cannot read")
    if result.damaged_files:
        lines.append(f"damaged: {result.damaged_files} of {read}")
    show(output, result, Verification, Lines(lines))
    if output == "table" and result.damaged_files:
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

    Examples
    --------
    dragoman log repair dragoman-data --dry-run
    """
    from dragoman.offline import RepairReport
    from dragoman.offline import repair as repair_directory

    with _refusals(directory):
        report = repair_directory(directory, is_dry=dry_run)
    show(output, report, RepairReport, Lines(_repair_lines(report, is_dry=dry_run)))
    return FAILED if report.left else OK


def _repair_lines(report: RepairReport, *, is_dry: bool) -> Iterator[str]:
    word = "would be removed" if is_dry else "removed"
    for each in report.repairs:
        where = f"{each.topic}-{each.partition}: {each.path}"
        if not each.lost:
            yield f"{where}: readable again"
        for first, next_good, position in each.lost:
            yield f"{where} at byte {position}: offsets {first} to {next_good - 1} {word}"
        if each.lost:
            kept = f"{each.kept_batches} batches, {each.kept_bytes} bytes"
            yield f"{where}: {kept} are kept, the damaged file in {each.quarantine}"
    if report.has_new_metadata:
        what = "would be rebuilt" if is_dry else "was rebuilt; the damaged one is in quarantine/"
        yield f"the metadata is damaged and {what}"
    for topic in report.topics_without_settings:
        yield f"{topic}: its settings are lost; it keeps records until they are set again"
    for text in report.left:
        yield f"not repaired: {text}"
    for text in report.journal:
        yield f"lost with the journal: {text}"
    lost = sum(each.lost_offsets for each in report.repairs)
    yield f"{plural(len(report.repairs), 'file')}, {plural(lost, 'offset')} {word}"


class AdoptedDirectory(msgspec.Struct, frozen=True):
    """The JSON form of `log adopt`."""

    directory: str
    directory_id: str
    #: Where the id was found.
    source: str
    #: Groups of the journal that the next start replays.
    journal_groups: int


@app.command
def adopt(
    directory: str,
    /,
    *,
    durability: Literal["fsync", "os"] | None = None,
    output: Output = "table",
) -> None:
    """Rebuild the lost `node.json` of a data directory from its other files.

    This is for a single node. In a cluster, remove the node and add it with an empty directory.

    Parameters
    ----------
    directory
        Data directory that no node is using.
    durability
        Durability of its records; by default as in `journal/mark`, or else `fsync`.

    Examples
    --------
    dragoman log adopt dragoman-data --durability fsync
    """
    from dragoman.log.node import Durability
    from dragoman.offline import adopt as adopt_directory

    with _refusals(directory):
        adopted = adopt_directory(directory, Durability(durability) if durability else None)
    directory_id, source = adopted.state.directory_id, str(adopted.source)
    text = (
        f"{directory}: id {directory_id} from {source}; "
        f"the next start replays {plural(adopted.groups, 'group')} of the journal"
    )
    found = AdoptedDirectory(directory, directory_id, source, adopted.groups)
    show(output, found, AdoptedDirectory, text)


@contextmanager
def _refusals(directory: str) -> Iterator[None]:
    """Convert errors about a directory to a `CommandError` with advice."""
    try:
        yield
    except CorruptionError as error:
        hint = f"run `dragoman log adopt {directory}`" if error.path == "node.json" else ""
        raise CommandError(str(error), code=error.code, hint=hint) from None
    except (DirectoryInUseError, FormatError, ConfigError) as error:
        raise CommandError(str(error), USAGE, code=error.code) from None
    except OSError as error:
        raise _not_readable(directory, error) from None


def _not_readable(directory: str, error: OSError) -> CommandError:
    where = error.filename or directory
    hint = "run the command as the user of the node"
    return CommandError(f"{where}: {error.strerror or error}", hint=hint)
