"""What became of a damaged directory, and whether that is good enough.

A directory is served as a node would serve it and read to the end, the node is killed and started
again, and the directory is repaired and served again. It is
good when everything acknowledged is there; or when what is missing was reported with the file, by
the log, the status or the refusal to start, and a command helps. A wrong byte, silence, a traceback
or a hang is a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from damage.image import (
    Commits,
    Files,
    Image,
    Records,
    disk_of,
    files_of,
    on_loop,
    read_all,
    read_commits,
    serving,
)
from damage.wounds import Wound
from dragoman.broker.broker import Broker
from dragoman.errors import ConfigError, CorruptionError, DragomanError, FormatError
from dragoman.log.adoption import adopt_directory
from dragoman.log.damage import lost_ranges
from dragoman.log.inspect import inspect_disk, verified
from dragoman.offline import registered_ids, repair_disk


class Verdict(NamedTuple):
    #: `whole`, `whole, reported` or `lost, reported`, perhaps after `adopted` or `refused,
    #: repaired`; or `FAILED`.
    result: str
    #: What was wrong, or what was said.
    detail: str = ""


#: By topic and partition: every range of offsets that is known to be lost.
Ranges = dict[tuple[str, int], list[tuple[int, int]]]


class _Seen(NamedTuple):
    records: Records
    commits: Commits
    ranges: Ranges
    journal: list[str]
    topics: set[str]


class _Failure(Exception):
    """A promise that is broken."""


def judge(image: Image, files: Files, wound: Wound) -> Verdict:
    try:
        return _judge(image, files, wound)
    except _Failure as failure:
        return Verdict("FAILED", str(failure))
    except Exception as error:  # noqa: BLE001
        return Verdict("FAILED", f"traceback: {type(error).__name__}: {error}")


def _judge(image: Image, files: Files, wound: Wound) -> Verdict:
    disk = disk_of(files)
    found = verified(inspect_disk(disk))
    reported = [f"{each.path} at byte {each.position}: {each.reason}" for each in found.problems]
    prefix = ""
    with _lines() as lines:
        try:
            seen = _serve(disk)
        except (CorruptionError, FormatError, ConfigError) as error:
            if "node.json" in str(error):
                adopt_directory(disk, Random(1), known_ids=registered_ids)
                prefix = "adopted, "
            else:
                _check_refusal(error, wound)
                reported.append(str(error))
                repair_disk(disk, is_dry=False)
                prefix = "refused, repaired, "
            seen = _serve(disk)
    reported += lines
    lost = _compare(image, seen, reported, wound)
    if not lost:
        is_said = bool(prefix) or any(_names(line, wound) for line in reported)
        return Verdict(prefix + ("whole, reported" if is_said else "whole"))
    _check_repair(disk, seen)
    return Verdict(prefix + "lost, reported", lost)


def _check_refusal(error: DragomanError, wound: Wound) -> None:
    """A node that does not start has to say which file keeps it from that."""
    if not (_names(str(error), wound) or "partitions/0-" in str(error)):
        raise _Failure(f"refuses to start without naming the file: {error}")


def _names(line: str, wound: Wound) -> bool:
    """Whether the file is named; an index by the segment that it belongs to."""
    paths = [path for path in (wound.path, wound.other) if path]
    return any(path in line or path.replace(".idx", ".log") in line for path in paths)


def _serve(disk) -> _Seen:
    """What a reader finds. The node is killed at once behind it, and has to know as much when it is
    started again, before anything is read.
    """
    with serving(disk) as broker:
        seen = on_loop(broker, _look)
        broker.kill()
    with serving(disk) as broker:
        known = on_loop(broker, _ranges)
        broker.stop()
    for where, ranges in seen.ranges.items():
        if _offsets(known.get(where, [])) != _offsets(ranges):
            raise _Failure(f"{where}: after kill -9, {known.get(where)} of {ranges} are known")
    return seen


def _offsets(ranges: list[tuple[int, int]]) -> set[int]:
    return {offset for first, end in ranges for offset in range(first, end)}


def _ranges(broker: Broker) -> Ranges:
    return {
        (log.identity.topic, log.identity.partition): [
            (each.first, each.next_good) for each in lost_ranges(log)
        ]
        for log in broker.store.open_partitions()
    }


def _look(broker: Broker) -> _Seen:
    records = read_all(broker)
    return _Seen(
        records,
        read_commits(broker),
        _ranges(broker),
        [str(each) for each in broker.store.journal_damage],
        set(broker.image.topics),
    )


def _compare(image: Image, seen: _Seen, reported: list[str], wound: Wound) -> str:
    """What is lost, in words; empty when nothing is. Raises `_Failure`."""
    lost: list[str] = []
    is_named = any(_names(line, wound) for line in reported) or bool(seen.journal)
    for where, expected in image.records.items():
        found = seen.records.get(where)
        if found is None:
            raise _Failure(f"{where} is gone")
        wrong = [each for each in found if each in expected and found[each] != expected[each]]
        if wrong:
            raise _Failure(f"{where}: wrong bytes at {wrong[:5]}")
        missing = [each for each in expected if each not in found]
        ranges = seen.ranges.get(where, [])
        unknown = [each for each in missing if not any(a <= each < b for a, b in ranges)]
        if unknown and not is_named:
            raise _Failure(f"{where}: {len(unknown)} records are gone without a word")
        if missing:
            lost.append(f"{len(missing)} of {len(expected)} records of {where[0]}-{where[1]}")
        extra = [each for each in found if each not in expected]
        if extra and not is_named:
            raise _Failure(f"{where}: {len(extra)} records came back that were deleted")
    for group, expected_offsets in image.commits.items():
        found_offsets = seen.commits.get(group, {})
        for where, offset in expected_offsets.items():
            if found_offsets.get(where) != offset:
                if not is_named:
                    raise _Failure(f"the commit of {group} for {where} is gone without a word")
                lost.append(f"a commit of {group}")
    return ", ".join(lost)


def _check_repair(disk, before: _Seen) -> None:
    """Afterwards nothing is damaged, and what could be read before is still there."""
    report = repair_disk(disk, is_dry=False)
    if report.left and not all("metadata" in each for each in report.left):
        raise _Failure(f"repair leaves {report.left}")
    after = _serve(disk)
    for where, records in before.records.items():
        if after.records.get(where) != records:
            raise _Failure(f"{where}: repair changed what could be read")
    left = [where for where, ranges in after.ranges.items() if ranges]
    if left and not report.left:
        raise _Failure(f"still damaged after repair: {left}")
    problems = [
        each for each in verified(inspect_disk(disk_of(files_of(disk)))).problems if each.is_damage
    ]
    if problems and not report.left:
        raise _Failure(f"verify after repair: {problems[0]}")


@contextmanager
def _lines() -> Iterator[list[str]]:
    """Warnings and errors of the node."""
    lines: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            if record.exc_info:
                lines.append("Traceback")

    keeper = Keeper(logging.WARNING)
    root = logging.getLogger("dragoman")
    root.addHandler(keeper)
    propagates, root.propagate = root.propagate, False
    try:
        yield lines
    finally:
        root.removeHandler(keeper)
        root.propagate = propagates
