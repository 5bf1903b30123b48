"""Flipped bits: after any one of them the log serves what was written, or says that it cannot.

One run fills a log, stops it (cleanly, by a kill or by a power cut), turns bits over on the disk,
starts it again and reads everything. A batch may be refused only near the flipped bit; it may be
missing without a report only when the power went and the bit was in the journal's last group, which
then cannot be distinguished from one that was being written.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from dragoman.errors import CorruptionError, FormatError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import LENGTH_PREFIX_BYTES, UNCHECKED_PREFIX_BYTES, WALK
from dragoman.log.journal import GroupRef, JournalReader
from dragoman.log.node import NODE_FILE, read_node_state
from dragoman.log.store import LogStore
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import Flip
from power_cuts.model import expect, readable
from power_cuts.scenario import LogScenario, StoreOptions

_STEPS = 60
#: A bad header costs its index range; one batch of five large records is 4.6 KB.
_REFUSED_BYTES_MAX = 10_000
#: A damaged group of the journal costs what it held, if that was not in the segments yet.
_GROUP_BYTES_MAX = 24_000


class DamageOutcome(msgspec.Struct, frozen=True):
    seed: int
    flip: Flip | None
    #: What became of it: `refused to start`, `served all`, `refused some`, `lost the last group`.
    result: str


def run_damage(seed: int, make_store: Callable[..., LogStore] = LogStore) -> DamageOutcome:
    """One run with one flipped bit. Raises `AssertionError` when a promise is broken."""
    random = Random(seed)
    scenario = LogScenario(StoreOptions(make_store=make_store, cleans=False))
    disk = SimDisk(Random(seed + 1))
    scenario.start(disk, Random(seed + 2))
    for _ in range(_STEPS):
        scenario.step()
    scenario.store.settle_all()
    stop = random.choice(("clean", "kill", "cut"))
    if stop == "clean":
        scenario.store.close()
    disk = disk.crash() if stop == "cut" else disk.kill()
    last_group = _last_group(disk) if stop == "cut" else None
    flip = _flip(disk, random)
    try:
        scenario._open(disk)
    except (CorruptionError, FormatError) as error:
        expect(flip is not None and flip.path == NODE_FILE, f"does not start: {error}")
        return DamageOutcome(seed, flip, "refused to start")
    return DamageOutcome(seed, flip, _judge(scenario, flip, last_group))


def _last_group(disk: SimDisk) -> GroupRef | None:
    """The journal's last group: after a power cut, a flipped bit in it looks like a torn write."""
    state = read_node_state(disk)
    groups = JournalReader(disk, int(state.directory_id[:8], 16), state.sequence).groups
    return groups[-1] if groups else None


def _is_inside(flip: Flip | None, group: GroupRef | None) -> bool:
    if flip is None or group is None or flip.path != group.path:
        return False
    return group.position <= flip.position < group.position + group.size


#: Where the bit is flipped: a kind of file, chosen evenly so that the small ones get their share.
_KINDS = (".log", ".log", "header", "header", ".idx", ".json", ".snapshot", ".jnl")


def _flip(disk: SimDisk, random: Random) -> Flip | None:
    kind = random.choice(_KINDS)
    suffix = ".log" if kind == "header" else kind
    files = [(path, data) for path, data in disk.image().items() if path.endswith(suffix) and data]
    if not files:
        return disk.flip_random()
    path, data = random.choice(files)
    position = random.randrange(len(data))
    if kind == "header":
        starts = [0]
        while starts[-1] + BATCH_HEADER_BYTES < len(data):
            _, length, _ = WALK.unpack_from(data, starts[-1])
            starts.append(starts[-1] + max(length, 0) + LENGTH_PREFIX_BYTES)
        start = random.choice([each for each in starts if each < len(data)])
        position = min(start + random.randrange(UNCHECKED_PREFIX_BYTES), len(data) - 1)
    disk.flip(path, position, random.randrange(8))
    return disk.flips[-1]


def _judge(scenario: LogScenario, flip: Flip | None, last_group: GroupRef | None) -> str:
    result = "served all"
    for name, model in scenario.models.items():
        partition = scenario.partitions[name]
        is_back = partition.log_start_offset < model.log_start and not _is_manifest(flip)
        is_told = bool(scenario.store.journal_damage) or _is_inside(flip, last_group)
        expect(not is_back or is_told, f"{name}: the log start went back without a report")
        served, refused = readable(partition, model)
        refused_bytes = sum(len(each.data) for each in refused)
        is_group = flip is not None and flip.path.endswith(".jnl")
        bound = _GROUP_BYTES_MAX if is_group else _REFUSED_BYTES_MAX
        expect(refused_bytes <= bound, f"{name}: {refused_bytes} bytes are refused")
        whole = [each for each in model.batches if each.next_offset > partition.log_start_offset]
        missing = len(whole) - len(served) - len(refused)
        is_told = bool(partition.problems or scenario.store.journal_damage or refused)
        if missing and not is_told:
            expect(
                _is_inside(flip, last_group),
                f"{name}: {missing} batches are missing without a report ({flip})",
            )
            result = "lost the last group"
        elif refused or missing:
            result = "refused some"
    return result


def _is_manifest(flip: Flip | None) -> bool:
    return flip is not None and flip.path.endswith("manifest.json")
