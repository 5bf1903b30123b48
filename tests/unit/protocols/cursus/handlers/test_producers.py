"""Goal: an idempotent producer's messages are in the log once, in order, whatever is repeated.

Method: batches with chosen sequence numbers against a world; then the same after the process died.
"""

from __future__ import annotations

import pytest

from dragoman.config.settings import Settings
from dragoman.errors import CorruptionError
from dragoman.log.partition import PartitionLog
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.handlers import producers
from dragoman.protocols.cursus.messages import Batch
from worlds.broker import World
from worlds.cursus import CursusPipe, batch, framed, payloads


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> CursusPipe:
    opened = CursusPipe(world)
    opened.ask("CREATE topic=orders partitions=2 idempotent=true")
    return opened


def stored(pipe: CursusPipe, partition: int = 0) -> list[str]:
    fresh = CursusPipe(pipe.world)
    command = f"CONSUME topic=orders partition={partition} offset=0 member=m"
    return payloads(fresh.ask_batch(command))


def test_a_repeat_is_acknowledged_and_dropped(pipe: CursusPipe) -> None:
    assert pipe.publish(batch("a", "b")).last_offset == 1
    again = pipe.publish(batch("a", "b"))
    assert (again.status, again.last_offset, again.seq_end) == ("OK", 1, 2)
    assert pipe.publish(batch("c", first=3)).last_offset == 2
    assert pipe.publish(batch("a", "b")).last_offset == 2, "the present last offset"
    assert pipe.publish(batch("b", "c", "d", first=2)).status == "OK"
    assert stored(pipe) == ["a", "b", "c", "d"]


def test_a_gap_is_refused_and_what_came_before_it_is_kept(pipe: CursusPipe) -> None:
    ack = pipe.publish(batch("b", first=2))
    assert (ack.status, ack.error) == ("ERROR", "sequence_gap producer=p1 got=2")
    sent = batch("a", "b", "x")
    gapped = [*sent.messages[:2], batch("d", first=4).messages[0]]
    ack = pipe.publish(Batch(topic="orders", partition=0, messages=gapped, seq_start=1, seq_end=4))
    assert (ack.status, ack.last_offset, ack.seq_end) == ("PARTIAL", 1, 2)
    assert stored(pipe) == ["a", "b"]


def test_text_without_acknowledgement_is_answered_so(pipe: CursusPipe) -> None:
    publish = "PUBLISH topic=orders partition=0 producerId=p acks={} seqNum={} message=m"
    assert pipe.ask(publish.format(0, 1)) == "OK"
    assert pipe.ask(publish.format(0, 1)) == "OK", "a repeat"
    assert '"error":"sequence_gap' in pipe.ask(publish.format(0, 5))
    assert pipe.ask(publish.format(1, 2)).startswith('{"status":"OK","last_offset":1,')


def test_producers_that_cannot_be_read_back_refuse_all_who_ask(
    pipe: CursusPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe.publish(batch("a"))
    again = CursusPipe(pipe.world.reopened())
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "read", damaged)
        for _ in range(2):
            refused = again.ask_raw(codec.encode_batch(batch("a")))
            assert refused.startswith(b"ERROR: command_failed reason=")
    assert again.publish(batch("a")).status == "OK"
    assert stored(again) == ["a"]


def damaged(*_: object) -> None:
    raise CorruptionError("__cursus_state-0", 0, "damage")


def test_a_newer_epoch_starts_anew_and_fences_the_older_one(pipe: CursusPipe) -> None:
    pipe.publish(batch("a", epoch=1))
    assert pipe.publish(batch("b", epoch=2, first=2)).status == "ERROR"
    assert pipe.publish(batch("b", epoch=2)).status == "OK"
    ack = pipe.publish(batch("late", epoch=1, first=2))
    assert ack.status == "ERROR"
    assert ack.error == "stale_producer_epoch producer=p1 current=2 got=1"
    assert stored(pipe) == ["a", "b"]


def test_partitions_count_apart_and_zero_is_not_checked(pipe: CursusPipe) -> None:
    pipe.publish(batch("a"))
    assert pipe.publish(batch("b", partition=1)).status == "OK"
    for _ in range(2):
        assert pipe.publish(batch("plain", first=0)).status == "OK"
    assert stored(pipe) == ["a", "plain", "plain"]
    assert stored(pipe, 1) == ["b"]


def test_text_publishing_is_checked_too(pipe: CursusPipe) -> None:
    publish = "PUBLISH topic=orders producerId=p1 partition=0 seqNum={} message=m{}"
    assert '"last_offset":0' in pipe.ask(publish.format(1, 1))
    assert '"last_offset":0' in pipe.ask(publish.format(1, 1))
    assert '"status":"ERROR"' in pipe.ask(publish.format(3, 3))
    assert stored(pipe) == ["m1"]


def test_pipelined_batches_of_a_new_producer_keep_their_order(pipe: CursusPipe) -> None:
    frames = [framed(codec.encode_batch(batch(f"m{n}", first=n))) for n in range(1, 6)]
    pipe.feed(b"".join(frames + frames))
    pipe.world.settle()
    acks = [codec.decode_ack(each.decode()) for each in pipe.frames()]
    assert [each.status for each in acks] == ["OK"] * 10
    assert stored(pipe) == [f"m{n}" for n in range(1, 6)]


def test_a_batch_of_two_producers_is_refused(pipe: CursusPipe) -> None:
    mixed = [*batch("a").messages, *batch("b", producer="p2").messages]
    sent = Batch(topic="orders", partition=0, messages=mixed, seq_start=1, seq_end=1)
    assert pipe.ask_raw(codec.encode_batch(sent)).startswith(b"ERROR: broker_error reason=")


@pytest.mark.parametrize("kill", [True, False])
def test_repeats_are_known_after_a_restart(pipe: CursusPipe, kill: bool) -> None:
    pipe.publish(batch("a", "b", epoch=1 << 40))
    reopened = CursusPipe(pipe.world.reopened(kill=kill))
    assert reopened.publish(batch("a", "b", epoch=1 << 40)).last_offset == 1
    assert reopened.publish(batch("c", epoch=1 << 40, first=3)).last_offset == 2
    assert reopened.publish(batch("x", epoch=7, first=3)).status == "ERROR"
    assert stored(reopened) == ["a", "b", "c"]


def test_sequence_numbers_beyond_32_bits_are_distinct(pipe: CursusPipe) -> None:
    world = pipe.world
    pipe.publish(batch("a"))
    replica = world.broker.partitions.find("orders", 0)
    states = replica.log.producers
    assert states is not None
    (internal_id,) = states.producers()
    last = (1 << 31) + 5
    states.append(internal_id, 0, 1, last - 1, 1, 0, 0)
    assert pipe.publish(batch("repeat", first=last)).status == "OK"
    assert pipe.publish(batch("b", first=last + 1)).status == "OK"
    assert pipe.publish(batch("c", first=last + 3)).status == "ERROR"
    assert stored(pipe) == ["a", "b"]


def test_the_flag_of_a_batch_and_the_nodes_setting_ask_for_checks(world: World) -> None:
    pipe = CursusPipe(world)
    pipe.ask("CREATE topic=orders partitions=1")
    for _ in range(2):
        pipe.publish(batch("plain"))
        pipe.publish(batch("once", producer="p2", idempotent=True))
    assert stored(pipe) == ["plain", "once", "plain"]
    strict = CursusPipe(World(Settings(cursus_idempotence_enable=True)))
    strict.ask("CREATE topic=orders partitions=1")
    for _ in range(2):
        strict.publish(batch("once"))
    assert stored(strict) == ["once"]


def test_the_longest_unused_producer_is_forgotten(
    pipe: CursusPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "CURSUS_PRODUCERS_MAX", 2)
    for name in ("p1", "p2", "p1", "p3"):
        pipe.publish(batch("m", producer=name))
    pipe.world.settle()
    state = pipe.channel._session.service.state
    assert list(state.producers) == ["p1", "p3"]
    reopened = CursusPipe(pipe.world.reopened(kill=True))
    reopened.publish(batch("m", producer="p3"))
    assert set(reopened.channel._session.service.state.producers) == {"p1", "p3"}
