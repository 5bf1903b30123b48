"""The judge of a tortured group: reads the diaries of all members (`member.py` says what is in
them) and raises `AssertionError` at the first thing that must not be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

Entry: TypeAlias = dict[str, Any]
Diaries: TypeAlias = Mapping[str, Sequence[Entry]]
#: When each member was silent for so long that its session may have expired, from and to.
Silences: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]


def check_faults(diaries: Diaries) -> None:
    """No reader was given a record twice, or a later one too early."""
    for name, entries in diaries.items():
        faults = [entry for entry in entries if entry["kind"] == "fault"]
        assert not faults, (name, faults[:5])


def check_generations(diaries: Diaries) -> int:
    """No partition belongs to two members in one generation. How many generations there were."""
    owner: dict[tuple[int, int], str] = {}
    for name, entries in diaries.items():
        for entry in entries:
            if entry["kind"] != "owns":
                continue
            # Below zero: it has lost its place by the time that it writes this.
            if not entry["is_assigned"] or entry["generation"] < 0:
                continue
            for partition in entry["partitions"]:
                key = (entry["generation"], partition)
                other = owner.setdefault(key, name)
                assert other == name, f"generation, partition {key}: {other} and {name}"
    return len({generation for generation, _ in owner})


class Tenure(msgspec.Struct):
    member: str
    partition: int
    begin: float
    end: float
    #: It gave the partition up when it was asked to, not because it had lost it.
    in_good_order: bool


def check_tenures(diaries: Diaries, silences: Silences) -> None:
    """No other member had a partition before its owner gave it up in good order.

    A member that has lost it may believe that it has it, until it learns otherwise or is killed.
    One whose session expired while it was frozen may first carry out an order to give the partition
    up that it had received before, and under KIP-848 does so with the member id it had.
    """
    of_partition: dict[int, list[Tenure]] = {}
    for name, entries in diaries.items():
        for tenure in _tenures(name, entries):
            if any(
                begin <= tenure.end and end >= tenure.begin for begin, end in silences.get(name, ())
            ):
                tenure.in_good_order = False
            of_partition.setdefault(tenure.partition, []).append(tenure)
    for several in of_partition.values():
        for first, second in itertools.combinations(several, 2):
            if second.begin < first.begin:
                first, second = second, first
            if first.in_good_order and first.member != second.member:
                assert first.end <= second.begin, (first, second)


def _tenures(name: str, entries: Sequence[Entry]) -> Iterator[Tenure]:
    held: dict[int, tuple[float, str]] = {}
    for entry in entries:
        if entry["kind"] not in ("owns", "lost"):
            continue
        kept, member_id = set(entry["partitions"]), entry["member_id"]
        for partition in set(held) - kept:
            begin, had_as = held.pop(partition)
            # Not every client tells its owner that it was thrown out; a new id does.
            in_good_order = (
                entry["kind"] == "owns" and entry["generation"] >= 0 and member_id == had_as
            )
            yield Tenure(name, partition, begin, entry["at"], in_good_order)
        held.update(dict.fromkeys(kept - set(held), (entry["at"], member_id)))
    for partition, (begin, _) in held.items():
        yield Tenure(name, partition, begin, math.inf, in_good_order=False)


class _Moment(NamedTuple):
    at: float
    is_answer: bool
    partition: int
    offset: int
    is_stale: bool


def check_commits(diaries: Diaries) -> int:
    """What is committed never goes back for any observer. Returns the number of looks.

    With one exception: kafka-python, rebalancing cooperatively, may be thrown out and let in again
    without dropping its partitions. It then commits from where it was, which the broker has to
    allow; such a commit is where the next one is measured from.
    """
    moments = [each for entries in diaries.values() for each in _moments(entries)]
    acknowledged: dict[int, int] = {}
    for each in sorted(moments):
        before = acknowledged.get(each.partition, 0)
        if each.is_answer:
            acknowledged[each.partition] = (
                each.offset if each.is_stale else max(each.offset, before)
            )
        else:
            assert each.is_stale or each.offset >= before, f"{before} was acknowledged, {each}"
    looks = (entry["kind"] == "resumes" for entries in diaries.values() for entry in entries)
    return sum(looks)


def _moments(entries: Sequence[Entry]) -> Iterator[_Moment]:
    """When a look or a commit began, and when a commit was acknowledged."""
    had_as: dict[int, str] = {}
    for entry in entries:
        if entry["kind"] in ("owns", "lost"):
            had_as = {each: had_as.get(each, entry["member_id"]) for each in entry["partitions"]}
        if entry["kind"] not in ("committed", "resumes"):
            continue
        is_commit = entry["kind"] == "committed"
        for text, offset in entry["offsets"].items():
            partition = int(text)
            is_stale = is_commit and had_as.get(partition) != entry["member_id"]
            yield _Moment(entry["started"], False, partition, offset, is_stale)
            if is_commit:
                yield _Moment(entry["at"], True, partition, offset, is_stale)
