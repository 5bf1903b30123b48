"""Goal: right credentials log in; wrong, unknown, disabled and stale ones are refused alike.

Method: `Logins` over a directory of users in memory, with passwords hashed inline, or by a hasher
that counts and can hold back. The scheduler is simulated, so that waits take no time.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Coroutine
from typing import TypeVar

import msgspec
import pytest
from scramp import ScramClient

from dragoman import limits
from dragoman.config.settings import Settings
from dragoman.errors import AuthenticationFailedError, InvalidPasswordError, LoginsOverloadedError
from dragoman.outcome import Outcome, attempt, failed, start
from dragoman.security.access import Caller, Principal
from dragoman.security.audit import AuditEvent
from dragoman.security.login_admission import LoginAdmission, LoginCaps
from dragoman.security.login_failures import LoginFailures
from dragoman.security.login_origins import KnownOrigins, network_of, origin_of
from dragoman.security.logins import Logins, TokenLogin
from dragoman.security.passwords import (
    InlineHasher,
    Mechanism,
    unknown_users_verifier,
    verifiers_of,
)
from dragoman.security.secrets import signing_secret_context
from dragoman.security.users import ApiToken, SealedSecret, User
from dragoman.testing.sim.scheduler import SimClock, SimScheduler

T = TypeVar("T")
ALICE = Caller(Principal("User", "alice"), "10.0.0.1", is_proven=True)


class CountingHasher(InlineHasher):
    """Counts computations, and holds their results back while `held` is a list."""

    def __init__(self) -> None:
        self.count = 0
        #: Of the last computation.
        self.iterations = 0
        self.is_full = False
        self.held: list[tuple[Outcome[bytes], bytes]] | None = None

    def derive(self, digest: str, password: bytes, salt: bytes, iterations: int) -> Outcome[bytes]:
        if self.is_full:
            return failed(LoginsOverloadedError("full"))
        self.count += 1
        self.iterations = iterations
        found = super().derive(digest, password, salt, iterations)
        if self.held is None:
            return found
        outcome: Outcome[bytes] = Outcome()
        self.held.append((outcome, found.result()))
        return outcome


class Directory:
    def __init__(self) -> None:
        self.login_secret = b"known to the nodes"
        self.users: dict[str, User] = {}
        self.security_revision = 0

    def put(self, user: User) -> None:
        self.users[user.name] = user
        self.security_revision += 1


class Session:
    def __init__(self, caller: Caller = ALICE) -> None:
        self.caller = caller
        self.ended: list[str] = []
        self.renamed = False

    def is_renamed(self) -> bool:
        return self.renamed

    def login_ended(self, reason: str) -> None:
        self.ended.append(reason)


class World:
    def __init__(self) -> None:
        self.scheduler = SimScheduler()
        self.directory = Directory()
        self.hasher = CountingHasher()
        self.random = random.Random(1)
        self.settings = Settings()
        clock = SimClock(self.scheduler)
        self.logins = Logins(
            self.directory, lambda: self.settings, self.scheduler, clock, self.random, self.hasher
        )

    def add(self, name: str, password: str, incarnation: str = "1") -> User:
        scram = start(verifiers_of(password, self.random, self.hasher, iterations=4096)).result()
        user = User(name=name, incarnation=incarnation, scram=scram)
        self.directory.put(user)
        self.hasher.count = 0
        return user

    def run(self, work: Coroutine[object, None, T]) -> T:
        outcome = start(work)
        self.scheduler.run_until_idle()
        return outcome.result()

    def password(self, name: str, password: str | bytes, host: str = "10.0.0.1") -> Caller:
        return self.run(self.logins.password(name, password, host, protocol="kafka"))

    def refused(self, name: str, password: str | bytes, host: str = "10.0.0.1") -> str:
        with pytest.raises(AuthenticationFailedError) as caught:
            self.password(name, password, host)
        return str(caught.value)


@pytest.fixture
def world() -> World:
    world = World()
    world.add("alice", "secret")
    return world


# ---- passwords


def test_right_password_logs_in(world: World) -> None:
    assert world.password("alice", "secret") == ALICE
    assert world.password("alice", b"secret") == ALICE


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_user_with_one_verifier_logs_in_by_password(world: World, mechanism: Mechanism) -> None:
    user = world.directory.users["alice"]
    kept = {mechanism.value: user.scram[mechanism.value]}
    world.directory.put(msgspec.structs.replace(user, scram=kept))
    assert world.password("alice", "secret") == ALICE
    world.refused("alice", "other")


@pytest.mark.parametrize(
    "password", ["", "Secret", "secret ", "secret\0", "s" * 2000, b"\xff", "\ue000"]
)
def test_wrong_password_is_refused_like_an_unknown_user(
    world: World, password: str | bytes
) -> None:
    assert world.refused("alice", password) == world.refused("bob", password)


def test_unknown_user_costs_the_same_work(world: World) -> None:
    world.refused("alice", "wrong")
    known = world.hasher.count
    world.refused("bob", "wrong")
    assert world.hasher.count == 2 * known == 2


def test_unknown_users_salt_is_the_same_each_time_and_differs_by_name(world: World) -> None:
    salts = {first_reply(World(), name) for name in ("bob", "bob", "carol")}
    assert len(salts) == 2


def test_unknown_users_salt_depends_on_the_clusters_secret(world: World) -> None:
    before = first_reply(world, "bob")
    world.directory.login_secret = b"of another cluster"
    assert first_reply(world, "bob") != before
    assert first_reply(world, "bob") == first_reply(world, "bob")


def test_name_shows_the_same_salt_before_during_and_after_its_user(world: World) -> None:
    name, other = "bob", "carol"
    before = first_reply(world, name), first_reply(world, other)
    for incarnation, password in enumerate(("first", "second")):
        scram = world.run(world.logins.verifiers(name, password))
        world.directory.put(User(name=name, incarnation=str(incarnation), scram=scram))
        assert world.password(name, password).name == name
        assert (first_reply(world, name), first_reply(world, other)) == before
    del world.directory.users[name]
    world.directory.security_revision += 1
    assert first_reply(world, name) == before[0]


def test_salt_of_the_first_user_is_not_one_that_clients_can_compute(world: World) -> None:
    world.directory.login_secret = b""
    made = world.run(world.logins.verifiers("bob", "password"))
    for mechanism in Mechanism:
        guess = unknown_users_verifier(mechanism, "bob", b"").salt
        assert made[mechanism.value].salt != guess


def test_number_of_iterations_shows_no_user(world: World) -> None:
    names = [f"unknown-{number}" for number in range(200)]

    def shown() -> dict[str, str]:
        return {name: first_reply(world, name) for name in names}

    first = shown()
    user = world.directory.users.pop("alice")
    world.directory.put(User(name="bob", incarnation="1"))
    second = shown()
    # Both numbers are frequent while alice has 4096, and only the default remains after that.
    assert 50 < sum(each.endswith(",i=4096") for each in first.values()) < 150
    assert {each.rpartition(",")[2] for each in second.values()} == {f"i={limits.SCRAM_ITERATIONS}"}
    world.directory.put(user)
    assert shown() == first


def test_password_of_an_unknown_user_costs_the_iterations_that_are_shown(world: World) -> None:
    world.refused("unknown", "password")
    shown = first_reply(world, "unknown").rpartition("i=")[2]
    assert world.hasher.iterations == int(shown)


def test_user_without_a_password_is_refused(world: World) -> None:
    world.directory.put(User(name="token-only", incarnation="1"))
    world.refused("token-only", "")
    world.refused("token-only", "secret")


def test_disabled_user_is_refused(world: World) -> None:
    user = world.directory.users["alice"]
    world.directory.put(msgspec.structs.replace(user, is_enabled=False))
    world.refused("alice", "secret")


def test_password_changed_during_the_check_is_refused(world: World) -> None:
    world.hasher.held = []
    outcome = start(world.logins.password("alice", "secret", "h", protocol="kafka"))
    held, world.hasher.held = world.hasher.held, None
    world.add("alice", "another")
    held[0][0].succeed(held[0][1])
    with pytest.raises(AuthenticationFailedError):
        outcome.result()


def test_repeated_logins_compute_once(world: World) -> None:
    for _ in range(50):
        world.password("alice", "secret")
    for _ in range(3):
        world.refused("alice", "wrong")
    assert world.hasher.count == 2


def test_simultaneous_logins_share_a_computation(world: World) -> None:
    world.hasher.held = []
    outcomes = [
        start(world.logins.password("alice", "secret", "10.0.0.1", protocol="kafka"))
        for _ in range(20)
    ]
    assert len(world.hasher.held) == 1
    held, derived = world.hasher.held[0]
    held.succeed(derived)
    assert [each.result() for each in outcomes] == [ALICE] * 20


def test_cached_result_expires(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.password("alice", "secret")
    world.scheduler.call_later(limits.PASSWORD_RESULT_LIFETIME_S, lambda: None)
    world.scheduler.run_until_idle()
    world.password("alice", "secret")
    assert world.hasher.count == 2


def test_cache_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.security.password_cache.PASSWORD_RESULTS_MAX", 2)
    world.password("alice", "secret")
    for number in range(3):
        world.refused("alice", f"wrong {number}", host=str(number))
    world.password("alice", "secret")
    assert world.hasher.count == 5


def test_changed_password_is_not_answered_from_the_cache(world: World) -> None:
    world.password("alice", "secret")
    world.add("alice", "another")
    world.refused("alice", "secret")
    assert world.password("alice", "another") == ALICE


def test_overload_is_reported_and_not_cached(world: World) -> None:
    world.hasher.is_full = True
    with pytest.raises(LoginsOverloadedError):
        world.password("alice", "secret")
    world.hasher.is_full = False
    assert world.password("alice", "secret") == ALICE


# ---- waits after failures


def test_failures_delay_the_next_login_and_never_refuse_it(world: World) -> None:
    waits = []
    for number in range(20):
        before = world.scheduler.time()
        world.refused("alice", f"guess {number}")
        waits.append(world.scheduler.time() - before)
    assert waits[:5] == [0, 0, 0, 0, pytest.approx(limits.LOGIN_WAIT_S_MIN)]
    assert all(after >= before - 0.001 for before, after in itertools.pairwise(waits))
    assert waits[-1] == pytest.approx(limits.LOGIN_WAIT_ADDRESS_S_MAX)
    assert world.password("alice", "secret") == ALICE


def test_failures_elsewhere_delay_a_user_by_little_and_not_at_all_once_known(world: World) -> None:
    for number in range(20):
        world.refused("alice", f"guess {number}", host="6.6.6.6")
    before = world.scheduler.time()
    assert world.password("alice", "secret") == ALICE
    assert world.scheduler.time() - before == pytest.approx(limits.LOGIN_WAIT_USER_S_MAX)
    for number in range(20):
        world.refused("alice", f"guess {number}", host="6.6.6.6")
    before = world.scheduler.time()
    assert world.password("alice", "secret") == ALICE
    assert world.scheduler.time() == before


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::"),
        ("no:address", "no:address"),
        ("", ""),
    ],
)
def test_network_of_ipv6_counts_as_one_address(host: str, origin: str) -> None:
    assert origin_of(host) == origin


def test_failures_from_many_addresses_of_a_network_delay_each_other(world: World) -> None:
    for number in range(10):
        world.refused(f"user {number}", "guess", host=f"2001:db8::{number}")
    before = world.scheduler.time()
    world.refused("another", "guess", host="2001:db8::ffff")
    assert world.scheduler.time() > before


def test_failures_are_forgotten_in_time(world: World) -> None:
    for number in range(10):
        world.refused("alice", f"guess {number}")
    world.scheduler.call_later(limits.LOGIN_FAILURES_FORGOTTEN_S, lambda: None)
    world.scheduler.run_until_idle()
    before = world.scheduler.time()
    world.refused("alice", "guess")
    assert world.scheduler.time() == before


@pytest.mark.parametrize("bound", ["LOGINS_WAITING_MAX", "LOGINS_WAITING_PER_ADDRESS_MAX"])
def test_waiting_logins_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(f"dragoman.security.waiting_logins.{bound}", 2)
    for number in range(5):
        world.refused("alice", f"guess {number}")
    outcomes = [
        start(world.logins.password("alice", "new", "10.0.0.1", protocol="kafka")) for _ in range(3)
    ]
    with pytest.raises(LoginsOverloadedError):
        outcomes[2].result()
    world.scheduler.run_until_idle()
    with pytest.raises(AuthenticationFailedError, match="unknown user"):
        outcomes[1].result()


def test_sites_of_ipv6_have_48_bits() -> None:
    assert network_of("2001:db8:1:2:3::4") == "2001:db8:1::"
    assert network_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert network_of("192.0.2.7") == "192.0.2.7"


def is_overloaded(world: World, host: str, password: str = "guess") -> bool:
    """Begin a login of alice; whether it is refused before it waits."""
    found: list[object] = []
    start(attempt(world.logins.password("alice", password, host, protocol="kafka"))).then(
        found.append
    )
    return any(isinstance(each, LoginsOverloadedError) for each in found)


def test_guesser_with_many_addresses_takes_no_room_of_known_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alice, whom others guess, logs in from where she did before."""
    monkeypatch.setattr("dragoman.security.waiting_logins.LOGINS_WAITING_UNKNOWN_MAX", 20)
    world.password("alice", "secret", "10.0.0.1")
    for number in range(5):
        world.refused("alice", "guess", f"10.2.0.{number}")
    refused = [is_overloaded(world, f"10.3.0.{number}") for number in range(30)]
    assert refused == [False] * 20 + [True] * 10
    assert not is_overloaded(world, "10.0.0.1", "changed")
    world.scheduler.run_until_idle()
    assert not is_overloaded(world, "10.4.0.1")
    world.scheduler.run_until_idle()


def test_one_site_leaves_room_to_other_unknown_addresses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.security.waiting_logins.LOGINS_WAITING_PER_NETWORK_MAX", 20)
    for number in range(5):
        world.refused("alice", "guess", f"10.2.0.{number}")
    assert sum(is_overloaded(world, f"2001:db8:1:{number:x}::1") for number in range(30)) == 10
    assert not is_overloaded(world, "2001:db8:2::1")
    world.scheduler.run_until_idle()


def test_failures_of_made_up_names_do_not_push_out_those_of_a_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.security.login_failures.LOGIN_FAILURES_KEPT_MAX", 100)
    failures = LoginFailures()
    for number in range(10):
        failures.failed("alice", f"10.0.0.{number}", 0.0)
    waits = failures.wait("alice", "h", 0.0)
    assert waits > 0
    for number in range(1000):
        failures.failed(f"made up {number}", f"10.1.{number >> 8}.{number & 255}", 0.0)
    assert failures.wait("alice", "h", 0.0) == waits


# ---- SCRAM


def first_reply(world: World, name: str) -> str:
    server = world.logins.scram_server(Mechanism.SHA_256, "h")
    reply = world.run(server.receive(f"n,,n={name},r=nonce".encode()))
    return reply.decode().split(",", 1)[1]


def exchange(world: World, mechanism: Mechanism, name: str, password: str) -> Caller | None:
    client = ScramClient([mechanism.value], name, password)
    server = world.logins.scram_server(mechanism, "10.0.0.1")
    first = world.run(server.receive(client.get_client_first().encode()))
    assert server.caller is None
    client.set_server_first(first.decode())
    final = world.run(server.receive(client.get_client_final().encode()))
    client.set_server_final(final.decode())
    return server.caller


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_scram_logs_in(world: World, mechanism: Mechanism) -> None:
    assert exchange(world, mechanism, "alice", "secret") == ALICE
    assert world.hasher.count == 0


@pytest.mark.parametrize("mechanism", list(Mechanism))
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("bob", "secret")])
def test_scram_refuses(world: World, mechanism: Mechanism, name: str, password: str) -> None:
    with pytest.raises(AuthenticationFailedError, match="unknown user or wrong credentials"):
        exchange(world, mechanism, name, password)


def test_scram_final_is_refused_for_a_user_that_was_removed_meanwhile(world: World) -> None:
    client = ScramClient(["SCRAM-SHA-256"], "alice", "secret")
    server = world.logins.scram_server(Mechanism.SHA_256, "h")
    client.set_server_first(world.run(server.receive(client.get_client_first().encode())).decode())
    del world.directory.users["alice"]
    with pytest.raises(AuthenticationFailedError):
        world.run(server.receive(client.get_client_final().encode()))


def test_scram_exchange_cannot_be_replayed(world: World) -> None:
    client = ScramClient(["SCRAM-SHA-256"], "alice", "secret")
    first = client.get_client_first().encode()
    server = world.logins.scram_server(Mechanism.SHA_256, "h")
    client.set_server_first(world.run(server.receive(first)).decode())
    final = client.get_client_final().encode()
    world.run(server.receive(final))
    with pytest.raises(AuthenticationFailedError):
        world.run(server.receive(final))
    another = world.logins.scram_server(Mechanism.SHA_256, "h")
    world.run(another.receive(first))
    with pytest.raises(AuthenticationFailedError, match="nonce"):
        world.run(another.receive(final))
    assert another.caller is None


def test_undecided_scram_exchanges_are_recorded_without_their_messages(world: World) -> None:
    events: list[AuditEvent] = []
    world.logins.record = events.append

    def refused(*messages: bytes) -> tuple[str, str]:
        server = world.logins.scram_server(Mechanism.SHA_256, "h")
        events.clear()
        for message in messages[:-1]:
            world.run(server.receive(message))
        with pytest.raises(AuthenticationFailedError):
            world.run(server.receive(messages[-1]))
        (event,) = events
        assert (event.result, event.action, event.caller.host) == ("failed", "scram-sha-256", "h")
        return event.caller.principal.name, event.detail

    first = b"n,,n=alice,r=nonce"
    assert refused(first, b"c=biws,r=another,p=AAAA") == ("alice", "other-error")
    assert refused(first, b"\xff") == ("alice", "malformed message")
    assert refused(b"p=tls-unique,,n=alice,r=nonce")[1] == "channel-binding-not-supported"
    assert refused(b"n" * 5000) == ("ANONYMOUS", "unexpected message")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,r=nonce,n=alice",
        b"p=tls-unique,,n=alice,r=nonce",
        b"x,,n=alice,r=nonce",
        b"n,a=bob,n=alice,r=nonce",
        b"n,,n=al=ice,r=nonce",
        b"n,,m=must,n=alice,r=nonce",
        b"n,,n=alice,r=a b",
        b"\xff\xfe",
        b"n,,n=" + b"a" * 5000 + b",r=nonce",
        "n,,n=\ue000,r=nonce".encode(),
    ],
)
def test_malformed_first_messages_are_refused(world: World, message: bytes) -> None:
    server = world.logins.scram_server(Mechanism.SHA_256, "h")
    with pytest.raises(AuthenticationFailedError):
        world.run(server.receive(message))
    with pytest.raises(AuthenticationFailedError):
        world.run(server.receive(b"n,,n=alice,r=nonce"))


# ---- tokens and signatures


def token_user(world: World, text: str, **fields: object) -> User:
    digest = hashlib.sha256(text.encode()).digest()
    token = ApiToken(token_id="1", digest=digest, created_ms=0, **fields)  # type: ignore[arg-type]
    user = User(name="robot", incarnation="1", tokens=(token,))
    world.directory.put(user)
    return user


def test_token_logs_in_until_it_expires(world: World) -> None:
    token_user(world, "text", is_read_only=True, expires_ms=world.logins._clock.wall_ms() + 1000)
    login = world.logins.token("text", "h")
    robot = Caller(Principal("User", "robot"), "h", is_proven=True)
    assert login == TokenLogin(robot, True, login.expires_ms)
    world.scheduler.call_later(1.0, lambda: None)
    world.scheduler.run_until_idle()
    with pytest.raises(AuthenticationFailedError):
        world.logins.token("text", "h")


def test_unknown_removed_and_disabled_tokens_are_refused(world: World) -> None:
    user = token_user(world, "text")
    with pytest.raises(AuthenticationFailedError):
        world.logins.token("other", "h")
    world.directory.put(msgspec.structs.replace(user, is_enabled=False))
    with pytest.raises(AuthenticationFailedError):
        world.logins.token("text", "h")
    world.directory.put(msgspec.structs.replace(user, tokens=()))
    with pytest.raises(AuthenticationFailedError):
        world.logins.token("text", "h")


def test_signing_secret_is_unsealed_for_enabled_users_only(world: World) -> None:
    sealed = SealedSecret("k", b"sealed")
    world.logins.unseal = lambda secret, context: secret.sealed + context.encode()
    user = User(name="rocket", incarnation="1", signing_secret=sealed)
    world.directory.put(user)
    context = signing_secret_context(user).encode()
    assert world.logins.signing_secret("rocket") == b"sealed" + context
    assert world.logins.signing_secret("alice") is None
    assert world.logins.signing_secret("nobody") is None
    world.directory.put(msgspec.structs.replace(user, is_enabled=False))
    assert world.logins.signing_secret("rocket") is None


# ---- connections


def test_connections_of_a_removed_disabled_or_replaced_user_are_closed(world: World) -> None:
    user = world.directory.users["alice"]
    for change in (
        None,
        msgspec.structs.replace(user, is_enabled=False),
        msgspec.structs.replace(user, incarnation="2"),
    ):
        world.directory.put(user)
        session, other = Session(), Session(Caller(Principal("User", "bob")))
        world.logins.opened(session)
        world.logins.opened(other)
        if change is None:
            del world.directory.users["alice"]
        else:
            world.directory.put(change)
        world.logins.user_changed("alice")
        assert len(session.ended) == 1
        assert not other.ended
        world.logins.all_changed()
        assert len(session.ended) == 1


def test_connections_survive_other_changes_of_their_user(world: World) -> None:
    session = Session()
    world.logins.opened(session)
    world.add("alice", "another")
    world.logins.all_changed()
    assert not session.ended


def test_closed_connections_are_forgotten(world: World) -> None:
    session = Session()
    world.logins.opened(session)
    world.logins.closed(session)
    world.logins.closed(session)
    del world.directory.users["alice"]
    world.logins.user_changed("alice")
    assert not session.ended


# ---- new passwords


@pytest.mark.parametrize("password", ["", "e\u0301", "\u00a0", "\ue000", "x" * 1025])
def test_passwords_that_clients_encode_differently_are_refused(world: World, password: str) -> None:
    with pytest.raises(InvalidPasswordError):
        start(verifiers_of(password, world.random, world.hasher)).result()


@pytest.mark.parametrize("iterations", [0, 4095, 16385])
def test_iterations_out_of_bounds_are_refused(world: World, iterations: int) -> None:
    with pytest.raises(InvalidPasswordError):
        start(verifiers_of("p", world.random, world.hasher, iterations=iterations)).result()


def test_password_typed_decomposed_logs_in(world: World) -> None:
    world.add("zoe", "zo\u00e9")
    assert world.password("zoe", "zoe\u0301").name == "zoe"


# ---- connections without a login


def test_certificates_and_networks_name_enabled_users_only(world: World) -> None:
    user = world.directory.users["alice"]
    foreign = Caller(Principal("User", "no user of the cluster"), "10.0.0.1")
    assert world.logins.before_login(ALICE) == ALICE
    assert world.logins.before_login(foreign) == foreign
    world.directory.put(msgspec.structs.replace(user, is_enabled=False))
    assert world.logins.before_login(ALICE) == Caller(host=ALICE.host)
    operator = Caller(Principal("Operator", "alice"))
    assert world.logins.before_login(operator) == operator


def test_wrong_token_is_recorded_without_its_text(world: World) -> None:
    events: list[AuditEvent] = []
    world.logins.record = events.append
    with pytest.raises(AuthenticationFailedError):
        world.logins.token("dragoman_secret", "10.0.0.1")
    (event,) = events
    assert (event.action, event.result, event.caller.host) == ("token", "failed", "10.0.0.1")
    assert "secret" not in str(event)


def test_ipv6_network_has_the_connections_before_login_of_one_address() -> None:
    admission = LoginAdmission(
        lambda: LoginCaps(in_all=100, per_address=2), lambda: 0.0, KnownOrigins()
    )
    assert not admission.refusal("2001:db8::1")
    assert not admission.refusal("2001:db8::2")
    assert "per.ip" in admission.refusal("2001:db8::3")
    assert not admission.refusal("2001:db8:0:1::1")
    admission.left("2001:db8::1")
    admission.left("2001:db8::2")
    admission.left("2001:db8:0:1::1")
    assert admission.in_all == 0


def test_a_part_of_the_connections_before_login_is_for_known_addresses() -> None:
    known = KnownOrigins()
    known.add("10.0.0.1")
    admission = LoginAdmission(lambda: LoginCaps(in_all=8, per_address=8), lambda: 0.0, known)
    assert [admission.refusal(f"10.1.0.{number}") == "" for number in range(8)].count(True) == 6
    assert [admission.refusal("10.0.0.1") == "" for _ in range(4)].count(True) == 2


def test_known_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.security.login_origins.LOGIN_ORIGINS_KEPT_MAX", 2)
    known = KnownOrigins()
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.3"):
        known.add(host)
    assert [f"10.0.0.{number}" in known for number in (1, 2, 3)] == [True, False, True]


def test_connections_end_whose_names_have_changed(world: World) -> None:
    stays, goes = Session(), Session()
    world.logins.opened(stays)
    world.logins.opened(goes)
    goes.renamed = True
    world.logins.names_changed()
    assert stays.ended == []
    assert len(goes.ended) == 1


def test_logins_by_token_are_in_the_audit_log_and_later_checks_are_not(world: World) -> None:
    events: list[AuditEvent] = []
    world.logins.record = events.append
    user = token_user(world, "text")
    world.logins.token("text", "h")
    assert [(each.action, each.result, each.caller.name) for each in events] == [
        ("token", "succeeded", "robot")
    ]
    assert world.logins.is_valid_token("text")
    assert not world.logins.is_valid_token("other")
    assert world.logins.is_enabled("robot")
    world.directory.put(msgspec.structs.replace(user, is_enabled=False))
    assert not world.logins.is_valid_token("text")
    assert not world.logins.is_enabled("robot")
    assert not world.logins.is_enabled("nobody")
    assert len(events) == 1
