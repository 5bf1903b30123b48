"""Goal: each request is its signer's; what is unsigned or signed wrongly gets nothing.

Method: connections to a broker on virtual time, whose listener demands signatures. Every request of
the table is tried.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import limits
from dragoman.broker.quotas import entity_key
from dragoman.cluster.events import ClientQuotaChanged
from dragoman.protocols.rocketmq.codec import Command, encode
from dragoman.protocols.rocketmq.constants import IS_ONE_WAY, Request, Serialization
from dragoman.protocols.rocketmq.handlers.service import REQUESTS
from dragoman.protocols.rocketmq.signatures import SIGNATURE, signed
from dragoman.security.access import ANONYMOUS, Operation, Principal, Resource
from dragoman.security.audit import AuditEvent
from worlds.access import Denies
from worlds.broker import World
from worlds.rocketmq import RocketmqPipe, pull_fields, send_fields
from worlds.users import add_user, demand, remove_user

SECRET = "12345678"
V4, V5 = 399, 413
UNSIGNED = {V4: (1, "No accessKey is configured"), V5: (16, "username cannot be null.")}
WRONG = {
    V4: (1, "Check signature failed for accessKey=alice"),
    V5: (16, "check signature failed."),
}


class SignedPipe(RocketmqPipe):
    """A connection whose requests are signed, unless there is no key."""

    def __init__(
        self, world: World, serialization: Serialization = Serialization.JSON, version: int = V4
    ) -> None:
        super().__init__(world, serialization=serialization)
        self.access_key = "alice"
        self.secret = SECRET
        self.version = version
        #: Changes a request after it was signed.
        self.forge: dict[str, str] = {}

    def send(
        self, code: int, fields: dict[str, object] | None = None, body: bytes = b"", flag: int = 0
    ) -> int:
        self._opaque += 1
        texts = {name: str(value) for name, value in (fields or {}).items()}
        if self.secret:
            texts = signed(
                texts,
                body,
                access_key=self.access_key,
                secret_key=self.secret,
                version=self.version,
            )
        command = Command(
            code=code,
            opaque=self._opaque,
            flag=flag,
            version=self.version,
            fields=texts | self.forge,
            body=body,
            serialization=self.serialization,
        )
        self.feed(encode(command))
        return self._opaque


@pytest.fixture
def authorizer() -> Denies:
    return Denies()


@pytest.fixture
def world(authorizer: Denies) -> World:
    world = World(authorizer=authorizer)
    add_user(world, "alice", secret=SECRET)
    add_user(world, "bob", secret="of bob")
    demand(world)
    return world


@pytest.fixture
def pipe(world: World) -> SignedPipe:
    return SignedPipe(world)


# ---- who is let in


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("version", [V4, V5])
def test_signed_requests_are_their_signers(
    world: World, authorizer: Denies, serialization: Serialization, version: int
) -> None:
    pipe = SignedPipe(world, serialization, version)
    pipe.create("T")
    assert pipe.put("T", b"a message").code == 0
    assert [each.body for each in pipe.messages("T")] == [b"a message"]
    assert {each.principal for each in authorizer.callers} == {Principal("User", "alice")}
    assert {each.host for each in authorizer.callers} == {"10.0.0.9"}


@pytest.mark.parametrize("version", [V4, V5])
def test_unsigned_requests_are_refused(world: World, version: int) -> None:
    pipe = SignedPipe(world, version=version)
    pipe.secret = ""
    assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO) == UNSIGNED[version]


@pytest.mark.parametrize("version", [V4, V5])
def test_an_empty_access_key_is_no_access_key(world: World, version: int) -> None:
    pipe = SignedPipe(world, version=version)
    pipe.access_key = ""
    assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO) == UNSIGNED[version]
    demand(world, "optional")
    assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0


@pytest.mark.parametrize("version", [V4, V5])
def test_wrong_secrets_and_unknown_keys_are_refused_alike(world: World, version: int) -> None:
    pipe = SignedPipe(world, version=version)
    pipe.secret = "wrong"
    assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO) == WRONG[version]
    pipe.access_key, pipe.secret = "nobody", SECRET
    code, text = pipe.refused(Request.GET_BROKER_CLUSTER_INFO)
    assert (code, text) == (WRONG[version][0], WRONG[version][1].replace("alice", "nobody"))


def test_a_user_without_a_secret_cannot_sign(world: World, pipe: SignedPipe) -> None:
    add_user(world, "alice", password="only a password", incarnation="2")
    assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO) == WRONG[V4]


def test_a_disabled_user_cannot_sign(world: World, pipe: SignedPipe) -> None:
    add_user(world, "alice", secret=SECRET, is_enabled=False)
    assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO) == WRONG[V4]


def test_signatures_are_ignored_where_there_is_no_authentication(
    world: World, pipe: SignedPipe, authorizer: Denies
) -> None:
    demand(world, "off")
    pipe.secret = "wrong"
    pipe.create("T")
    assert pipe.put("T").code == 0
    assert {each.principal for each in authorizer.callers} == {ANONYMOUS}


def test_optional_signatures_must_be_right(
    world: World, pipe: SignedPipe, authorizer: Denies
) -> None:
    demand(world, "optional")
    pipe.create("T")
    assert pipe.put("T").code == 0
    pipe.secret = "wrong"
    assert pipe.put("T").code == 1
    pipe.secret = ""
    assert pipe.put("T").code == 0
    principals = {each.principal for each in authorizer.callers}
    assert principals == {Principal("User", "alice"), ANONYMOUS}


def test_addresses_may_have_a_principal(world: World, authorizer: Denies) -> None:
    demand(world, principals=(("10.0.0.0/8", "batch"),))
    pipe = SignedPipe(world)
    pipe.create("T")
    pipe.secret = ""
    assert pipe.put("T").code == 0
    assert {each.principal for each in authorizer.callers} == {Principal("User", "batch")}
    # A signature counts more than the address, and a wrong one is refused.
    pipe.secret = SECRET
    assert pipe.put("T").code == 0
    assert Principal("User", "alice") in {each.principal for each in authorizer.callers}
    pipe.secret = "wrong"
    assert pipe.put("T").code == 1


def test_what_a_listener_demands_may_change(world: World, pipe: SignedPipe) -> None:
    pipe.secret = ""
    assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO) == UNSIGNED[V4]
    demand(world, "off")
    assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0


# ---- every request


def test_every_request_signed_wrongly_is_refused(world: World, authorizer: Denies) -> None:
    for code in REQUESTS:
        pipe = SignedPipe(world, version=V5)
        pipe.secret = "wrong"
        number = pipe.send(code, {"topic": "T", "consumerGroup": "g"}, b"{}")
        world.advance(2 * limits.LOGIN_WAIT_ADDRESS_S_MAX)
        reply = pipe.replies()[number]
        assert (reply.code, reply.remark) == WRONG[V5], Request(code).name
        pipe.lose()
    assert authorizer.asked == []


def test_every_unsigned_request_is_refused(world: World, authorizer: Denies) -> None:
    pipe = SignedPipe(world)
    pipe.secret = ""
    for code in (*REQUESTS, 9999):
        assert pipe.refused(code, {"topic": "T"}, b"{}") == UNSIGNED[V4]
    assert authorizer.asked == []


def test_one_way_requests_signed_wrongly_have_no_effect(world: World, pipe: SignedPipe) -> None:
    pipe.create("T")
    pipe.forge = {SIGNATURE: "AAAA"}
    pipe.send(Request.SEND_MESSAGE, send_fields("T"), b"v", IS_ONE_WAY)
    world.settle()
    assert pipe.received() == b""
    assert SignedPipe(world).messages("T") == []


# ---- what is signed


@pytest.mark.parametrize("name", ["topic", "queueId", "properties", "AccessKey", "extra"])
def test_changed_fields_are_refused(pipe: SignedPipe, name: str) -> None:
    pipe.create("T")
    pipe.forge = {name: "bob" if name == "AccessKey" else "1"}
    assert pipe.put("T").code == 1


def test_a_changed_body_is_refused(world: World, pipe: SignedPipe) -> None:
    pipe.create("T")
    number = pipe.send(Request.SEND_MESSAGE, send_fields("T"), b"v")
    world.settle()
    fields = signed(
        {name: str(value) for name, value in send_fields("T").items()},
        b"v",
        access_key="alice",
        secret_key=SECRET,
    )
    forged = Command(code=10, opaque=number + 1, version=V4, fields=fields, body=b"w")
    pipe.feed(encode(forged))
    world.settle()
    replies = pipe.replies()
    assert [replies[number].code, replies[number + 1].code] == [0, 1]


def test_numbers_and_booleans_are_signed_as_text(world: World, pipe: SignedPipe) -> None:
    """As clients in JavaScript and C++ send them."""
    pipe.create("T")
    fields = {name: str(value) for name, value in pull_fields("T").items()} | {"unitMode": "true"}
    fields = signed(fields, b"", access_key="alice", secret_key=SECRET, version=V4)
    raw = {name: int(text) if text.isdigit() else text for name, text in fields.items()}
    raw["unitMode"] = True
    header = msgspec.json.encode({"code": 11, "opaque": 7, "version": V4, "extFields": raw})
    pipe.feed((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
    world.settle()
    assert pipe.replies()[7].code == 19


@pytest.mark.parametrize("is_signed", [True, False])
def test_the_unique_key_query_may_be_unsigned_up_to_4_9_3(
    world: World, pipe: SignedPipe, is_signed: bool
) -> None:
    pipe.create("T")
    pipe.forge = {"_UNIQUE_KEY_QUERY": "true"}
    query = {"topic": "T", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 9}
    assert pipe.ask(Request.QUERY_MESSAGE, query).code == 22
    pipe.version = 401
    if is_signed:
        pipe.forge, query = {}, {**query, "_UNIQUE_KEY_QUERY": "true"}
    assert pipe.ask(Request.QUERY_MESSAGE, query).code == (22 if is_signed else 1)


def test_a_replayed_request_is_accepted_as_by_the_original(world: World, pipe: SignedPipe) -> None:
    pipe.create("T")
    pipe.put("T", b"once")
    recorded = encode(
        Command(
            code=Request.SEND_MESSAGE,
            opaque=99,
            version=V4,
            fields=signed(
                {name: str(value) for name, value in send_fields("T").items()},
                b"again",
                access_key="alice",
                secret_key=SECRET,
            ),
            body=b"again",
        )
    )
    pipe.feed(recorded + recorded)
    world.settle()
    assert [each.body for each in pipe.messages("T")] == [b"once", b"again", b"again"]


def test_the_last_of_two_equal_names_counts_for_both(world: World, pipe: SignedPipe) -> None:
    """The value that is checked is the value that is used."""
    pipe.create("T")
    pipe.create("U")
    fields = {name: str(value) for name, value in send_fields("T").items()}
    whole = signed(fields, b"v", access_key="alice", secret_key=SECRET)
    pairs = [*whole.items(), ("topic", "U")]
    text = ",".join(f'"{name}":"{value}"' for name, value in pairs)
    header = f'{{"code":10,"opaque":5,"version":{V4},"extFields":{{{text}}}}}'.encode()
    size = (4 + len(header) + 1).to_bytes(4, "big")
    pipe.feed(size + len(header).to_bytes(4, "big") + header + b"v")
    world.settle()
    assert pipe.replies()[5].code == 1
    assert pipe.messages("U") == []


@given(st.text(max_size=60), st.binary(max_size=30))
@settings(max_examples=60, deadline=None)
def test_no_text_is_a_signature(forged: str, body: bytes) -> None:
    world = World()
    add_user(world, "alice", secret=SECRET)
    demand(world)
    pipe = SignedPipe(world, version=V5)
    pipe.forge = {SIGNATURE: forged}
    assert pipe.refused(Request.SEND_MESSAGE, send_fields("T"), body) == WRONG[V5]


# ---- several signers


def test_requests_of_one_connection_are_their_own_signers(
    world: World, pipe: SignedPipe, authorizer: Denies
) -> None:
    pipe.create("T")
    keys = [f"user-{number}" for number in range(50)]
    for each in keys:
        add_user(world, each, secret=f"secret of {each}")
    numbers = {}
    for each in keys:
        pipe.access_key, pipe.secret = each, f"secret of {each}"
        numbers[each] = pipe.send(Request.SEND_MESSAGE, send_fields("T"), each.encode())
    world.settle()
    replies = pipe.replies()
    assert all(replies[number].code == 0 for number in numbers.values())
    assert {each.name for each in authorizer.callers} == set(keys)


def test_a_connection_has_a_bounded_number_of_signers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.protocols.rocketmq.handlers.signers.ROCKETMQ_SIGNERS_MAX", 1)
    pipe = SignedPipe(world)
    pipe.create("T")
    assert pipe.put("T").code == 0
    pipe.access_key, pipe.secret = "bob", "of bob"
    assert pipe.put("T").code == 2
    pipe.access_key, pipe.secret = "alice", SECRET
    assert pipe.put("T").code == 0


def test_rights_are_those_of_the_requests_signer(
    world: World, pipe: SignedPipe, authorizer: Denies
) -> None:
    pipe.create("T")
    pipe.put("T")
    authorizer.denied.add((Operation.READ, Resource.TOPIC, "T"))
    assert pipe.pull("T").code == 16
    assert pipe.put("T").code == 0


def test_only_producers_that_may_write_are_asked_about_transactions(
    world: World, authorizer: Denies
) -> None:
    """The request has the message, which others must not see."""
    alice, bob = SignedPipe(world), SignedPipe(world)
    bob.access_key, bob.secret = "bob", "of bob"
    alice.create("T", 1)
    half = send_fields("T", {"TRAN_MSG": "true", "PGROUP": "pg"}) | {"sysFlag": 4}
    assert alice.ask(Request.SEND_MESSAGE, half, b"a half").code == 0
    assert bob.beat("of-bob", producer="pg").code == 0
    authorizer.denied.add((Operation.WRITE, Resource.TOPIC, "T"))
    world.advance(10.0)
    bob.replies()
    assert bob.pushed == []
    authorizer.denied.clear()
    world.advance(40.0)
    bob.replies()
    assert [each.code for each in bob.pushed[:1]] == [Request.CHECK_TRANSACTION_STATE]


def test_the_id_of_another_users_producer_is_refused(world: World) -> None:
    alice, bob = SignedPipe(world), SignedPipe(world)
    bob.access_key, bob.secret = "bob", "of bob"
    assert alice.beat("p1", producer="pg").code == 0
    assert bob.beat("p1", producer="pg").code == 16
    assert bob.beat("p2", producer="pg").code == 0
    alice.lose()
    assert bob.beat("p1", producer="pg").code == 0


def test_refusals_are_recorded(world: World, pipe: SignedPipe) -> None:
    events: list[AuditEvent] = []
    world.broker.logins.record = events.append
    pipe.ask(Request.GET_BROKER_CLUSTER_INFO)
    pipe.ask(Request.GET_BROKER_CLUSTER_INFO)
    pipe.secret = "wrong"
    pipe.ask(Request.GET_BROKER_CLUSTER_INFO)
    other = SignedPipe(world)
    other.secret = ""
    other.ask(Request.GET_BROKER_CLUSTER_INFO)
    assert [(each.action, each.result, each.caller.name) for each in events] == [
        ("signature", "succeeded", "alice"),
        ("signature", "failed", "alice"),
        ("none", "failed", "ANONYMOUS"),
    ]


def test_long_access_keys_take_no_memory(world: World, pipe: SignedPipe) -> None:
    pipe.access_key = "k" * 50_000
    code, text = pipe.refused(Request.GET_BROKER_CLUSTER_INFO)
    assert (code, len(text)) == (1, len("Check signature failed for accessKey=") + 100)
    counted = world.broker.logins._failures._by_user._counts
    assert all(len(each) <= limits.USER_NAME_BYTES_MAX for each in counted)


# ---- the end of a user


@pytest.mark.parametrize("change", ["removed", "disabled", "replaced"])
def test_connections_end_with_a_signer(world: World, change: str) -> None:
    pipe, other = SignedPipe(world), SignedPipe(world)
    other.access_key, other.secret = "bob", "of bob"
    pipe.create("T")
    assert pipe.put("T").code == other.put("T").code == 0
    pipe.send(Request.PULL_MESSAGE, pull_fields("T", 2) | {"sysFlag": 6, "suspendTimeoutMillis": 9})
    world.settle()
    match change:
        case "removed":
            remove_user(world, "alice")
        case "disabled":
            add_user(world, "alice", secret=SECRET, is_enabled=False)
        case _:
            add_user(world, "alice", secret=SECRET, incarnation="2")
    assert pipe.is_closed
    assert not other.is_closed


def test_a_new_secret_counts_at_once(world: World, pipe: SignedPipe) -> None:
    pipe.create("T")
    assert pipe.put("T").code == 0
    add_user(world, "alice", secret="a new one")
    assert pipe.put("T").code == 1
    pipe.secret = "a new one"
    assert pipe.put("T").code == 0


# ---- before the first signature


def test_a_connection_that_signs_nothing_is_closed_in_time(world: World) -> None:
    pipe, other = SignedPipe(world), SignedPipe(world)
    pipe.secret = "wrong"
    pipe.refused(Request.GET_BROKER_CLUSTER_INFO)
    assert other.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0
    world.advance(world.settings.connections_max_login_ms / 1000)
    assert pipe.is_closed
    assert not other.is_closed


def test_the_first_request_may_be_a_whole_message(world: World, pipe: SignedPipe) -> None:
    pipe.create("T", 1)
    assert pipe.put("T", bytes(2 * limits.LOGIN_FRAME_BYTES_MAX)).code in (0, 13)


def first_half(frame_bytes: int) -> bytes:
    """The first half of a frame."""
    whole = encode(Command(code=Request.SEND_MESSAGE, body=bytes(frame_bytes)))
    return whole[: frame_bytes // 2]


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """The bound of frames from one address before their signature is verified."""
    bound = 1 << 20
    monkeypatch.setattr(
        "dragoman.security.unverified_frames.UNVERIFIED_PER_ADDRESS_BYTES_MAX", bound
    )
    return bound


def test_large_frames_before_the_first_signature_are_bounded(
    world: World, small_bound: int
) -> None:
    pipes = [SignedPipe(world) for _ in range(30)]
    for pipe in pipes:
        pipe.feed(first_half(small_bound))
    world.settle()
    assert any(each.is_closed for each in pipes)
    assert world.budget.used <= small_bound
    assert world.broker.logins.unverified_frames.in_all <= small_bound
    # A whole message displaces them.
    pipe = SignedPipe(world)
    pipe.create("T", 1)
    assert SignedPipe(world).put("T", bytes(small_bound // 2)).code == 0
    for each in pipes:
        each.lose()
    assert world.broker.logins.unverified_frames.in_all == 0
    assert world.budget.used == 0


def test_frames_after_the_first_signature_are_not_counted(world: World, small_bound: int) -> None:
    pipes = [SignedPipe(world) for _ in range(5)]
    for pipe in pipes:
        assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0
        pipe.feed(first_half(2 * small_bound))
    assert not any(each.is_closed for each in pipes)
    assert world.broker.logins.unverified_frames.in_all == 0


@pytest.mark.parametrize("secret", ["wrong", ""])
def test_refused_frames_are_counted_no_longer(world: World, small_bound: int, secret: str) -> None:
    for _ in range(5):
        pipe = SignedPipe(world)
        pipe.secret = secret
        pipe.send(Request.SEND_MESSAGE, send_fields("T"), bytes(small_bound // 2))
        world.advance(2 * limits.LOGIN_WAIT_ADDRESS_S_MAX)
        assert not pipe.is_closed
        assert world.broker.logins.unverified_frames.in_all <= small_bound // 2 + 1000
    held = [SignedPipe(world) for _ in range(3)]
    for each in held:
        each.secret = "wrong"
        each.send(Request.SEND_MESSAGE, send_fields("T"), bytes(small_bound // 2))
    world.settle()
    # While they wait, what they hold counts.
    if secret:
        assert 0 < world.broker.logins.unverified_frames.in_all <= small_bound
    assert world.budget.used <= small_bound
    world.advance(2 * limits.LOGIN_WAIT_ADDRESS_S_MAX)
    assert not held[-1].is_closed
    assert world.broker.logins.unverified_frames.in_all == 0


def test_headers_are_small_before_the_first_signature(world: World, pipe: SignedPipe) -> None:
    fields: dict[str, object] = {"padding": "p" * limits.LOGIN_FRAME_BYTES_MAX}
    assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0
    assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO, fields).code == 0
    other = SignedPipe(world)
    other.send(Request.GET_BROKER_CLUSTER_INFO, fields)
    world.settle()
    assert other.is_closed
    assert other.replies() == {}


def test_connections_before_their_first_signature_are_counted(world: World) -> None:
    admission = world.broker.logins.admission
    pipe = SignedPipe(world)
    assert admission.in_all == 1
    pipe.ask(Request.GET_BROKER_CLUSTER_INFO)
    assert admission.in_all == 0


# ---- guessing


def test_requests_after_wrong_signatures_wait(world: World, pipe: SignedPipe) -> None:
    for _ in range(limits.LOGIN_FAILURES_FREE):
        pipe.secret = "wrong"
        assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO) == WRONG[V4]
    # The next refusal is immediate, and holds what follows it.
    numbers = [pipe.send(Request.GET_BROKER_CLUSTER_INFO) for _ in range(4)]
    world.settle()
    assert list(pipe.replies()) == numbers[:1]
    assert not pipe.transport.is_reading
    world.advance(limits.LOGIN_WAIT_S_MIN)
    assert list(pipe.replies()) == numbers[1:2]
    world.advance(60.0)
    assert list(pipe.replies()) == numbers[2:]
    assert pipe.transport.is_reading


def test_connections_that_have_signed_do_not_wait_for_guesses(world: World) -> None:
    guesser, pipe = SignedPipe(world), SignedPipe(world)
    assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0
    guesser.secret = "wrong"
    for _ in range(20):
        guesser.send(Request.GET_BROKER_CLUSTER_INFO)
    world.settle()
    pipe.create("T")
    assert pipe.put("T").code == 0
    guesser.lose()
    world.advance(60.0)
    assert not pipe.is_closed


def test_a_signer_that_signs_wrongly_waits_like_others(world: World, pipe: SignedPipe) -> None:
    assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0
    pipe.secret = "wrong"
    for _ in range(limits.LOGIN_FAILURES_FREE + 1):
        assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO) == WRONG[V4]
    pipe.secret = SECRET
    number = pipe.send(Request.GET_BROKER_CLUSTER_INFO)
    world.settle()
    assert pipe.replies() == {}
    world.advance(limits.LOGIN_WAIT_S_MIN)
    assert pipe.replies()[number].code == 0


def test_a_guess_beyond_those_that_wait_is_refused_as_busy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.security.waiting_logins.LOGINS_WAITING_PER_ADDRESS_MAX", 0)
    pipe = SignedPipe(world)
    pipe.secret = "wrong"
    for _ in range(limits.LOGIN_FAILURES_FREE + 1):
        pipe.refused(Request.GET_BROKER_CLUSTER_INFO)
    pipe.secret = SECRET
    assert pipe.refused(Request.GET_BROKER_CLUSTER_INFO)[0] == 2
    world.settle()
    assert pipe.transport.is_reading


def test_a_connection_may_close_while_its_signature_waits(world: World) -> None:
    pipe = SignedPipe(world)
    pipe.secret = "wrong"
    for _ in range(limits.LOGIN_FAILURES_FREE + 1):
        pipe.refused(Request.GET_BROKER_CLUSTER_INFO)
    pipe.send(Request.GET_BROKER_CLUSTER_INFO)
    world.settle()
    pipe.lose()
    world.advance(60.0)
    assert world.budget.used == 0
    assert pipe.replies() == {}


# ---- quotas


@pytest.mark.parametrize(("user", "is_throttled"), [("alice", True), ("ANONYMOUS", False)])
def test_bytes_count_for_the_quotas_of_the_signer(
    world: World, user: str, is_throttled: bool
) -> None:
    quota = {"producer_byte_rate": 1.0}
    world.apply(ClientQuotaChanged(entity=entity_key({"user": user}), quotas=quota))
    pipe = SignedPipe(world)
    assert pipe.ask(Request.SEND_MESSAGE, send_fields("orders"), b"v" * 2000).code == 0
    assert pipe.transport.is_reading != is_throttled
