"""The invariants of a quorum under any faults; it sees every step and objects at once.

S1 one leader to a term · S2 terms and votes never go back · S3 equal places hold equal bytes · S14
equal places, equal state · S15 what was refused never happens · nothing agreed on is ever lost, no
read misses what was acknowledged before it. See the invariants of the replication design.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.cluster.codec import encode_image, events_in
from dragoman.cluster.events import Event, GroupConfigChanged, TermBegan
from dragoman.cluster.metadata import MetadataImage
from dragoman.log.batch import BatchHeader, batches
from dragoman.raft.messages import Message, VoteReply, VoteRequest
from dragoman.raft.ports import RaftStorage
from simulation.harness.runs import Violation


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise Violation(text)


class Operation(msgspec.Struct):
    """One proposal of a client, and its outcome."""

    number: int
    expected_version: int | None
    outcome: str = "waiting"


class Agreed(msgspec.Struct, frozen=True):
    base: int
    next: int
    term: int
    data: bytes
    #: Agreed on in this term of the quorum or an earlier one.
    known_in: int


class Checker:
    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._terms_told: dict[int, int] = {}
        #: Voter, candidate, term, whether it is a pre-vote: what may be granted.
        self._may_vote: set[tuple[int, int, int, bool]] = set()
        self.agreed: list[Agreed] = []
        self._by_base: dict[int, Agreed] = {}
        #: Bytes by place and term, of all logs.
        self._written: dict[tuple[int, int], bytes] = {}
        self.operations: dict[int, Operation] = {}
        #: Operations in the order in which they were agreed on.
        self.happened: list[int] = []
        self._image = MetadataImage()
        self._version = 0
        self._states: dict[int, bytes] = {0: self._state()}
        #: Agreed up to here as far as any client knows.
        self.acknowledged_end = 0

    @property
    def agreed_end(self) -> int:
        return self.agreed[-1].next if self.agreed else 0

    # ---- S1, S2

    def led(self, node: int, term: int, storage: RaftStorage) -> None:
        other = self.leaders.setdefault(term, node)
        expect(other == node, f"S1: nodes {other} and {node} both lead term {term}")
        # A node may win late an election of a term that is past; it can agree on nothing then.
        last = next((each for each in reversed(self.agreed) if each.known_in < term), None)
        if last is not None:
            expect(
                storage.end >= last.next and storage.term_of(last.next - 1) in (last.term, -1),
                f"lost: node {node} leads term {term} up to {storage.end} without the agreed "
                f"entry at {last.base} of term {last.term}",
            )

    def started(self, node: int, storage: RaftStorage) -> None:
        ballot, told = storage.ballot, self._terms_told.get(node, 0)
        expect(ballot.term >= told, f"S2: node {node} is back in term {ballot.term} from {told}")

    def sent(self, message: Message) -> None:
        node = message.source
        is_pre_vote = isinstance(message, VoteRequest | VoteReply) and message.is_pre_vote
        if not is_pre_vote:
            self._terms_told[node] = max(message.term, self._terms_told.get(node, 0))
        if isinstance(message, VoteRequest) and not message.is_pre_vote:
            self._voted(node, message.term, node)

    def voted(self, reply: VoteReply, candidate: int) -> None:
        if not reply.is_granted:
            return
        if not reply.is_pre_vote:
            self._voted(reply.source, reply.term, candidate)
        key = (reply.source, candidate, reply.term, reply.is_pre_vote)
        expect(
            key in self._may_vote,
            f"node {reply.source} votes for {candidate}, whose log is behind its own",
        )

    def asked(self, voter: int, request: VoteRequest, storage: RaftStorage) -> None:
        """A request reaches a voter: remember whether it may be granted."""
        key = (voter, request.source, request.term, request.is_pre_vote)
        if (request.last_term, request.end) >= (storage.last_term, storage.end):
            self._may_vote.add(key)

    def _voted(self, node: int, term: int, candidate: int) -> None:
        other = self._votes.setdefault((node, term), candidate)
        expect(other == candidate, f"S2: node {node} votes for {other} and {candidate} in {term}")

    # ---- what is agreed on

    def applying(self, node: int, term: int, header: BatchHeader, data: bytes) -> None:
        """A node that knows of this term applies an entry."""
        known = self._by_base.get(header.base_offset)
        if known is not None:
            expect(
                known.data == data,
                f"S3: node {node} applies another entry at {header.base_offset}: term "
                f"{header.leader_epoch}, agreed was term {known.term}",
            )
            return
        expect(
            header.base_offset == self.agreed_end,
            f"S3: node {node} applies an entry at {header.base_offset} inside what is agreed on",
        )
        entry = Agreed(header.base_offset, header.last_offset + 1, header.leader_epoch, data, term)
        self.agreed.append(entry)
        self._by_base[entry.base] = entry
        self._written[entry.base, entry.term] = data
        self._advance(events_in(data))
        self._states[entry.next] = self._state()

    def _advance(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, GroupConfigChanged):
                self._happens(self.operations[int(event.config["operation"])])
            self._image.apply(event)
            self._version += not isinstance(event, TermBegan)

    def _happens(self, operation: Operation) -> None:
        number = operation.number
        expect(number not in self.happened[-200:], f"operation {number} happens twice")
        expect(operation.outcome != "refused", f"S15: operation {number} was refused and happens")
        wanted = operation.expected_version
        expect(
            wanted is None or wanted == self._version,
            f"operation {number} was for version {wanted} and happens at {self._version}",
        )
        self.happened.append(number)

    def _state(self) -> bytes:
        return encode_image(self._image, self._version)

    def applied(self, node: int, end: int, image: MetadataImage, version: int) -> None:
        state = self._states.get(end)
        expect(state is not None, f"node {node} has applied up to {end}, inside an entry")
        expect(encode_image(image, version) == state, f"S14: node {node} differs at {end}")

    # ---- answers to clients

    def answered(self, operation: Operation, outcome: str) -> None:
        expect(operation.outcome == "waiting", f"operation {operation.number} is answered twice")
        operation.outcome = outcome
        happened = operation.number in self.happened[-10_000:]
        if outcome == "agreed":
            expect(happened, f"operation {operation.number} is acknowledged and did not happen")
            self.acknowledged_end = max(self.acknowledged_end, self._end_of(operation.number))
        elif outcome == "refused":
            expect(not happened, f"S15: operation {operation.number} happened and is refused")

    def _end_of(self, number: int) -> int:
        text = str(number).encode()
        for entry in reversed(self.agreed):
            if text in entry.data:
                return entry.next
        return 0

    # ---- at the end

    def final(self, node: int, storage: RaftStorage) -> None:
        """Equal (offset, term), equal bytes: with all other logs and with what was agreed on."""
        offset = storage.start
        while offset < storage.end:
            for header, batch in batches(memoryview(storage.read(offset, 1 << 20))):
                key = (header.base_offset, header.leader_epoch)
                other = self._written.setdefault(key, bytes(batch))
                expect(other == bytes(batch), f"S3: node {node} has other bytes at {key}")
                offset = header.last_offset + 1

    def final_operations(self) -> None:
        happened = set(self.happened)
        expect(len(happened) == len(self.happened), "an operation happened twice")
        for each in self.operations.values():
            expect(
                each.outcome != "agreed" or each.number in happened,
                f"operation {each.number} was acknowledged and is lost",
            )
            expect(
                each.outcome != "refused" or each.number not in happened,
                f"S15: operation {each.number} was refused and happened",
            )
