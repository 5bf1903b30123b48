"""A group driven by a script of commands, traced in lines that a person can read.

    > command name=value ...
    what came of it, one line each

Commands (`NAME` is a client; it remembers its member id, which is shown as `NAME#1`, `NAME#2`,
...):

    settings NAME=VALUE ...              of `GroupSettings`; only at the start
    join NAME [anew] [as-stranger] [require-id] [skip] [instance=I] [protocols=p:meta,q:meta]
              [session=S] [rebalance=S] [type=T] [group=G] [owner=O]
    sync NAME [assign=a:x,b:y] [generation=N] [type=T] [protocol=P]
    heartbeat NAME [generation=N]        NAME@2 anywhere: with the second member id it was given
    leave NAME ... [by-instance]
    lose NAME                            its connection, while a request waits
    wait SECONDS
    commit NAME|- topic-0=5 ... [generation=N] [transaction=P] [owner=O] [group=G] [metadata=N]
    end P commit|abort                   a transaction
    offsets [group=G]
    log hold|release|fail|flow           what becomes of records: held back, then durable or refused
    restart                              from the durable records
    idle SECONDS NAME ... [step=S]       time passes while these send heartbeats
    unload                               the group moves to another node
    describe, list, delete, delete-offset topic-0, expire

Consumer groups (KIP-848). A client remembers its epoch, which it joins with when it has none.

    topic NAME COUNT|gone
    consume NAME ... [anew] [leave|away] [full] [topics=a,b] [pattern=P] [owned=a-0,a-1|none]
              [epoch=N] [instance=I] [assignor=A] [timeout=S] [group=G]
                                         anew: as a process that starts, under a new member id
    fetch-offsets NAME [epoch=N]         may it?
    members                              of a consumer group, with what they have

To a consumer group, the metadata of a member of the first protocol reads `a+b/a-0+a-1`: topics, and
what it still has.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence

from dragoman.broker.errors import CoordinatorNotAvailable, MemberIdRequired, NotCoordinator
from dragoman.broker.groups import (
    ClassicSubscription,
    Groups,
    GroupSettings,
    HeartbeatReply,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    LeavingMember,
    NamedPartitions,
    Parked,
    StateRecord,
    Synced,
    SyncRequest,
)
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, Offsets
from dragoman.errors import BrokerError, DragomanError
from worlds.consumer_clients import FakeCatalog


class VirtualTime:
    """The ports `Scheduler` and `Clock` in one; time moves when a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        return self.call_later(0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        timer = Timer(callback, args)
        heapq.heappush(self._heap, (self.now + delay, next(self._order), timer))
        return timer

    @property
    def pending(self) -> int:
        return sum(timer.callback is not None for _, _, timer in self._heap)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self.now, _, timer = heapq.heappop(self._heap)
            if timer.callback is not None:
                timer.callback(*timer.args)
        self.now = end


class Timer:
    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class FakeLog:
    """Takes records and says when they are durable."""

    def __init__(self) -> None:
        self.durable: list[StateRecord] = []
        self.held: deque[tuple[Sequence[StateRecord], Callable[[DragomanError | None], None]]] = (
            deque()
        )
        self.is_holding = False

    def persist(
        self,
        _group_id: str,
        records: Sequence[StateRecord],
        done: Callable[[DragomanError | None], None],
    ) -> None:
        self.held.append((records, done))
        if not self.is_holding:
            self.release()

    def release(self) -> None:
        while self.held:
            records, done = self.held.popleft()
            self.durable.extend(records)
            done(None)

    def fail(self) -> None:
        while self.held:
            self.held.popleft()[1](CoordinatorNotAvailable("the log refuses"))


class GroupScript:
    def __init__(self) -> None:
        self.time = VirtualTime()
        self.log = FakeLog()
        self.random = random.Random(3)
        self.settings = GroupSettings(group_initial_rebalance_delay_ms=0)
        self.ids: dict[str, list[str]] = {}
        self.instances: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.parked: dict[str, Parked[Joined] | Parked[Synced]] = {}
        self.lines: list[str] = []
        self.catalog = FakeCatalog()
        self.epochs: dict[str, int] = {}
        self._start()

    def _start(self) -> None:
        self.groups = Groups(
            scheduler=self.time,
            clock=self.time,
            random=self.random,
            persist=self.log.persist,
            settings=self.settings,
            read_subscription=read_topics,
            catalog=self.catalog,
            dialect=ScriptDialect(),
        )
        self.offsets = Offsets(self.groups)

    def run(self, command: str) -> list[str]:
        """Do one command and tell what came of it."""
        self.lines = []
        name, *words = command.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        method: Callable[[list[str], dict[str, str]], None] = getattr(
            self, "do_" + name.replace("-", "_")
        )
        try:
            method(names, options)
        except BrokerError as error:
            self.say(f"refused: {error.code}")
        return self.lines

    def say(self, line: str) -> None:
        self.lines.append(f"{self.time.now:.10g}s {line}")

    # ---- names

    def label(self, member_id: str | None) -> str:
        for name, ids in self.ids.items():
            if member_id in ids:
                return f"{name}#{ids.index(member_id) + 1}"
        # An id that its client does not know yet ends in a UUID.
        return f"{member_id[:-37]}#?" if member_id else "nobody"

    def member_id(self, word: str) -> str:
        name, _, number = word.partition("@")
        ids = self.ids.get(name, [])
        if number:
            return ids[int(number) - 1]
        return ids[-1] if ids else "nobody"

    def learn(self, name: str, member_id: str) -> None:
        ids = self.ids.setdefault(name, [])
        if member_id not in ids:
            ids.append(member_id)

    # ---- members

    def do_settings(self, _names: list[str], options: dict[str, str]) -> None:
        values = {name: _setting(name, value) for name, value in options.items()}
        self.settings = GroupSettings(**{"group_initial_rebalance_delay_ms": 0, **values})
        self._start()

    def do_join(self, names: list[str], options: dict[str, str]) -> None:
        name, *flags = names
        client = name.partition("@")[0]
        if "instance" in options:
            self.instances[client] = options["instance"]
        protocols = options.get("protocols", "range:topic")
        is_anonymous = "anew" in flags or (client not in self.ids and "as-stranger" not in flags)
        request = JoinRequest(
            group_id=options.get("group", "g"),
            member_id="" if is_anonymous else self.member_id(name),
            instance_id=self.instances.get(client),
            client_id=client,
            client_host=f"/host-of-{client}",
            protocol_type=options.get("type", "consumer"),
            protocols=tuple(
                (word.partition(":")[0], word.partition(":")[2].encode())
                for word in protocols.split(",")
                if word
            ),
            session_timeout_ms=round(float(options.get("session", "10")) * 1000),
            rebalance_timeout_ms=round(float(options.get("rebalance", "60")) * 1000),
            requires_known_member_id="require-id" in flags,
            supports_skip_assignment="skip" in flags,
            owner=options.get("owner", "kafka"),
        )
        parked = self.groups.join(request, lambda result: self._joined(client, result))
        if parked is not None:
            self.parked[client] = parked
            self.say(f"{client} waits")

    def _joined(self, name: str, result: Joined | DragomanError) -> None:
        if isinstance(result, MemberIdRequired):
            self.learn(name, result.member_id)
            self.say(f"{name}: join again as {self.label(result.member_id)}")
        elif isinstance(result, Joined):
            self.learn(name, result.member_id)
            self.generations[name] = result.generation
            members = " ".join(
                f"{self.label(member.member_id)}({member.metadata.decode()})"
                for member in result.members
            )
            self.say(
                f"{name}: joined as {self.label(result.member_id)} generation={result.generation} "
                f"protocol={result.protocol} leader={self.label(result.leader)}"
                + (f" members: {members}" if members else "")
                + (" skip" if result.skip_assignment else "")
            )
        else:
            self.say(f"{name}: join refused: {result.code}")

    def do_sync(self, names: list[str], options: dict[str, str]) -> None:
        name = names[0]
        client = name.partition("@")[0]
        assignments = tuple(
            (self.member_id(word.partition(":")[0]), word.partition(":")[2].encode())
            for word in options.get("assign", "").split(",")
            if word
        )
        request = SyncRequest(
            group_id=options.get("group", "g"),
            member_id=self.member_id(name),
            instance_id=self.instances.get(client),
            generation=int(options.get("generation", self.generations.get(client, 0))),
            protocol_type=options.get("type"),
            protocol=options.get("protocol"),
            assignments=assignments,
        )

        def reply(result: Synced | DragomanError) -> None:
            if isinstance(result, Synced):
                self.say(f"{client}: synced assignment={result.assignment.decode() or 'nothing'}")
            else:
                assert isinstance(result, DragomanError)
                self.say(f"{client}: sync refused: {result.code}")

        parked = self.groups.sync(request, reply)
        if parked is not None:
            self.parked[client] = parked
            self.say(f"{client} waits")

    def do_heartbeat(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            client = name.partition("@")[0]
            generation = int(options.get("generation", self.generations.get(client, 0)))
            try:
                self.groups.heartbeat(
                    options.get("group", "g"),
                    self.member_id(name),
                    generation,
                    self.instances.get(client),
                )
            except BrokerError as error:
                self.say(f"{client}: {error.code}")
            else:
                self.say(f"{client}: ok")

    def do_leave(self, names: list[str], options: dict[str, str]) -> None:
        by_instance = "by-instance" in names
        names = [name for name in names if name != "by-instance"]
        leaving = [
            LeavingMember(
                member_id="" if by_instance else self.member_id(name),
                instance_id=self.instances.get(name.partition("@")[0]),
            )
            for name in names
        ]
        results = self.groups.leave(options.get("group", "g"), leaving)
        for name, error in zip(names, results, strict=True):
            self.say(f"{name}: {'left' if error is None else error.code}")

    def do_lose(self, names: list[str], _options: dict[str, str]) -> None:
        self.parked.pop(names[0]).abandon()

    def do_wait(self, names: list[str], _options: dict[str, str]) -> None:
        self.time.advance(float(names[0]))

    def do_idle(self, names: list[str], options: dict[str, str]) -> None:
        step = int(options.get("step", "1"))
        for _ in range(0, int(names[0]), step):
            self.time.advance(step)
            for name in names[1:]:
                lines = self.lines
                self.lines = []
                self.do_heartbeat([name], {})
                self.lines = lines

    # ---- consumer groups

    def do_topic(self, names: list[str], _options: dict[str, str]) -> None:
        name, count = names
        if count == "gone":
            self.catalog.delete(name)
        elif name in self.catalog.topics:
            self.catalog.grow(name, int(count))
        else:
            self.catalog.create(name, int(count))

    def do_consume(self, names: list[str], options: dict[str, str]) -> None:
        flags = {"anew", "leave", "away", "full"}
        for name in names:
            if name not in flags:
                self._consume(name, flags & set(names), options)

    def _consume(self, name: str, flags: set[str], options: dict[str, str]) -> None:
        client = name.partition("@")[0]
        if "anew" in flags or client not in self.ids:
            self.learn(client, f"{client}-{len(self.ids.get(client, [])) + 1}")
            self.epochs[client] = 0
        if "instance" in options:
            self.instances[client] = options["instance"]
        epoch = int(options.get("epoch", self.epochs.get(client, 0)))
        epoch = -1 if "leave" in flags else -2 if "away" in flags else epoch
        tells_all = epoch == 0 or "full" in flags
        owned = self._owned(options["owned"]) if "owned" in options else None
        request = HeartbeatRequest(
            group_id=options.get("group", "g"),
            member_id=self.member_id(name),
            epoch=epoch,
            instance_id=self.instances.get(client),
            rebalance_timeout_ms=round(float(options.get("timeout", "60")) * 1000)
            if tells_all or "timeout" in options
            else None,
            topics=frozenset(word for word in options.get("topics", "").split(",") if word)
            if "topics" in options or tells_all
            else None,
            pattern=options.get("pattern"),
            assignor=options.get("assignor"),
            owned=frozenset() if owned is None and tells_all else owned,
            client_id=client,
            client_host=f"/host-of-{client}",
            owner=options.get("owner", "kafka"),
        )
        self.groups.consumer_heartbeat(request, lambda result: self._consumed(client, result))

    def _owned(self, text: str) -> frozenset[tuple[bytes, int]]:
        if text == "none":
            return frozenset()
        found = [word.rpartition("-") for word in text.split(",")]
        return frozenset(
            (self.catalog.topics[name].topic_id, int(index)) for name, _, index in found
        )

    def _consumed(self, name: str, result: HeartbeatReply | DragomanError) -> None:
        if not isinstance(result, HeartbeatReply):
            assert isinstance(result, DragomanError)
            self.say(f"{name}: {result.code}")
            return
        if result.epoch >= 0:
            self.epochs[name] = result.epoch
            self.generations[name] = result.epoch
        assignment = ""
        if result.assignment is not None:
            assignment = f" assignment: {self.catalog.named(result.assignment)}"
        self.say(f"{name}: epoch={result.epoch}{assignment}")

    def do_fetch_offsets(self, names: list[str], options: dict[str, str]) -> None:
        group = self.groups.consumer_group(options.get("group", "g"))
        assert group is not None
        epoch = int(options.get("epoch", self.epochs.get(names[0], 0)))
        group.check_fetch(self.member_id(names[0]), epoch)
        self.say("allowed")

    def do_members(self, _names: list[str], options: dict[str, str]) -> None:
        group = self.groups.describe_consumer(options.get("group", "g"))
        self.say(
            f"{group.state} epoch={group.epoch} assignment={group.assignment_epoch} "
            f"assignor={group.assignor}"
        )
        for member in group.members:
            self.say(
                f"  {self.label(member.member_id)} epoch={member.epoch}"
                f"{' classic' if member.is_classic else ''}"
                f" has: {self.catalog.named(member.assigned)}"
                f" target: {self.catalog.named(member.target)}"
            )

    # ---- offsets

    def do_commit(self, names: list[str], options: dict[str, str]) -> None:
        name = names[0]
        client = name.partition("@")[0]
        is_simple = name == "-"
        settings = {"generation", "transaction", "owner", "group", "metadata"}
        offsets = []
        for word, offset in options.items():
            if word in settings:
                continue
            topic, _, partition = word.rpartition("-")
            metadata = "x" * int(options.get("metadata", "0"))
            commit = OffsetCommit(
                topic=topic, partition=int(partition), offset=int(offset), metadata=metadata
            )
            offsets.append(commit)
        generation = -1 if is_simple else self.generations.get(client, 0)
        prepared = self.offsets.prepare_commit(
            CommitRequest(
                group_id=options.get("group", "g"),
                member_id="" if is_simple else self.member_id(name),
                instance_id=None if is_simple else self.instances.get(client),
                generation=int(options.get("generation", generation)),
                producer_id=int(options["transaction"]) if "transaction" in options else None,
                owner=options.get("owner", "kafka"),
                offsets=tuple(offsets),
            )
        )
        for (topic, partition), error in prepared.errors.items():
            self.say(f"{topic}-{partition}: {error.code}")
        self._append("committed", prepared.records)

    def _append(self, what: str, records: Sequence[StateRecord]) -> None:
        def done(error: DragomanError | None) -> None:
            if error is None:
                self.groups.apply(records)
                self.say(f"{what}: {len(records)} records")
            else:
                self.say(f"not {what}: {error.code}")

        self.log.persist("g", records, done)

    def do_end(self, names: list[str], options: dict[str, str]) -> None:
        records = self.offsets.prepare_transaction_end(
            options.get("group", "g"), int(names[0]), is_commit=names[1] == "commit"
        )
        self._append("ended", records)

    def do_offsets(self, _names: list[str], options: dict[str, str]) -> None:
        group_id = options.get("group", "g")
        group = self.groups.get(group_id)
        if group is None:
            self.say("no group, no offsets")
            return
        for (topic, partition), committed in sorted(group.ledger.committed.items()):
            is_unstable = self.offsets.has_unstable(group_id, topic, partition)
            self.say(f"{topic}-{partition} {committed.offset}{' unstable' if is_unstable else ''}")
        for producer_id in group.ledger.producers:
            for (topic, partition), staged in sorted(group.ledger.staged(producer_id).items()):
                self.say(f"{topic}-{partition} {staged.offset} staged by {producer_id}")

    def do_delete(self, _names: list[str], options: dict[str, str]) -> None:
        self._append("deleted", self.groups.prepare_delete(options.get("group", "g")))

    def do_delete_offset(self, names: list[str], options: dict[str, str]) -> None:
        topic, _, partition = names[0].rpartition("-")
        group_id = options.get("group", "g")
        prepared = self.offsets.prepare_delete(group_id, [(topic, int(partition))])
        for error in prepared.errors.values():
            self.say(f"{names[0]}: {error.code}")
        self._append("deleted", prepared.records)

    def do_expire(self, _names: list[str], _options: dict[str, str]) -> None:
        for each in self.offsets.prepare_expiry():
            self._append(f"expired from {each.group_id}", each.records)

    # ---- the world

    def do_log(self, names: list[str], _options: dict[str, str]) -> None:
        match names[0]:
            case "hold":
                self.log.is_holding = True
            case "release":
                self.log.release()
            case "fail":
                self.log.fail()
            case "flow":
                self.log.is_holding = False
                self.log.release()
            case other:
                raise ValueError(other)

    def do_restart(self, _names: list[str], _options: dict[str, str]) -> None:
        now = self.time.now
        self.time = VirtualTime()
        self.time.now = now
        self.log.held.clear()
        self._start()
        for each in self.log.durable:
            self.groups.load(each.key, each.value)
        self.groups.resume()

    def do_unload(self, _names: list[str], _options: dict[str, str]) -> None:
        self.groups.unload("g", NotCoordinator("moved"))

    def do_describe(self, _names: list[str], options: dict[str, str]) -> None:
        group = self.groups.describe(options.get("group", "g"))
        self.say(
            f"{group.state} owner={group.owner} generation={group.generation} "
            f"type={group.protocol_type or 'none'} protocol={group.protocol or 'none'}"
        )
        for member in group.members:
            self.say(
                f"  {self.label(member.member_id)} {member.client_id} {member.client_host}"
                f" instance={member.instance_id} metadata={member.metadata.decode() or 'none'}"
                f" assignment={member.assignment.decode() or 'none'}"
            )

    def do_list(self, _names: list[str], _options: dict[str, str]) -> None:
        for group in self.groups.listings():
            self.say(f"{group.group_id} {group.kind} {group.state} owner={group.owner}")
        if not len(self.groups):
            self.say("no groups")


def read_topics(protocol_type: str, metadata: bytes) -> frozenset[str] | None:
    """Here the metadata of a consumer is the name of its topic."""
    return frozenset({metadata.decode()}) if protocol_type == "consumer" else None


class ScriptDialect:
    """Metadata `a+b/a-0+a-1`: topics, and what the member still has. Assignment: `a-0+a-1`."""

    def read_subscription(self, metadata: bytes) -> ClassicSubscription | None:
        topics, _, owned = metadata.decode().partition("/")
        if topics == "unreadable":
            return None
        return ClassicSubscription(
            topics=frozenset(topics.split("+")),
            owned=self.read_assignment(owned.encode()) or (),
            rack_id=None,
        )

    def read_assignment(self, assignment: bytes) -> NamedPartitions | None:
        found = [word.rpartition("-") for word in assignment.decode().split("+") if word]
        if not all(index.isdigit() for _, _, index in found):
            return None
        return [(name, [int(index)]) for name, _, index in found]

    def write_assignment(self, _metadata: bytes, partitions: NamedPartitions) -> bytes:
        return "+".join(f"{name}-{index}" for name, all_ in partitions for index in all_).encode()


def _setting(name: str, value: str) -> object:
    if name.endswith("assignors"):
        return tuple(value.split(","))
    return int(value) if value.isdigit() else value
