"""What group requests cost: `PYTHONPATH=src python tests/benchmarks/bench_groups.py`.

Runs on a real event loop (uvloop when it is there), because the cost of its timers is part of the
answer. The log answers at once. Prints CPU microseconds per call, where it can be repeated the best
of several rounds.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable

from dragoman.broker.groups import Groups, GroupSettings, Joined, JoinRequest, SyncRequest
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, Offsets
from dragoman.errors import DragomanError
from dragoman.operating_system import SystemClock

MEMBERS = 10_000
METADATA = bytes(100)


class Bench:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.joined: list[Joined] = []
        self.groups = Groups(
            scheduler=self.loop,
            clock=SystemClock(),
            random=random.Random(1),
            persist=lambda _group, _records, done: done(None),
            settings=GroupSettings(group_initial_rebalance_delay_ms=0),
        )

    def reply(self, result: Joined | DragomanError) -> None:
        assert isinstance(result, Joined), result
        self.joined.append(result)

    def join(self, group_id: str, member_id: str = "", instance_id: str | None = None) -> None:
        self.groups.join(
            JoinRequest(
                group_id=group_id,
                member_id=member_id,
                instance_id=instance_id,
                client_id="client",
                client_host="/127.0.0.1",
                protocol_type="consumer",
                protocols=(("range", METADATA), ("cooperative-sticky", METADATA)),
                session_timeout_ms=45_000,
                rebalance_timeout_ms=300_000,
            ),
            self.reply,
        )

    def sync(self, group_id: str, joined: Joined) -> None:
        self.groups.sync(
            SyncRequest(
                group_id=group_id,
                member_id=joined.member_id,
                generation=joined.generation,
                assignments=tuple((member.member_id, METADATA) for member in joined.members),
            ),
            lambda _result: None,
        )

    async def generation(self) -> list[Joined]:
        await asyncio.sleep(0.01)
        joined, self.joined = self.joined, []
        return joined


def best(call: Callable[[], object], count: int, rounds: int = 7) -> float:
    """Microseconds for one of the `count` operations that a call does."""
    results = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        results.append((time.process_time() - start) / count * 1e6)
    return min(results)


def show(what: str, microseconds: float) -> None:
    print(f"{what:58} {microseconds:9.2f} µs")


async def big_group() -> None:
    bench = Bench()
    start = time.process_time()
    for _ in range(MEMBERS):
        bench.join("big")
    show(f"join of a new member, {MEMBERS} members", (time.process_time() - start) / MEMBERS * 1e6)
    joined = await bench.generation()
    assert len(joined) == MEMBERS
    leader = next(each for each in joined if each.members)
    start = time.process_time()
    for each in joined:
        bench.sync("big", each)
    show("sync, per member", (time.process_time() - start) / MEMBERS * 1e6)

    groups = bench.groups

    def heartbeats() -> None:
        for each in joined:
            groups.heartbeat("big", each.member_id, each.generation)

    show(f"heartbeat, {MEMBERS} members", best(heartbeats, MEMBERS))

    def repeated_joins() -> None:
        for each in joined[1:]:
            bench.join("big", each.member_id)

    show("join answered again (follower, Stable)", best(repeated_joins, MEMBERS - 1))
    bench.joined.clear()
    start = time.process_time()
    bench.join("big", leader.member_id)
    for each in joined:
        if each is not leader:
            bench.join("big", each.member_id)
    assert len(bench.joined) == MEMBERS
    show("rebalance, per member", (time.process_time() - start) / MEMBERS * 1e6)
    groups.close()


async def small_groups() -> None:
    bench = Bench()
    names = [f"group-{i}" for i in range(1000)]
    start = time.process_time()
    for name in names:
        bench.join(name, instance_id="one")
    show("join that makes a group", (time.process_time() - start) / len(names) * 1e6)
    joined = await bench.generation()
    start = time.process_time()
    for name, each in zip(names, joined, strict=True):
        bench.sync(name, each)
    show("sync of a leader alone", (time.process_time() - start) / len(names) * 1e6)

    def heartbeats() -> None:
        for name, each in zip(names, joined, strict=True):
            bench.groups.heartbeat(name, each.member_id, each.generation)

    show("heartbeat, 1000 groups", best(heartbeats, len(names)))
    offsets = Offsets(bench.groups)
    places = tuple(OffsetCommit(topic="topic", partition=i, offset=i) for i in range(10))

    def commits() -> None:
        for name, each in zip(names, joined, strict=True):
            prepared = offsets.prepare_commit(
                CommitRequest(
                    group_id=name,
                    member_id=each.member_id,
                    generation=each.generation,
                    offsets=places,
                )
            )
            bench.groups.apply(prepared.records)

    show("commit of 10 partitions, prepare and apply", best(commits, len(names)))

    def static_restarts() -> None:
        for name in names:
            bench.join(name, instance_id="one")

    show("static member joins anew (Stable)", best(static_restarts, len(names)))
    bench.groups.close()


async def main() -> None:
    await big_group()
    # What the big group leaves behind is not the small ones' to clear away.
    gc.collect()
    await small_groups()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
