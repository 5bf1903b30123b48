"""Goal: nodes that agree through etcd agree, whatever is lost, late, cut, killed or compacted.

Method: quorums and a toy etcd on virtual time; a seed draws the faults and when they strike. What
every node applies and the answer to every proposer are checked as they happen, and the whole at the
end, when everything has healed. Deliberate faults in the code have to be noticed.
"""

from __future__ import annotations

from functools import partial
from random import Random

import msgspec
import pytest

from dragoman.cluster.etcd import leadership as leading
from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd import quorum
from dragoman.cluster.events import Event, GroupConfigChanged
from dragoman.errors import DragomanError, NotControllerError, OutcomeUnknownError
from dragoman.raft.ports import Role, RoleChanged
from worlds.etcd import QUICK, TTL_S, EtcdWorld, Member, ToyGateway

SECONDS = 40.0
STRIKES = ("crash", "cut", "lease", "etcd", "compact", "break", "dead watch", "wait")


class Checked(Member):
    """A node whose every report is compared with all others'."""

    world: Run

    def start(self) -> None:
        # The version is known before the event is delivered, except after a snapshot.
        self.world.restarted(self)
        super().start()

    def applied(self, event: Event) -> None:
        super().applied(event)
        assert isinstance(event, GroupConfigChanged)
        self.world.happened(self.quorum.version, int(event.config["operation"]))

    def role_changed(self, changed: RoleChanged) -> None:
        super().role_changed(changed)
        if changed.role is Role.LEADER:
            leader = self.world.leaders.setdefault(changed.term, self.node_id)
            assert leader == self.node_id, f"two leaders of term {changed.term}"
            assert changed.term >= max(self.world.leaders), "a leader of a past term"


class Run(EtcdWorld):
    def __init__(self, seed: int) -> None:
        self.leaders: dict[int, int] = {}
        #: Version after it: operation.
        self.agreed: dict[int, int] = {}
        self.expected: dict[int, int | None] = {}
        self.outcomes: dict[int, str] = {}
        self.answers: dict[str, int] = {}
        entries = Random(seed).choice((5, 20, 10_000))
        super().__init__(0, seed, msgspec.structs.replace(QUICK, snapshot_entries=entries))
        rates = {
            name: self.random.choice((0.0, 0.0, 0.02, 0.2))
            for name in ("lost_requests", "lost_answers", "late_requests")
        }
        self.faults = rates | {"delay_s": self.random.choice((0.002, 0.02, 0.1))}
        for node in (1, 2, 3):
            self.members[node] = Checked(self, node)
        self.is_healing = False

    def restarted(self, member: Member) -> None:
        for name, value in self.faults.items():
            setattr(member.gateway, name, value)

    # ---- what must hold

    def happened(self, version: int, operation: int) -> None:
        known = self.agreed.setdefault(version, operation)
        assert known == operation, f"version {version} is {known} and {operation}"
        expected = self.expected[operation]
        assert expected is None or expected + 1 == version
        assert self.outcomes.get(operation) != "refused", f"{operation} was refused and happens"

    def answered(self, member: Member, operation: int, error: DragomanError | None) -> None:
        assert operation not in self.outcomes, f"{operation} is answered twice"
        unknown = isinstance(error, OutcomeUnknownError)
        outcome = "agreed" if error is None else "unknown" if unknown else "refused"
        self.outcomes[operation] = outcome
        self.answers[outcome] = self.answers.get(outcome, 0) + 1
        has_happened = operation in self.agreed.values()
        if outcome == "agreed":
            assert has_happened, f"{operation} is acknowledged and did not happen"
        assert not (outcome == "refused" and has_happened), f"{operation} is refused and happened"

    # ---- what happens

    def run(self) -> None:
        self._propose()
        self._strike()
        self.advance(SECONDS)
        self._heal()
        self.advance(4 * TTL_S)
        self._check_end()

    def _propose(self) -> None:
        if self.is_healing:
            return
        self.scheduler.call_later(self.random.uniform(0.0, 0.2), self._propose)
        up = [each for each in self.members.values() if each.is_up]
        leaders = [each for each in up if each.quorum.role is Role.LEADER]
        if not up:
            return
        for _ in range(self.random.choice((1, 1, 1, 5))):
            member = self.random.choice(leaders or up)
            expected = member.quorum.version if self.random.random() < 0.4 else None
            self.propose_at(member, expected)

    def propose_at(self, member: Member, expected: int | None) -> int:
        operation = len(self.expected) + 1
        self.expected[operation] = expected
        config = {"operation": str(operation)}
        event = GroupConfigChanged(group_id=f"g{operation % 7}", config=config)
        member.quorum.propose([event], expected).then(partial(self.answered, member, operation))
        return operation

    def _strike(self) -> None:
        if self.is_healing:
            return
        random, etcd = self.random, self.etcd
        self.scheduler.call_later(random.uniform(0.0, 3.0), self._strike)
        member = random.choice(list(self.members.values()))
        match random.choice(STRIKES):
            case "crash" if member.is_up:
                member.crash()
                self.scheduler.call_later(random.uniform(0.0, 5.0), self._restart, member)
            case "cut":
                member.gateway.cut()
                self.scheduler.call_later(random.uniform(0.0, 6.0), _reconnect, member.gateway)
            case "lease" if etcd.leases:
                etcd.revoke(random.choice(list(etcd.leases)))
            case "etcd":
                etcd.stop()
                self.scheduler.call_later(random.uniform(0.0, 4.0), etcd.restart)
            case "compact":
                etcd.compact()
            case "break":
                member.gateway.break_streams()
            case "dead watch":
                for stream in member.gateway.streams:
                    stream.is_dead = True

    def _restart(self, member: Member) -> None:
        if not member.is_up:
            member.start()

    def _heal(self) -> None:
        self.is_healing = True
        self.etcd.restart()
        for member in self.members.values():
            self._restart(member)
            member.gateway.is_cut = False
            member.gateway.lost_requests = member.gateway.lost_answers = 0.0
            member.gateway.late_requests = 0.0

    def _check_end(self) -> None:
        operation = self.propose_at(self.leader, self.leader.quorum.version)
        self.advance(2.0)
        assert self.outcomes[operation] == "agreed"
        assert self.outcomes.keys() == self.expected.keys(), "a proposer was never answered"
        assert not any(member.failures for member in self.members.values())
        assert len({member.state() for member in self.members.values()}) == 1
        happened = list(self.agreed.values())
        assert len(set(happened)) == len(happened), "an operation happened twice"
        assert sorted(self.agreed) == list(range(1, self.leader.quorum.version + 1))
        lost = [n for n, told in self.outcomes.items() if told == "agreed" and n not in happened]
        assert not lost


def _reconnect(gateway: ToyGateway) -> None:
    gateway.is_cut = False


#: Runs that failed once: a late transaction brought back a snapshot whose pieces were gone.
MENDED = (1163, 1272, 1361)


@pytest.mark.parametrize("seed", [*range(60), *MENDED])
def test_nodes_agree(seed: int) -> None:
    Run(seed).run()


def test_runs_see_every_outcome_and_repeat() -> None:
    runs = [Run(seed) for seed in range(20)]
    for each in runs:
        each.run()
    total = {name: sum(each.answers.get(name, 0) for each in runs) for name in runs[0].answers}
    assert total.keys() == {"agreed", "refused", "unknown"}
    assert total["agreed"] > 1000
    assert sum(len(member.restored) for each in runs for member in each.members.values()) > 0
    again = Run(7)
    again.run()
    assert again.agreed == runs[7].agreed


# ---- deliberate faults


def _not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that does not ask whether it still leads."""
    fenced = leading.m.Transaction

    def transaction(**fields: object) -> m.Transaction:
        compare = fields.get("compare", ())
        assert isinstance(compare, tuple)
        fields["compare"] = tuple(each for each in compare if each.target != "CREATE")
        return fenced(**fields)  # type: ignore[arg-type]

    monkeypatch.setattr(leading, "m", _With(leading.m, Transaction=transaction))


def _no_compare_and_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that writes whatever the head is: a second try happens twice."""
    plain = leading.m.Transaction

    def transaction(**fields: object) -> m.Transaction:
        compare = fields.get("compare", ())
        assert isinstance(compare, tuple)
        fields["compare"] = tuple(each for each in compare if each.target != "MOD")
        return plain(**fields)  # type: ignore[arg-type]

    monkeypatch.setattr(leading, "m", _With(leading.m, Transaction=transaction))


def _lost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that does not come is taken for a no."""
    monkeypatch.setattr(m.Failure, "is_refusal", True)


def _own_entry_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second try that finds the first one's entry takes it for another's."""
    strange = leading.read_entry

    def read(value: bytes) -> object:
        return msgspec.structs.replace(strange(value), proposal=-1)

    monkeypatch.setattr(leading, "read_entry", read)


def _old_lease_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that leads when it holds the key by whatever lease: also after its session's end."""

    def own_term(self: quorum.EtcdQuorum) -> int:
        holder = self._holder
        return holder.created if holder and holder.holder.node == self._node_id else 0

    monkeypatch.setattr(quorum.EtcdQuorum, "_own_term", own_term)


def _missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second try that finds nothing, because a snapshot is there, takes the first for refused."""
    monkeypatch.setattr(leading, "OutcomeUnknownError", lambda _: NotControllerError(-1))


def _snapshot_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that says it has one entry more than it has."""
    make = quorum.SnapshotWriter

    def writer(*given: object) -> object:
        calls, keys, term, before, entries, state = given
        return make(calls, keys, term, before, entries + 1, state)  # type: ignore[arg-type, operator]

    monkeypatch.setattr(quorum, "SnapshotWriter", writer)


def _late_snapshot_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that does not ask which one it replaces."""

    class Writer(quorum.SnapshotWriter):
        async def write(self) -> int:
            self._compare = self._compare[:1]  # type: ignore[assignment]
            return await super().write()

    monkeypatch.setattr(quorum, "SnapshotWriter", Writer)


class _With:
    """A module with some names replaced."""

    def __init__(self, module: object, **replaced: object) -> None:
        self._module = module
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> object:
        return getattr(self._module, name)


MUTANTS = [
    _not_fenced,
    _no_compare_and_set,
    _lost_is_refused,
    _own_entry_not_known,
    _old_lease_leads,
    _missing_is_refused,
    _snapshot_early,
    _late_snapshot_counts,
]


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_fault_in_the_code_is_noticed(mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    # Those first that are known to show the faults that hide best.
    for seed in (*MENDED, 25, 112, *range(60)):
        try:
            Run(seed).run()
        except (AssertionError, ValueError, KeyError):
            return
    pytest.fail("no run complains")
