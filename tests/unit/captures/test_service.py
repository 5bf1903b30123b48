"""Goal: captures are agreed on, run by one node, kept alive, described and commanded, and removed.

Method: a broker on virtual time, or two that ask each other; what would be processes are objects
that a test makes speak and end.
"""

from __future__ import annotations

import msgspec
import pytest

from captures.runner import DSN, FakeRunner, Ran, defined
from dragoman.broker.errors import (
    CaptureExists,
    CaptureNotRunning,
    CaptureRefused,
    CoordinatorNotAvailable,
    NotAuthorized,
    Overloaded,
    UnknownCapture,
)
from dragoman.broker.produce import check_produced
from dragoman.broker.staged_writes.staging_topic import check_writable
from dragoman.broker.transactions.state import ProducerIdentity, TransactionState
from dragoman.captures.addresses import secured, without_secrets
from dragoman.captures.control import Done, Finding, Pause, Resume, Rewind, Snapshot, Status, Stop
from dragoman.captures.definition import POSITIONS_TOPIC, Definition
from dragoman.captures.supervisor import CaptureState
from dragoman.cluster.events import CaptureDefined, NodeAdded
from dragoman.config.settings import Settings
from dragoman.errors import ClusterError, ConfigError, DragomanError
from dragoman.limits import (
    CAPTURE_COMMANDS_MAX,
    CAPTURE_RESTART_S_MAX,
    CAPTURE_SILENCE_S,
    LOGIN_SECRET_BYTES,
)
from dragoman.log.batch import Record, build_batch
from dragoman.outcome import start
from dragoman.security.key_file import format_keys, new_key
from dragoman.security.secrets import KEY_FILE
from dragoman.world import DiskSecrets
from worlds.broker import Outcome, World, batch_of
from worlds.two_nodes import Pair

STREAMING = Status(state="streaming", rows=7)
TRANSACTIONAL = 16


def with_runner(world: World) -> FakeRunner:
    runner = FakeRunner()
    world.captures.runner = runner
    world.captures.changed()
    return runner


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def runner(world: World) -> FakeRunner:
    return with_runner(world)


def added(world: World, definition: Definition) -> DragomanError | None:
    outcome = Outcome()
    start(world.captures.add(definition)).then(outcome)
    world.settle()
    return outcome.error


def running(world: World, runner: FakeRunner, definition: Definition | None = None) -> Ran:
    assert added(world, definition or defined()) is None
    return runner.ran[-1]


def state(world: World, name: str = "shop") -> CaptureState:
    found: list[dict[str, CaptureState]] = []
    start(world.captures.states([name])).then(found.append)
    world.settle()
    return found[0][name]


def paused(world: World, is_paused: bool) -> DragomanError | None:
    outcome = Outcome()
    start(world.captures.set_paused("shop", is_paused)).then(outcome)
    world.settle()
    return outcome.error


def removed(world: World, *, keeps_slot: bool = False) -> DragomanError | None:
    outcome = Outcome()
    start(world.captures.remove("shop", keeps_slot=keeps_slot)).then(outcome)
    world.settle()
    world.advance(4)
    return outcome.error


# ---- what there is


def test_a_capture_that_was_added_runs_and_is_there_after_a_restart(
    world: World, runner: FakeRunner
) -> None:
    ran = running(world, runner)
    assert (ran.definition, ran.is_paused) == (defined(dsn=secured(DSN)), False)
    assert state(world).status.state == "starting"
    ran.say(STREAMING)
    assert state(world) == CaptureState(name="shop", node=1, status=STREAMING, rows=7)
    again = world.reopened(kill=True)
    # Read for clients, without secrets.
    assert again.captures.definition("shop") == defined(dsn=without_secrets(DSN))
    second = with_runner(again)
    again.settle()
    assert second.alive == ["shop"]


def test_the_first_capture_brings_the_secret_of_salts(world: World, runner: FakeRunner) -> None:
    assert not world.broker.image.login_secret
    running(world, runner)
    secret = world.broker.image.login_secret
    assert len(secret) == LOGIN_SECRET_BYTES
    assert world.reopened().broker.image.login_secret == secret


def test_a_node_without_processes_runs_nothing(world: World) -> None:
    assert isinstance(added(world, defined()), CaptureRefused)
    outcome = Outcome()
    event = CaptureDefined(name="shop", definition=msgspec.json.encode(defined()))
    world.broker.changes.make(lambda: [event]).then(outcome)
    world.settle()
    assert "its node is starting it" in state(world).status.problem


def test_names_and_slots_are_taken_once(world: World, runner: FakeRunner) -> None:
    running(world, runner)
    assert isinstance(added(world, defined()), CaptureExists)
    taken = added(world, defined("another", slot="dragoman_shop"))
    assert isinstance(taken, CaptureExists)
    assert "capture shop uses the slot dragoman_shop" in str(taken)
    elsewhere = defined("another", slot="dragoman_shop", dsn=DSN.replace("db.", "other."))
    assert added(world, elsewhere) is None
    assert runner.alive == ["shop", "another"]


def test_captures_and_their_commands_are_bounded(
    world: World, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.captures.service.CAPTURES_MAX", 3)
    for number in range(3):
        assert added(world, defined(f"c{number}")) is None
    assert isinstance(added(world, defined()), Overloaded)
    assert len(runner.ran) == 3
    large = defined("large", tables=("x" * 100_000,))
    assert isinstance(added(world, large), CaptureRefused)


def test_what_a_newer_release_has_defined_is_kept_and_does_not_run(
    world: World, runner: FakeRunner
) -> None:
    newer = msgspec.json.encode({**msgspec.to_builtins(defined()), "later": 1})
    outcome = Outcome()
    event = CaptureDefined(name="shop", definition=newer)
    world.broker.changes.make(lambda: [event]).then(outcome)
    world.settle()
    assert runner.ran == []
    assert state(world).status.state == "failed"
    assert "a newer release" in state(world).status.problem
    assert paused(world, True) is None
    assert world.broker.image.captures["shop"].definition == newer
    told = Outcome()
    start(world.captures.command("shop", Rewind(id="", lsn="0/1"))).then(told)
    world.settle()
    assert isinstance(told.error, CaptureRefused)
    assert removed(world, keeps_slot=True) is None


def test_beside_an_older_node_nothing_is_captured_or_made_for_it() -> None:
    world = World(Settings(cluster=("1@127.0.0.1:9190",)), start=False)
    world.broker.image.apply(NodeAdded(node_id=2, address="two.example:9190"))
    world.start()
    with_runner(world)
    refused = added(world, defined())
    assert isinstance(refused, ClusterError)
    assert "needs feature level 3 and the cluster uses 2: upgrade node 2 first" in str(refused)
    assert POSITIONS_TOPIC not in world.broker.image.topics


# ---- life


def test_a_process_that_ends_is_started_again_later_and_later(
    world: World, runner: FakeRunner
) -> None:
    running(world, runner)
    waits = []
    for _ in range(9):
        count = len(runner.ran)
        runner.ran[-1].end("status 1")
        assert state(world).status.state == "waiting"
        assert state(world).status.problem == "status 1"
        began = world.scheduler.time()
        while len(runner.ran) == count:
            world.advance(0.5)
        waits.append(world.scheduler.time() - began)
        assert state(world).status.state == "starting"
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert state(world).restarts == 9
    # One that got on, or lived long, is not one that cannot live.
    runner.ran[-1].say(STREAMING)
    for _ in range(2):
        runner.ran[-1].end("status 1")
        world.advance(1)
        assert runner.alive == ["shop"]
        assert state(world).rows == 7
        world.advance(CAPTURE_RESTART_S_MAX)


def test_where_it_was_is_known_while_it_waits(world: World, runner: FakeRunner) -> None:
    ran = running(world, runner)
    ran.say(Status(state="streaming", lsn="0/16B3748"))
    ran.say(Status(state="waiting", problem="the database is away"))
    assert state(world).status.lsn == "0/16B3748"


def test_what_a_process_said_before_it_ended_says_why(world: World, runner: FakeRunner) -> None:
    ran = running(world, runner)
    ran.say(Status(state="waiting", problem="the database is away"))
    ran.end("its process ended with signal 9")
    assert state(world).status.problem == "the database is away"


def test_a_node_that_cannot_run_it_says_why_and_tries_again(
    world: World, runner: FakeRunner
) -> None:
    ran = running(world, runner)
    runner.refusal = "install the driver"
    ran.end("gone")
    world.advance(1)
    assert runner.alive == []
    assert state(world).status.problem == "install the driver"
    runner.refusal = ""
    world.advance(2)
    assert runner.alive == ["shop"]


def test_processes_end_with_the_node_and_are_killed_when_they_do_not(
    world: World, runner: FakeRunner
) -> None:
    obedient = running(world, runner)
    stubborn = running(world, runner, defined("another"))
    stubborn.is_obedient = False
    ended: list[object] = []
    start(world.captures.stop_all()).then(ended.append)
    assert (obedient.is_over, obedient.was_killed) == (True, False)
    assert not ended
    world.advance(10)
    assert stubborn.was_killed
    assert ended
    world.advance(100)
    assert runner.alive == []


def test_processes_of_a_node_that_is_killed_are_not_started_again(
    world: World, runner: FakeRunner
) -> None:
    ran = running(world, runner)
    waiting = running(world, runner, defined("another"))
    waiting.end("status 1")
    world.captures.kill_all()
    assert ran.was_killed
    world.advance(CAPTURE_RESTART_S_MAX)
    assert runner.alive == []


def test_a_process_that_says_nothing_any_more_is_replaced(world: World, runner: FakeRunner) -> None:
    ran = running(world, runner)
    for _ in range(3):
        world.advance(CAPTURE_SILENCE_S - 1)
        ran.say(STREAMING)
    assert not ran.was_killed
    world.advance(CAPTURE_SILENCE_S + 2)
    assert ran.was_killed
    assert runner.alive == ["shop"]


def test_a_node_without_captures_has_nothing_to_end(world: World, runner: FakeRunner) -> None:
    ended: list[object] = []
    start(world.captures.stop_all()).then(ended.append)
    assert ended
    assert runner.ran == []


# ---- commands


def test_paused_captures_stay_so(world: World, runner: FakeRunner) -> None:
    ran = running(world, runner)
    assert paused(world, True) is None
    assert paused(world, True) is None
    assert ran.told == [Pause()]
    again = world.reopened(kill=True)
    second = with_runner(again)
    again.settle()
    assert second.ran[0].is_paused
    assert paused(again, False) is None
    assert second.ran[0].told == [Resume()]


def test_resuming_what_has_failed_has_it_try_again() -> None:
    pair = CapturingPair()
    assert added(pair.one, defined()) is None
    ran = pair.runners[1].ran[0]
    ran.say(Status(state="failed", problem="the slot is gone"))
    told = Outcome()
    start(pair.two.captures.resume("shop")).then(told)
    pair.settle()
    assert told.error is None
    assert ran.told == [Resume()]
    unknown = Outcome()
    start(pair.two.captures.resume("nobody")).then(unknown)
    pair.settle()
    assert isinstance(unknown.error, UnknownCapture)


def test_resuming_what_waits_to_be_started_starts_it(world: World, runner: FakeRunner) -> None:
    for _ in range(5):
        runner.ran[-1].end("no") if runner.ran else running(world, runner)
        world.advance(CAPTURE_RESTART_S_MAX)
    assert paused(world, True) is None
    runner.ran[-1].end("no")
    assert runner.alive == []
    told = Outcome()
    start(world.captures.resume("shop")).then(told)
    world.settle()
    assert told.error is None
    assert runner.alive == ["shop"]


def test_commands_are_answered_by_the_process(world: World, runner: FakeRunner) -> None:
    ran = running(world, runner)
    rewound, again = Outcome(), Outcome()
    start(world.captures.command("shop", Rewind(id="", lsn="0/16B3748"))).then(rewound)
    start(world.captures.command("shop", Snapshot(id="", tables=("public.orders",)))).then(again)
    first, second = ran.told
    assert isinstance(first, Rewind)
    assert isinstance(second, Snapshot)
    assert first.id != second.id
    ran.say(Done(id=second.id))
    ran.say(Done(id=first.id, problem="the slot does not reach so far back"))
    ran.say(Done(id="unheard of"))
    assert again.error is None
    assert isinstance(rewound.error, CaptureRefused)
    assert str(rewound.error) == "the slot does not reach so far back"


def test_commands_to_a_process_that_says_nothing_or_ends_are_answered(
    world: World, runner: FakeRunner
) -> None:
    ran = running(world, runner)
    told = [Outcome() for _ in range(CAPTURE_COMMANDS_MAX)]
    for each in told:
        start(world.captures.command("shop", Snapshot(id=""))).then(each)
    one_more = Outcome()
    start(world.captures.command("shop", Snapshot(id=""))).then(one_more)
    assert isinstance(one_more.error, Overloaded)
    world.advance(30)
    assert all(isinstance(each.error, CaptureNotRunning) for each in told)
    # It is in the process's queue, and may be done yet.
    assert "has not executed the command yet: it is starting" in str(told[0].error)
    last, too_late = Outcome(), Outcome()
    start(world.captures.command("shop", Snapshot(id=""))).then(last)
    ran.end("gone")
    assert isinstance(last.error, CaptureNotRunning)
    start(world.captures.command("shop", Snapshot(id=""))).then(too_late)
    assert isinstance(too_late.error, CaptureNotRunning)
    assert "gone" in str(too_late.error)


def test_commands_for_an_unknown_capture_are_refused(world: World, runner: FakeRunner) -> None:
    told = Outcome()
    start(world.captures.command("shop", Snapshot(id=""))).then(told)
    assert isinstance(told.error, UnknownCapture)
    assert isinstance(removed(world), UnknownCapture)
    assert isinstance(paused(world, True), UnknownCapture)
    assert runner.ran == []


def test_databases_are_looked_at(world: World, runner: FakeRunner) -> None:
    found: list[object] = []
    start(world.captures.check(defined())).then(found.append)
    runner.refusal = "install the driver"
    start(world.captures.check(defined())).then(found.append)
    assert found[0] == runner.findings
    assert isinstance(found[1], CaptureRefused)


def test_tables_of_databases_are_listed(world: World, runner: FakeRunner) -> None:
    found: list[object] = []
    start(world.captures.tables(defined())).then(found.append)
    runner.refusal = "install the driver"
    start(world.captures.tables(defined())).then(found.append)
    assert found[0] == runner.listed
    assert isinstance(found[1], CaptureRefused)


def test_captures_do_not_write_to_one_topic_unless_both_name_it(
    world: World, runner: FakeRunner
) -> None:
    running(world, runner)
    twin = defined("twin", dsn=DSN.replace("shop", "crm"), tables=("public.orders",))
    refused = added(world, twin)
    assert isinstance(refused, CaptureRefused)
    assert "capture shop writes to the topic pgcdc.orders, too" in str(refused)
    found: list[tuple[Finding, ...]] = []
    start(world.captures.check(twin)).then(found.append)  # type: ignore[arg-type]
    assert found[0][-1].level == "problem"
    # What is only possible is warned of, at both.
    assert added(world, defined("all", tables=("public.*",))) is None
    (warning,) = world.captures.overlaps("shop")
    assert "capture all may write to the topic pgcdc.orders" in warning
    assert len(world.captures.overlaps("all")) == 1
    start(world.captures.check(defined("more", tables=("*.*",)))).then(found.append)  # type: ignore[arg-type]
    assert [each.level for each in found[1]] == ["ok", "warning", "warning"]


def test_a_database_is_not_looked_at_for_a_definition_that_is_too_large(
    world: World, runner: FakeRunner
) -> None:
    found: list[object] = []
    runner.findings = ()
    start(world.captures.check(defined(tables=("t" * (1 << 20),)))).then(found.append)
    assert isinstance(found[0], CaptureRefused)


def test_captures_of_an_earlier_release_that_share_a_topic_go_on(
    world: World, runner: FakeRunner
) -> None:
    running(world, runner)
    twin = defined("twin", tables=("public.orders",))
    event = CaptureDefined(name="twin", definition=msgspec.json.encode(twin))
    world.broker.changes.make(lambda: [event]).then(Outcome())
    world.settle()
    assert runner.alive == ["shop", "twin"]
    assert len(world.captures.overlaps("twin")) == 1


@pytest.mark.parametrize(
    "dsn", ["host=db.example hostaddr=10.6.6.6 user=app", "host=other.example user=app"]
)
def test_an_address_that_must_not_be_used_is_neither_added_nor_looked_at(dsn: str) -> None:
    world = World(Settings(capture_allowed_hosts=("db.example",)))
    runner = with_runner(world)
    assert isinstance(added(world, defined(dsn=dsn)), ConfigError)
    found: list[object] = []
    runner.findings = ()
    start(world.captures.check(defined(dsn=dsn))).then(found.append)
    start(world.captures.tables(defined(dsn=dsn))).then(found.append)
    assert all(isinstance(each, ConfigError) for each in found)
    assert len(found) == 2
    assert runner.ran == []
    assert added(world, defined()) is None


def test_a_capture_that_an_earlier_release_took_does_not_run_with_a_refused_address(
    world: World, runner: FakeRunner
) -> None:
    old = defined(dsn="host=db.example hostaddr=10.6.6.6 user=app password=hunter2")
    event = CaptureDefined(name="shop", definition=msgspec.json.encode(old))
    world.broker.changes.make(lambda: [event]).then(Outcome())
    world.settle()
    assert runner.ran == []
    status = state(world).status
    assert status.state == "failed"
    assert "hostaddr" in status.problem
    refused = removed(world)
    assert isinstance(refused, CaptureRefused)
    assert "--keep-slot" in str(refused)
    assert runner.cleaned_up == []
    assert removed(world, keeps_slot=True) is None


# ---- the end


def position(world: World) -> list[tuple[bytes | None, bytes | None]]:
    index = world.captures.partition_of("shop")
    log = world.broker.partitions.find(POSITIONS_TOPIC, index).log
    return [(each.key, each.value) for each in log.iterate(0, log.high_watermark)]


def test_a_capture_that_is_removed_ends_first_and_leaves_nothing(
    world: World, runner: FakeRunner
) -> None:
    ran = running(world, runner)
    assert removed(world) is None
    assert ran.told == [Stop()]
    assert runner.cleaned_up == ["shop"]
    assert position(world) == [(b"shop", None)]
    assert world.broker.image.captures == {}
    assert runner.alive == []
    running(world, runner)
    assert runner.ran[-1].assignment.incarnation != ran.assignment.incarnation
    assert removed(world, keeps_slot=True) is None
    assert runner.cleaned_up == ["shop"]


def test_a_capture_whose_database_cannot_be_cleaned_up_goes_on(
    world: World, runner: FakeRunner
) -> None:
    running(world, runner)
    runner.findings = (Finding(level="problem", what="no connection"),)
    refused = removed(world)
    assert isinstance(refused, CaptureRefused)
    assert "no connection; remove it with --keep-slot" in str(refused)
    assert "pg_drop_replication_slot('dragoman_shop')" in str(refused)
    assert runner.alive == ["shop"]
    runner.findings = CaptureRefused("the database did not answer in time")
    assert "did not answer in time" in str(removed(world))
    assert position(world) == []


def test_a_capture_is_removed_once(world: World, runner: FakeRunner) -> None:
    ran = running(world, runner)
    ran.is_obedient = False
    first, second = Outcome(), Outcome()
    start(world.captures.remove("shop")).then(first)
    start(world.captures.remove("shop")).then(second)
    world.settle()
    assert isinstance(second.error, CaptureRefused)
    world.advance(10)
    assert ran.was_killed
    assert first.error is None


def test_what_a_process_that_was_killed_left_open_is_aborted(
    world: World, runner: FakeRunner
) -> None:
    """The capture has no successor that would abort it, and readers of its topics would wait."""
    ran = running(world, runner)
    ran.is_obedient = False
    transactions = world.broker.coordination.transactions.coordinator
    made: list[object] = []
    start(transactions.init_producer_id(defined().transactional_id, 900_000, None)).then(
        made.append
    )
    world.advance(1)
    producer = made[0]
    assert isinstance(producer, ProducerIdentity)
    begun: list[object] = []
    start(
        transactions.add_partitions(defined().transactional_id, producer, [(POSITIONS_TOPIC, 0)])
    ).then(begun.append)
    world.advance(1)
    outcome = Outcome()
    start(world.captures.remove("shop")).then(outcome)
    world.settle()
    world.advance(20)
    assert ran.was_killed
    assert outcome.error is None
    found = transactions.describe(defined().transactional_id)
    assert found.state is TransactionState.COMPLETE_ABORT


# ---- who may write positions


def test_only_captures_write_positions_and_only_in_transactions(
    world: World, runner: FakeRunner
) -> None:
    running(world, runner)
    topic = world.broker.image.topics[POSITIONS_TOPIC]
    identity = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    transactional = check_produced(memoryview(batch_of(b"v", attributes=TRANSACTIONAL, **identity)))
    check_writable(world.broker.topics, topic, transactional, "__capture.shop")
    plain = check_produced(memoryview(batch_of(b"v", **identity)))
    for header, who in ((plain, "__capture.shop"), (transactional, "shop"), (transactional, None)):
        with pytest.raises(NotAuthorized):
            check_writable(world.broker.topics, topic, header, who)


def test_of_positions_the_last_is_kept(world: World, runner: FakeRunner) -> None:
    """Two segments' worth of transactions; the segment that is being written stays as it is."""
    running(world, runner)
    index = world.captures.partition_of("shop")
    replica = world.broker.partitions.find(POSITIONS_TOPIC, index)
    for number in range(90):
        value = str(number).encode() * (50_000 if number < 89 else 1)
        record = Record(key=b"shop", value=value, timestamp=world.clock.wall_ms())
        batch = build_batch(
            [record],
            attributes=TRANSACTIONAL,
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
        )
        world.append(replica, batch)
        world.end_transaction(replica, 7, commit=True)
    full = replica.log.size
    assert full > 2 * (4 << 20)
    for _ in range(20):
        world.advance(15)
    assert replica.log.size < full - (4 << 20)
    found = [each.value for each in replica.log.iterate(0, replica.log.high_watermark)]
    assert b"89" in found


# ---- two nodes


class CapturingPair(Pair):
    """All partitions of the topic of positions are led by node 1."""

    def __init__(self) -> None:
        super().__init__(Settings(transaction_state_log_replication_factor=1))
        for world in self.worlds.values():
            DiskSecrets(world.disk).create(KEY_FILE, format_keys([new_key(bytes(36))]))
        self.runners = {node: with_runner(world) for node, world in self.worlds.items()}
        start(self.one.captures.ensure())
        self.settle()
        self.lead(1)

    def lead(self, node: int) -> None:
        for partition in list(self.one.broker.image.topics[POSITIONS_TOPIC].partitions):
            if partition.leader != node:
                self.move(POSITIONS_TOPIC, partition.index, node)
        self.settle()


def test_captures_move_with_the_lead_of_their_partition() -> None:
    pair = CapturingPair()
    assert added(pair.two, defined()) is None
    first = pair.runners[1].ran[0]
    assert pair.runners[2].ran == []
    pair.lead(2)
    assert first.told == [Stop()]
    assert (pair.runners[1].alive, pair.runners[2].alive) == ([], ["shop"])
    pair.lead(1)
    assert (pair.runners[1].alive, pair.runners[2].alive) == (["shop"], [])


def test_a_capture_that_comes_back_waits_for_its_own_end() -> None:
    pair = CapturingPair()
    assert added(pair.one, defined()) is None
    slow = pair.runners[1].ran[0]
    slow.is_obedient = False
    pair.lead(2)
    pair.lead(1)
    assert pair.runners[1].alive == ["shop"]
    slow.end("stopped")
    pair.settle()
    assert len(pair.runners[1].ran) == 2
    assert pair.runners[1].alive == ["shop"]


def test_captures_are_described_and_commanded_through_any_node() -> None:
    pair = CapturingPair()
    assert added(pair.one, defined()) is None
    ran = pair.runners[1].ran[0]
    ran.say(STREAMING)
    assert state(pair.two) == CaptureState(name="shop", node=1, status=STREAMING, rows=7)
    told = Outcome()
    start(pair.two.captures.command("shop", Snapshot(id="", tables=("a",)))).then(told)
    pair.settle()
    command = ran.told[0]
    assert isinstance(command, Snapshot)
    assert command.tables == ("a",)
    ran.say(Done(id=command.id))
    pair.settle()
    assert told.error is None
    assert paused(pair.two, True) is None
    assert ran.told[1] == Pause()
    assert removed(pair.two) is None
    assert pair.runners[1].cleaned_up == ["shop"]
    assert pair.runners[2].cleaned_up == []


def test_a_node_that_does_not_answer_is_named() -> None:
    pair = CapturingPair()
    assert added(pair.one, defined()) is None
    pair.lines[2].is_cut = True
    found = state(pair.two)
    assert (found.node, found.status.state) == (1, "waiting")
    assert "node 1, which runs it, does not respond" in found.status.problem
    told = Outcome()
    start(pair.two.captures.command("shop", Snapshot(id=""))).then(told)
    pair.advance(5)
    assert isinstance(told.error, CoordinatorNotAvailable)
    assert pair.runners[1].ran[0].told == []


def test_a_node_that_answers_too_late_is_not_waited_for() -> None:
    pair = CapturingPair()
    assert added(pair.one, defined()) is None
    pair.lines[2].held = []
    found: list[dict[str, CaptureState]] = []
    start(pair.two.captures.states(["shop"])).then(found.append)
    pair.advance(6)
    assert "does not respond: no response within 5 s" in found[0]["shop"].status.problem
    pair.lines[2].release()
    pair.settle()
    assert len(found) == 1


def test_nobody_runs_what_nobody_leads() -> None:
    pair = CapturingPair()
    assert added(pair.one, defined()) is None
    for partition in list(pair.one.broker.image.topics[POSITIONS_TOPIC].partitions):
        partition.leader = -1
    assert "no node runs it" in state(pair.one).status.problem


def test_states_of_many_are_gathered() -> None:
    pair = CapturingPair()
    names = [f"c{number}" for number in range(20)]
    for name in names:
        assert added(pair.one, defined(name)) is None
    half = [index for index in range(8) if index % 2]
    for index in half:
        pair.move(POSITIONS_TOPIC, index, 2)
    pair.settle()
    found: list[dict[str, CaptureState]] = []
    start(pair.one.captures.states(names)).then(found.append)
    pair.settle()
    where = {name: each.node for name, each in found[0].items()}
    home = pair.one.captures.partition_of
    assert where == {name: 2 if home(name) in half else 1 for name in names}
