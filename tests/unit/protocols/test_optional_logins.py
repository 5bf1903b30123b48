"""Goal: guessers gain nothing from a listener where logins are optional, whatever its protocol:
failed logins are delayed and bounded there as where they are required.

Method: guesses on connections of their own, to a broker on virtual time. The audit log shows when
each was examined.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.config.listeners import ListenerSecurity, Requirement
from dragoman.config.settings import Settings
from dragoman.limits import LOGIN_WAIT_ADDRESS_S_MAX, LOGIN_WAIT_S_MIN, LOGIN_WAIT_USER_S_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.rocketmq.constants import VERSION, Request
from dragoman.protocols.rocketmq.signatures import signed
from dragoman.security.audit import AuditEvent
from worlds.broker import Pipe, Wire, World
from worlds.cursus import CursusPipe, framed
from worlds.logins import handshake, plain
from worlds.rocketmq import RocketmqPipe
from worlds.users import add_user

REQUIREMENTS: tuple[Requirement, ...] = ("required", "optional")


def kafka(world: World, secret: str) -> Pipe:
    wire = Wire(world)
    handshake(wire, "PLAIN")
    wire.send(m.SaslAuthenticateRequest(auth_bytes=plain("alice", secret)), 2)
    return wire


def cursus(world: World, secret: str) -> Pipe:
    pipe = CursusPipe(world)
    pipe.feed(framed(f"AUTH principal=alice token={secret}"))
    return pipe


def cursus_command(world: World, secret: str) -> Pipe:
    pipe = CursusPipe(world)
    pipe.feed(framed(f"LIST principal=alice auth_token={secret}"))
    return pipe


def rocketmq(world: World, secret: str) -> Pipe:
    pipe = RocketmqPipe(world)
    fields = signed({}, b"", access_key="alice", secret_key=secret, version=VERSION)
    pipe.send(Request.GET_BROKER_CLUSTER_INFO, dict(fields))
    return pipe


Guess = Callable[[World, str], Pipe]
GUESSES = (kafka, cursus, cursus_command, rocketmq)


class Guesser:
    def __init__(self, requirement: Requirement, guess: Guess) -> None:
        self.world = World(Settings(sasl_insecure_clear_text=True))
        add_user(self.world, "alice", password="of-alice", secret="of-alice")
        security = ListenerSecurity(authentication=requirement, mechanisms=("PLAIN",))
        self.world.channels.security = security
        self._guess = guess
        #: When each guess was examined, and whether it was right.
        self.examined: list[tuple[float, bool]] = []
        self.world.broker.logins.record = self._note

    def _note(self, event: AuditEvent) -> None:
        self.examined.append((self.world.scheduler.time(), event.result == "succeeded"))

    def wait(self, secret: str) -> float:
        """Seconds until a guess on a new connection is examined."""
        before, count = self.world.scheduler.time(), len(self.examined)
        pipe = self._guess(self.world, secret)
        self.world.advance(2 * LOGIN_WAIT_ADDRESS_S_MAX)
        pipe.lose()
        assert len(self.examined) == count + 1
        return self.examined[-1][0] - before

    def at_once(self, count: int) -> None:
        for number in range(count):
            self._guess(self.world, f"at-once-{number}")
        self.world.settle()


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_guesses_on_new_connections_wait(requirement: Requirement, guess: Guess) -> None:
    guesser = Guesser(requirement, guess)
    waits = [guesser.wait(f"guess-{number}") for number in range(9)]
    assert waits[:5] == [0, 0, 0, 0, pytest.approx(LOGIN_WAIT_S_MIN)]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(LOGIN_WAIT_ADDRESS_S_MAX)
    # Nobody is locked out, and the address stays under suspicion.
    assert guesser.wait("of-alice") == pytest.approx(LOGIN_WAIT_ADDRESS_S_MAX)
    assert guesser.examined[-1][1]
    assert guesser.wait("no") > LOGIN_WAIT_USER_S_MAX


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_waiting_guesses_are_bounded_and_the_others_not_examined(
    requirement: Requirement, guess: Guess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.security.waiting_logins.LOGINS_WAITING_PER_ADDRESS_MAX", 2)
    guesser = Guesser(requirement, guess)
    for number in range(5):
        guesser.wait(f"guess-{number}")
    before = len(guesser.examined)
    guesser.at_once(10)
    assert len(guesser.examined) == before
    guesser.world.advance(60.0)
    assert len(guesser.examined) == before + 2


@pytest.mark.parametrize("guess", GUESSES)
def test_a_right_login_makes_its_address_known(guess: Guess) -> None:
    guesser = Guesser("optional", guess)
    guesser.wait("no")
    assert "10.0.0.9" not in guesser.world.broker.logins._known_origins
    guesser.wait("of-alice")
    assert "10.0.0.9" in guesser.world.broker.logins._known_origins


@pytest.mark.parametrize("guess", GUESSES)
def test_connections_without_a_login_count_only_where_it_is_required(guess: Guess) -> None:
    for requirement, count in (("required", 3), ("optional", 0)):
        guesser = Guesser(requirement, guess)  # type: ignore[arg-type]
        guesser.at_once(3)
        assert guesser.world.broker.logins.admission.in_all == count
