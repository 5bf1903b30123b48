"""Goal: a transaction's records and offsets appear together or never, also over restarts.

Method: commands against a world; what other readers see is asked between the steps.
"""

from __future__ import annotations

import re

import pytest

from dragoman.config.settings import Settings
from worlds.broker import World
from worlds.cursus import CursusPipe, batch, framed, payloads


class Transactional(CursusPipe):
    """A connection that has the producer's identity."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.who = ""

    def init(self) -> None:
        reply = self.ask("INIT_PRODUCER_ID transactional_id=t1")
        found = re.fullmatch(
            r"OK transactional_id=t1 (producerId=txn-[0-9a-f]{16} epoch=\d+)", reply
        )
        assert found, reply
        self.who = f"transactional_id=t1 {found[1]}"

    def begin(self) -> None:
        self.init()
        assert self.ask(f"BEGIN_TXN {self.who}") == self.who.replace(
            "transactional_id=t1", "OK transactional_id=t1 state=open"
        )

    def publish_one(self, seq_num: int, payload: str, partition: int = 0) -> str:
        where = f"topic=orders partition={partition} seqNum={seq_num}"
        return self.ask(f"TXN_PUBLISH {self.who} {where} message={payload}")


@pytest.fixture
def pipe() -> Transactional:
    opened = Transactional(World())
    opened.ask("CREATE topic=orders partitions=2")
    return opened


def visible(world: World, partition: int = 0, more: str = "") -> list[str]:
    command = f"CONSUME topic=orders partition={partition} offset=0 member=m {more}"
    return payloads(CursusPipe(world).ask_batch(command))


def test_a_commit_shows_everything_at_once(pipe: Transactional) -> None:
    pipe.begin()
    staged = "OK transactional_id=t1 staged_messages=1 topic=orders partition={}"
    assert pipe.publish_one(1, "a") == staged.format(0)
    assert pipe.publish_one(2, "b", 1) == staged.format(1)
    assert pipe.publish_one(2, "b", 1) == staged.format(1), "a repeat is not staged twice"
    assert (visible(pipe.world), visible(pipe.world, 1)) == ([], [])
    assert visible(pipe.world, 0, "isolation=read_uncommitted") == ["a"]
    behind = "CONSUME topic=orders partition=0 offset=1 member=m"
    assert payloads(CursusPipe(pipe.world).ask_batch(behind)) == [], "not past the log's end"
    assert pipe.ask("TXN_STATUS transactional_id=t1") == (
        "OK transactional_id=t1 state=open messages=2 offsets=0"
    )
    end = f"END_TXN {pipe.who} result=commit"
    done = "OK transactional_id=t1 state=committed messages=2 offsets=0"
    assert pipe.ask(end) == done
    assert (visible(pipe.world), visible(pipe.world, 1)) == (["a"], ["b"])
    assert pipe.ask(end) == done, "the answer may have been lost"
    assert pipe.ask("TXN_STATUS transactional_id=t1").split()[2] == "state=committed"
    assert pipe.ask(f"END_TXN {pipe.who} result=abort") == (
        "ERROR: transaction_already_committed transactional_id=t1"
    )


def test_an_abort_shows_nothing(pipe: Transactional) -> None:
    pipe.begin()
    pipe.publish_one(1, "a")
    assert pipe.ask(f"END_TXN {pipe.who} result=abort") == "OK transactional_id=t1 state=aborted"
    pipe.publish(batch("plain"))
    assert visible(pipe.world) == ["plain"]
    assert pipe.ask(f"END_TXN {pipe.who} result=commit") == (
        "ERROR: transaction_aborted transactional_id=t1"
    )


def test_an_epoch_serves_one_transaction(pipe: Transactional) -> None:
    pipe.begin()
    pipe.publish_one(1, "a")
    pipe.ask(f"END_TXN {pipe.who} result=commit")
    assert pipe.ask(f"BEGIN_TXN {pipe.who}") == (
        "ERROR: producer_reinitialization_required transactional_id=t1 epoch=0"
    )
    before = pipe.who
    pipe.begin()
    assert pipe.who == before.replace("epoch=0", "epoch=1")
    pipe.publish_one(1, "b")
    assert pipe.ask(f"TXN_PUBLISH {before} topic=orders seqNum=2 message=late") == (
        'ERROR: transaction_publish_failed reason="producer fenced transactional_id=t1 '
        'current_epoch=1 requested_epoch=0"'
    )
    pipe.ask(f"END_TXN {pipe.who} result=commit")
    assert visible(pipe.world) == ["a", "b"]


def test_an_empty_transaction_ends_too(pipe: Transactional) -> None:
    pipe.begin()
    assert pipe.ask(f"END_TXN {pipe.who} result=commit") == (
        "OK transactional_id=t1 state=committed messages=0 offsets=0"
    )
    assert pipe.ask(f"BEGIN_TXN {pipe.who}").startswith("ERROR: producer_reinitialization_required")
    assert pipe.ask(f"END_TXN {pipe.who} result=commit").startswith("OK "), "a repeat"
    pipe.begin()
    pipe.ask(f"END_TXN {pipe.who} result=abort")
    assert pipe.ask("TXN_STATUS transactional_id=t1").split()[2] == "state=aborted"
    assert pipe.ask(f"END_TXN {pipe.who} result=commit") == (
        "ERROR: transaction_aborted transactional_id=t1"
    )


def test_a_repeated_end_waits_for_the_one_under_way(pipe: Transactional) -> None:
    pipe.begin()
    pipe.publish_one(1, "a")
    other = CursusPipe(pipe.world)
    for each in (pipe, other):
        each.feed(framed(f"END_TXN {pipe.who} result=commit"))
    pipe.world.settle()
    done = b"OK transactional_id=t1 state=committed messages=1 offsets=0"
    assert (pipe.frames(), other.frames()) == ([done], [done])


def test_an_open_transaction_is_aborted_after_its_time(pipe: Transactional) -> None:
    pipe.begin()
    pipe.publish_one(1, "a")
    pipe.publish(batch("behind"))
    pipe.world.advance(59)
    assert visible(pipe.world) == []
    # Looked for every ten seconds.
    pipe.world.advance(12)
    assert visible(pipe.world) == ["behind"]
    assert Transactional(pipe.world).ask(f"END_TXN {pipe.who} result=commit") == (
        'ERROR: transaction_not_found reason="producer fenced transactional_id=t1 '
        'current_epoch=1 requested_epoch=0"'
    )


@pytest.mark.parametrize(("own_ms", "most_ms"), [(5_000, 900_000), (900_000, 5_000)])
def test_the_time_is_a_setting(own_ms: int, most_ms: int) -> None:
    times = Settings(cursus_transaction_timeout_ms=own_ms, transaction_max_timeout_ms=most_ms)
    pipe = Transactional(World(times))
    pipe.ask("CREATE topic=orders partitions=1")
    pipe.begin()
    pipe.publish_one(1, "a")
    pipe.world.advance(16)
    assert pipe.world.broker.partitions.find("orders", 0).log.last_stable_offset == 2, (
        "record and marker"
    )


def test_initialising_again_aborts_what_is_open(pipe: Transactional) -> None:
    pipe.begin()
    pipe.publish_one(1, "lost")
    pipe.begin()
    pipe.publish_one(1, "kept")
    pipe.ask(f"END_TXN {pipe.who} result=commit")
    assert visible(pipe.world) == ["kept"]


def test_offsets_are_committed_with_the_records(pipe: Transactional) -> None:
    joined = pipe.ask("JOIN_GROUP topic=orders group=g member=m").split()
    member = joined[2]
    pipe.publish(batch("in"))
    pipe.begin()
    pipe.publish_one(1, "out", 1)
    send = f"SEND_OFFSETS_TO_TXN {pipe.who} topic=orders group=g {member} generation={{}} P0:1"
    assert pipe.ask(send.format(9)).startswith("ERROR: GEN_MISMATCH current=1 requested=9")
    assert pipe.ask(send.format(1)) == "OK transactional_id=t1 staged_offsets=1"
    fetch = "FETCH_OFFSET topic=orders partition=0 group=g"
    assert pipe.ask(fetch) == "OK offset=0"
    assert pipe.ask(f"END_TXN {pipe.who} result=commit").endswith("messages=1 offsets=1")
    assert pipe.ask(fetch) == "OK offset=1"
    assert visible(pipe.world, 1) == ["out"]


@pytest.mark.parametrize("result", ["commit", "abort"])
def test_an_open_transaction_is_ended_after_a_restart(pipe: Transactional, result: str) -> None:
    pipe.begin()
    pipe.publish_one(1, "a")
    reopened = Transactional(pipe.world.reopened(kill=True))
    assert visible(reopened.world) == []
    assert reopened.ask("TXN_STATUS transactional_id=t1").split()[2] == "state=open"
    assert reopened.ask(f"END_TXN {pipe.who} result={result}").startswith("OK ")
    assert visible(reopened.world) == (["a"] if result == "commit" else [])


def test_a_commit_that_was_answered_survives(pipe: Transactional) -> None:
    pipe.begin()
    for number in range(1, 6):
        pipe.publish_one(number, f"m{number}", number % 2)
    pipe.ask(f"END_TXN {pipe.who} result=commit")
    reopened = pipe.world.reopened(kill=True)
    assert visible(reopened) + visible(reopened, 1) == ["m2", "m4", "m1", "m3", "m5"]


_T1 = "transactional_id=t1"


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("INIT_PRODUCER_ID x=1", "missing_transactional_id command=INIT_PRODUCER_ID"),
        ("BEGIN_TXN transactional_id=t1 epoch=0", "missing_producer_id command=BEGIN_TXN"),
        (
            "BEGIN_TXN transactional_id=t1 producerId=me epoch=x",
            r'invalid_epoch reason="strconv.ParseInt: parsing \"x\": invalid syntax"',
        ),
        (
            "BEGIN_TXN transactional_id=zz producerId=me",
            'transaction_begin_failed reason="transaction zz is not initialized; '
            'call INIT_PRODUCER_ID first"',
        ),
        (
            "BEGIN_TXN transactional_id=t1 producerId=me epoch=0",
            f'transaction_begin_failed reason="transaction owner mismatch {_T1} producer=OWN '
            'requested=me"',
        ),
        (
            "BEGIN_TXN transactional_id=t1 producerId=OWN epoch=7",
            f'transaction_begin_failed reason="producer epoch not initialized {_T1} '
            'current_epoch=0 requested_epoch=7"',
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN seqNum=1 message=m",
            "missing_topic command=TXN_PUBLISH",
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN topic=orders seqNum=1 message=",
            "missing_message command=TXN_PUBLISH",
        ),
        (
            "TXN_PUBLISH transactional_id=t1 topic=orders seqNum=1 message=m",
            "missing_producer_id command=TXN_PUBLISH",
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN topic=orders partition=a message=m",
            r'invalid_partition reason="strconv.Atoi: parsing \"a\": invalid syntax"',
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN topic=orders message=m",
            'invalid_seq_num command=TXN_PUBLISH reason="missing seqNum"',
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN topic=orders seqNum=0 message=m",
            'invalid_seq_num command=TXN_PUBLISH reason="seqNum must be greater than zero"',
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN topic=orders seqNum=x message=m",
            "invalid_seq_num command=TXN_PUBLISH "
            r'reason="strconv.ParseUint: parsing \"x\": invalid syntax"',
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN topic=nope seqNum=1 message=m",
            "topic_not_found topic=nope",
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN topic=orders partition=9 seqNum=1 "
            "message=m",
            "partition_not_found partition=9",
        ),
        (
            "TXN_PUBLISH transactional_id=zz producerId=OWN topic=orders seqNum=1 message=m",
            'transaction_publish_failed reason="transaction zz not found"',
        ),
        (
            "TXN_PUBLISH transactional_id=t1 producerId=OWN topic=orders seqNum=1 message=m",
            'transaction_publish_failed reason="transaction t1 is aborted"',
        ),
        (
            "SEND_OFFSETS_TO_TXN transactional_id=t1 producerId=OWN topic=orders group=g member=m "
            "generation=x P0:1",
            "invalid_generation command=SEND_OFFSETS_TO_TXN",
        ),
        (
            "SEND_OFFSETS_TO_TXN transactional_id=t1 producerId=OWN topic=orders group=g member=m "
            "generation=1",
            'invalid_txn_offsets reason="missing offset pairs"',
        ),
        (
            "SEND_OFFSETS_TO_TXN transactional_id=t1 producerId=OWN topic=orders group=g member=m "
            "generation=1 P0:1",
            'transaction_offsets_failed reason="transaction t1 is aborted"',
        ),
        (
            "END_TXN transactional_id=t1 producerId=OWN result=maybe",
            "invalid_transaction_result value=maybe",
        ),
        (
            "END_TXN transactional_id=t1 producerId=me result=commit",
            f'transaction_not_found reason="transaction owner mismatch {_T1} producer=OWN '
            'requested=me"',
        ),
        ("END_TXN transactional_id=t1 producerId=OWN", "transaction_aborted transactional_id=t1"),
        (
            "TXN_STATUS transactional_id=zz",
            'transaction_not_found reason="transaction zz not found"',
        ),
    ],
)
def test_refusals_in_the_words_of_the_original(
    pipe: Transactional, command: str, reply: str
) -> None:
    """`OWN` stands for the producer's name. The transaction is initialised, not begun."""
    pipe.init()
    own = pipe.who.split("producerId=")[1].split()[0]
    assert pipe.ask(command.replace("OWN", own)) == f"ERROR: {reply}".replace("OWN", own)


def test_a_producer_that_has_begun_nothing_has_an_aborted_transaction(pipe: Transactional) -> None:
    pipe.init()
    assert pipe.ask("TXN_STATUS transactional_id=t1") == (
        "OK transactional_id=t1 state=aborted messages=0 offsets=0"
    )
    end = f"END_TXN {pipe.who}"
    assert pipe.ask(f"{end} result=abort") == "OK transactional_id=t1 state=aborted"
    pipe.begin()
    pipe.publish_one(1, "a")
    ended = f"END_TXN {pipe.who}"
    assert pipe.ask(ended) == "OK transactional_id=t1 state=committed messages=1 offsets=0"
    assert pipe.publish_one(2, "b") == (
        'ERROR: transaction_publish_failed reason="transaction t1 is committed"'
    )


def test_other_names_of_arguments_and_capitals(pipe: Transactional) -> None:
    named = pipe.ask("INIT_PRODUCER_ID txn=t1").split("producerId=")[1].split()[0]
    begun = pipe.ask(f"BEGIN_TXN transaction=t1 producer_id={named}")
    assert begun == f"OK transactional_id=t1 state=open producerId={named} epoch=0"
    end = f"END_TXN txn=t1 producer_id={named} action=ABORT"
    assert pipe.ask(end) == "OK transactional_id=t1 state=aborted"


def test_a_transaction_counts_each_partition_whose_offset_it_stages_once(
    pipe: Transactional,
) -> None:
    member = pipe.ask("JOIN_GROUP topic=orders group=g member=m").split()[2]
    pipe.begin()
    send = f"SEND_OFFSETS_TO_TXN {pipe.who} topic=orders group=g {member} generation=1 "
    assert pipe.ask(send + "P0:1,P1:1") == "OK transactional_id=t1 staged_offsets=2"
    assert pipe.ask(send + "P0:2") == "OK transactional_id=t1 staged_offsets=1"
    assert pipe.ask("TXN_STATUS transactional_id=t1").endswith("messages=0 offsets=2")
