"""Chunks beside a stream against a model of a database, with kills: events leave the table's rows.

The model has what makes this hard: transactions become visible in another order than they are
committed in the log, updates do not say large values that they leave alone, the stream lags behind,
and readers look at any moment. Each step is one of
the database's, the stream's or the reader's, in an order that the seed decides. What was sent is
played into a dictionary; whatever happens, in the end it has what the table has, and a chunk's row
never undoes a change that the stream had sent before.
"""

import random

import pytest

from dragoman.cdc.snapshot.window import Recent, Visibility, Window
from dragoman.protocols.postgres.messages import UNCHANGED

KEYS = 12
CHUNK = 4
#: 32 bits of the number wrap around in the middle of each history.
FIRST_XID = (5 << 32) - 30


#: A large value that an update did not touch.
SAME = -1


def play(state, changes):
    for key, value in changes.items():
        if key == "all":
            state.clear()
        elif value is None:
            state.pop(key, None)
        elif value[2] == SAME:
            state[key] = (*value[:2], state.get(key, value)[2])
        else:
            state[key] = value


class Database:
    def __init__(self, rng):
        self.rng = rng
        self.next_xid = FIRST_XID
        self.open = {}  # xid -> {key: value or None}
        self.committed = []  # xids whose commit is in the log, but not yet visible
        self.visible = {}  # key -> value
        self.writers = {}  # key -> xid that holds its lock
        self.log = []  # (xid, changes) or ("mark", n), in order of commits

    def begin(self):
        self.open[self.next_xid] = {}
        self.next_xid += 1

    def write(self):
        if not self.open:
            return
        xid = self.rng.choice(list(self.open))
        key = self.rng.randrange(KEYS)
        if self.writers.get(key, xid) != xid:
            return  # would wait for the lock
        self.writers[key] = xid
        number = self.rng.randrange(1000)
        if key in self.visible and key not in self.open[xid] and self.rng.random() < 0.4:
            self.open[xid][key] = (xid, number, SAME)
        else:
            self.open[xid][key] = None if self.rng.random() < 0.3 else (xid, number, number)

    def empty(self):
        """TRUNCATE: no other transaction may have written."""
        if self.writers or self.committed or not self.open:
            return
        xid = self.rng.choice(list(self.open))
        self.open[xid] = {"all": None}
        self.writers = dict.fromkeys(range(KEYS), xid)

    def commit(self):
        if not self.open:
            return
        xid = self.rng.choice(list(self.open))
        changes = self.open.pop(xid)
        self.log.append((xid, changes))
        self.committed.append((xid, changes))

    def show(self):
        """Out of order, as sessions are woken up; locks are held until then."""
        if not self.committed:
            return
        xid, changes = self.committed.pop(self.rng.randrange(len(self.committed)))
        play(self.visible, changes)
        self.writers = {key: by for key, by in self.writers.items() if by != xid}

    def mark(self, number):
        self.log.append(("mark", number))

    def look(self):
        """As PostgreSQL does: nothing is shown behind the last visible transaction."""
        running = frozenset(self.open) | {xid for xid, _ in self.committed}
        shown = (xid for xid in range(FIRST_XID, self.next_xid) if xid not in running)
        xmax = max(shown, default=FIRST_XID - 1) + 1
        running = frozenset(xid for xid in running if xid < xmax)
        return Visibility(min(running, default=xmax), xmax, running)


class Capture:
    """The stream and the reader of one process; `kept` is what survives it."""

    def __init__(self, database, kept, number):
        self.database = database
        self.kept = kept
        self.at = kept["at"]
        self.mark = number * 1_000_000
        self.recent = Recent()
        self.steps = self.read()
        self.window = None
        self.last = kept["last"]

    def stream(self):
        if self.at >= len(self.database.log):
            return
        what, content = self.database.log[self.at]
        self.at += 1
        if what == "mark":
            if self.window is not None and content == self.mark:
                self.close()
        else:
            xid = what % (1 << 32)
            if self.window is not None and "all" in content:
                self.window.emptied(xid)
            elif self.window is not None:
                for key, value in content.items():
                    part = None
                    if value is not None and value[2] == SAME:
                        part = [b"%d" % key, b"%d" % value[0], b"%d" % value[1], UNCHANGED]
                    self.window.changed(xid, [(b"%d" % key,)], part)
            self.recent.add(xid)
            self.kept["sent"].append(content)
        self.kept["at"] = self.at  # in one transaction with what was sent

    def close(self):
        rows = self.window.close()
        if rows is not None:
            for line in rows:
                key, *value = map(int, divided(line) if isinstance(line, bytes) else line)
                assert key not in self.kept["read"], "a row was sent twice"
                self.kept["read"].add(key)
                newest = played(self.kept["sent"]).get(key, tuple(value))
                assert newest[:2] == tuple(value[:2]), "a row undoes what the stream had sent"
                assert newest[2] in (value[2], SAME), "a row undoes what the stream had sent"
                self.kept["sent"].append({key: tuple(value)})
            self.kept["last"] = self.last
        self.last = self.kept["last"]
        self.window = None

    def read(self):
        """Yields between steps; everything else may happen meanwhile."""
        while self.kept["last"] < KEYS:
            self.window = Window(self.recent, divided, keys_max=6)
            yield
            while not self.window.saw(seen := self.database.look()):
                yield
            rows = {k: v for k, v in sorted(self.database.visible.items()) if k >= self.last}
            rows = dict(list(rows.items())[:CHUNK])
            yield
            assert seen is not None
            lines = {(b"%d" % key,): b"%d,%d,%d,%d" % (key, *value) for key, value in rows.items()}
            if not self.window.is_spoiled:
                self.window.fill(lines)
            self.last = max(rows) + 1 if len(rows) == CHUNK else KEYS
            yield
            self.mark += 1
            self.database.mark(self.mark)
            while self.window is not None:
                yield


def played(sent):
    state = {}
    for changes in sent:
        play(state, changes)
    return state


def divided(line):
    return line.split(b",")


def history(seed):
    rng = random.Random(seed)
    database = Database(rng)
    for _ in range(rng.randrange(20)):  # rows from before the slot
        for step in (database.begin, database.write, database.commit, database.show):
            step()
    kept = {"at": len(database.log), "sent": [], "last": 0, "read": set()}
    process = Capture(database, kept, 1)
    number = 1
    actions = [database.begin, database.write, database.write, database.commit, database.show]
    for _ in range(rng.randrange(50, 600)):
        rng.choice(actions)()
        if rng.random() < 0.5:
            process.stream()
        if rng.random() < 0.3:
            next(process.steps, None)
        if rng.random() < 0.02:
            database.empty()
        if rng.random() < 0.01 and not database.committed:
            # What a dead process had seen is visible by the time another one begins.
            number += 1
            process = Capture(database, kept, number)
    while database.open:
        database.commit()
    while database.committed:
        database.show()
    for _ in range(10_000):
        process.stream()
        next(process.steps, None)
        if kept["last"] >= KEYS and process.at == len(database.log):
            return database, kept
    raise AssertionError("the snapshot does not end")


@pytest.mark.parametrize("part", range(8))
def test_events_of_chunks_and_stream_leave_what_the_table_has(part):
    for seed in range(part * 250, part * 250 + 250):
        database, kept = history(seed)
        assert played(kept["sent"]) == database.visible, f"seed {seed}"


def test_numbers_are_compared_across_the_wrap():
    seen = Visibility.parse("4294967290:4294967300:4294967292,4294967297")
    assert seen.shows(4294967291)
    assert not seen.shows(4294967292)
    assert seen.shows(0)  # 4294967296
    assert not seen.shows(1)
    assert not seen.shows(4)  # not begun
    assert seen.shows(4294967289)
    early = Visibility.parse("4294967299:4294967299:")
    assert early.shows(4294967290)
    assert early.shows(2)
    assert not early.shows(3)


def test_a_transaction_before_the_window_that_is_not_visible_makes_it_look_again():
    recent = Recent()
    recent.add(7)
    window = Window(recent)
    recent.add(8)
    assert not window.saw(Visibility.parse("7:10:7,8"))
    assert not window.saw(Visibility.parse("7:7:"))
    assert window.saw(Visibility.parse("8:10:8"))  # 8 came within the window: its keys are known


def test_old_transactions_are_forgotten_at_the_bound():
    recent = Recent(count_max=2)
    for xid in (5, 6, 7):
        recent.add(xid)
    assert not Window(recent).saw(Visibility.parse("6:10:6"))
    assert Window(recent).saw(Visibility.parse("5:10:5"))


def test_too_many_keys_spoil_the_window():
    window = Window(Recent(), keys_max=3)
    window.changed(9, [(b"%d" % each,) for each in range(4)])
    assert window.is_spoiled
    assert window.saw(Visibility.parse("20:20:"))
    window.fill({(b"1",): b"1"})
    assert window.close() is None


def test_rows_touched_after_they_were_read_are_left_out():
    window = Window(Recent())
    assert window.saw(Visibility.parse("10:10:"))
    window.fill({(b"1",): b"one", (b"2",): b"two", (b"3",): b"three"})
    window.changed(11, [(b"2",), (b"9",)])
    assert window.close() == [b"one", b"three"]


@pytest.mark.parametrize("is_filled_first", [False, True])
def test_a_row_of_which_the_stream_says_a_part_is_sent_with_that_part(is_filled_first):
    window = Window(Recent(), divided)
    assert window.saw(Visibility.parse("10:10:"))

    def fill():
        window.fill({(b"%d" % key,): b"%d,old,large" % key for key in range(5)})

    if is_filled_first:
        fill()
    window.changed(11, [(b"0",)], [b"0", b"new", UNCHANGED])
    window.changed(11, [(b"0",)], [b"0", UNCHANGED, b"larger"])
    window.changed(11, [(b"1",)], [b"1", b"new", UNCHANGED])
    window.changed(11, [(b"2",)])
    window.changed(11, [(b"2",)], [b"2", b"newer", UNCHANGED])
    window.changed(12, [(b"3",)], [b"3", b"new", UNCHANGED])
    window.changed(13, [(b"3",)], [b"3", UNCHANGED, b"larger"])
    if not is_filled_first:
        fill()
    assert window.close() == [
        [b"0", b"new", b"larger"],
        [b"1", b"new", b"large"],
        [b"3", b"new", b"larger"],
        b"4,old,large",
    ]


def test_a_table_without_key_knows_of_changes_that_it_does_not_show():
    window = Window(Recent())
    window.changed(11, ())
    assert window.saw(Visibility.parse("12:12:"))
    assert not window.has_hidden
    window.changed(13, ())
    assert window.has_hidden
