"""Goal: only a node with the secret, or with a certificate that names it, is taken for that node.

Method: both sides as state machines, with every frame in the hands of the test: delivered, changed,
recorded and sent again, turned round, or passed on to another connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from dragoman.errors import DecodeError, RemoteProtocolError
from dragoman.net.peer_frames import Arrived, Hello, Kind, take_apart
from dragoman.net.peer_handshake import (
    CalledHandshake,
    CallingHandshake,
    Challenge,
    Evidence,
    Policy,
    Proof,
)
from dragoman.types import Buffer, Certificate

SECRET, OTHER = b"s" * 32, b"o" * 32
NAMES = ("URI:dragoman://node/{node}", "SUBJECT:CN=node-{node}")
BY_SECRET = Policy(authentication="required", secrets=(SECRET,), names=NAMES)
BY_CERTIFICATE = Policy(authentication="required", names=NAMES)
OPEN = Policy()
ONE, TWO = b"1" * 32, b"2" * 32
TLS = Evidence(binding=b"finished")


def certified(*names: str, subject: str = "CN=anything", binding: bytes = b"") -> Evidence:
    certificate = Certificate(subject, names, b"digest")
    return Evidence(certificate=certificate, binding=binding)


def hello(node: int, cluster_id: str = "c") -> Hello:
    return Hello(node_id=node, incarnation=1, cluster_id=cluster_id)


def calling(
    policy: Policy = BY_SECRET,
    evidence: Evidence = TLS,
    *,
    node: int = 1,
    calls: int = 2,
    cluster_id: str = "c",
    nonce: bytes = ONE,
) -> CallingHandshake:
    return CallingHandshake(policy, evidence, calls, hello(node, cluster_id), lambda: nonce)


def called(
    policy: Policy = BY_SECRET,
    evidence: Evidence = TLS,
    *,
    node: int = 2,
    cluster_id: str = "c",
    nonce: bytes = TWO,
) -> CalledHandshake:
    return CalledHandshake(policy, evidence, hello(node, cluster_id), lambda: nonce)


def arrived(pieces: Sequence[Buffer]) -> Arrived:
    return take_apart(bytearray(b"".join(pieces))[4:])


def exchange(one: CallingHandshake, two: CalledHandshake) -> list[Arrived]:
    """Run both to the end; returns the frames, alternately of the caller and the called node."""
    frames = []
    pieces = one.begin()
    while pieces:
        frames.append(arrived(pieces))
        pieces = two.received(frames[-1])
        if not pieces or one.is_done:
            break
        frames.append(arrived(pieces))
        pieces = one.received(frames[-1])
    return frames


def kinds(frames: Sequence[Arrived]) -> list[Kind]:
    return [each.kind for each in frames]


# ---- nodes that recognise each other


def test_nodes_with_the_secret_recognise_each_other() -> None:
    one, two = calling(), called()
    frames = exchange(one, two)
    assert kinds(frames) == [Kind.HELLO, Kind.CHALLENGE, Kind.PROOF, Kind.WELCOME]
    assert one.is_done
    assert one.is_authenticated
    assert two.is_authenticated
    assert two.caller == hello(1)


def test_node_that_has_not_joined_yet_proves_the_secret_all_the_same() -> None:
    one, two = calling(cluster_id=""), called()
    exchange(one, two)
    assert (one.is_done, two.is_authenticated) == (True, True)
    one, two = calling(), called(cluster_id="")
    exchange(one, two)
    assert (one.is_done, two.is_authenticated) == (True, True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (certified("URI:dragoman://node/2"), certified("URI:dragoman://node/1")),
        (certified(subject="CN=node-2"), certified(subject="CN=node-1")),
        (certified("DNS:x", "URI:dragoman://node/2"), certified(subject="CN=node-1")),
    ],
)
def test_nodes_with_certificates_recognise_each_other_at_once(
    first: Evidence, second: Evidence
) -> None:
    one, two = calling(BY_CERTIFICATE, first), called(BY_CERTIFICATE, second)
    assert one.is_done
    assert kinds(exchange(one, two)) == [Kind.HELLO]
    assert one.is_authenticated
    assert two.is_authenticated


def test_secret_is_replaced_node_by_node() -> None:
    """Old alone, old and new, new and old, new alone: neighbours in this order understand."""
    stages = [(SECRET,), (SECRET, OTHER), (OTHER, SECRET), (OTHER,)]
    for before, after in [*pairwise(stages), *zip(stages, stages, strict=True)]:
        for first, second in ((before, after), (after, before)):
            one = calling(Policy(authentication="required", secrets=first))
            two = called(Policy(authentication="required", secrets=second))
            exchange(one, two)
            assert one.is_authenticated, (first, second)
            assert two.is_authenticated, (first, second)


def test_nodes_change_from_a_secret_to_certificates_one_by_one() -> None:
    """The one without the secret has a certificate, and so does the other."""
    first = certified("URI:dragoman://node/2", binding=b"finished")
    second = certified("URI:dragoman://node/1", binding=b"finished")
    one, two = calling(BY_SECRET, first), called(BY_CERTIFICATE, second)
    assert kinds(exchange(one, two)) == [Kind.HELLO, Kind.WELCOME]
    assert one.is_authenticated
    one, two = calling(BY_CERTIFICATE, first), called(BY_SECRET, second)
    assert kinds(exchange(one, two)) == [Kind.HELLO]
    assert two.is_authenticated


# ---- upgrades: open nodes, and such as can authenticate


def test_open_nodes_greet_as_in_earlier_releases() -> None:
    one, two = calling(OPEN, Evidence()), called(OPEN, Evidence())
    (frame,) = exchange(one, two)
    assert bytes(frame.header) == msgspec.msgpack.encode(hello(1))
    assert bytes(frame.body) == b""
    assert one.is_done
    assert two.caller == hello(1)
    assert not two.is_authenticated


@pytest.mark.parametrize("evidence", [Evidence(), TLS])
def test_optional_authentication_takes_nodes_of_earlier_settings(evidence: Evidence) -> None:
    optional = msgspec.structs.replace(BY_SECRET, authentication="optional")
    one, two = calling(optional, evidence), called(OPEN, evidence)
    exchange(one, two)
    assert one.is_done
    assert two.caller is not None
    one, two = calling(OPEN, evidence), called(optional, evidence)
    assert kinds(exchange(one, two)) == [Kind.HELLO]
    assert two.caller is not None


def test_optional_authentication_proves_where_both_can() -> None:
    optional = msgspec.structs.replace(BY_SECRET, authentication="optional")
    for first, second in ((optional, optional), (optional, BY_SECRET), (BY_SECRET, optional)):
        one, two = calling(first), called(second)
        exchange(one, two)
        assert one.is_authenticated
        assert two.is_authenticated


# ---- strangers


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(),
        certified(),
        certified("URI:dragoman://node/3"),
        certified("URI:dragoman://node/10"),
        certified("URI:dragoman://node/1x"),
        certified("DNS:dragoman://node/1"),
        certified("DNS:node-1", subject="CN=client"),
        certified(subject="CN=node-1,O=Example"),
        certified(subject="O=Example,CN=node-1"),
        certified(subject="CN=node-1\\,"),
        certified(subject="CN={node}"),
    ],
)
def test_certificate_that_does_not_name_the_node_is_none(evidence: Evidence) -> None:
    """Clients have certificates of the same authority."""
    two = called(BY_CERTIFICATE, evidence)
    with pytest.raises(RemoteProtocolError, match="node 1 has not shown who it is"):
        two.received(arrived(calling(OPEN, Evidence()).begin()))
    assert two.caller is None


def test_server_whose_certificate_names_another_node_is_sent_nothing() -> None:
    for evidence in (Evidence(), certified("URI:dragoman://node/1"), certified("DNS:two")):
        with pytest.raises(RemoteProtocolError, match="it has not shown to be node 2"):
            calling(BY_CERTIFICATE, evidence)


def test_node_without_the_secret_is_refused() -> None:
    two = called()
    with pytest.raises(RemoteProtocolError, match="has offered no proof of the secret"):
        two.received(arrived(calling(OPEN).begin()))
    one, two = calling(Policy(authentication="required", secrets=(OTHER,))), called()
    with pytest.raises(RemoteProtocolError, match="node 1 has not proven to know the secret"):
        exchange(one, two)
    assert two.caller is None


def test_called_node_without_the_secret_is_not_used() -> None:
    """It welcomes everyone, and cannot prove a thing."""
    one = calling()
    two = called()
    challenge = arrived(two.received(arrived(one.begin())))
    one.received(challenge)
    for mac in (b"", b"x" * 32):
        welcome = Arrived(
            Kind.WELCOME, 0, 0, memoryview(msgspec.msgpack.encode(Proof(mac=mac))), memoryview(b"")
        )
        with pytest.raises(RemoteProtocolError, match="it has not proven to know the secret"):
            one.received(welcome)
        assert not one.is_done
    one, open_one = calling(), called(OPEN)
    with pytest.raises(RemoteProtocolError, match="it has not shown to be node 2"):
        exchange(one, open_one)


def test_secret_outside_tls_proves_nothing() -> None:
    with pytest.raises(RemoteProtocolError, match=r"inside TLS 1\.3 only"):
        calling(evidence=Evidence())
    two = called(evidence=Evidence())
    with pytest.raises(RemoteProtocolError, match=r"inside TLS 1\.3 only"):
        two.received(arrived(calling().begin()))


def test_node_of_another_cluster_is_refused_by_both() -> None:
    one, two = calling(cluster_id="other"), called()
    with pytest.raises(RemoteProtocolError, match="node 1 belongs to cluster other, this one to c"):
        exchange(one, two)
    # A called node that does not compare them.
    one, two = calling(cluster_id="other"), called(cluster_id="")
    hello_frame = arrived(one.begin())
    challenge = Challenge(node_id=2, cluster_id="c", nonce=TWO)
    assert two.received(hello_frame)
    with pytest.raises(RemoteProtocolError, match="node 2 belongs to cluster c, this one to other"):
        one.received(of(Kind.CHALLENGE, challenge))


def test_other_node_than_the_one_called_is_refused() -> None:
    """Node 3 answers at the address of node 2, with the same secret."""
    one, three = calling(calls=2), called(node=3)
    with pytest.raises(RemoteProtocolError, match="it is node 3"):
        exchange(one, three)


def test_own_id_is_refused() -> None:
    one, two = calling(node=2, calls=2), called(node=2)
    with pytest.raises(RemoteProtocolError, match="a peer has the id of this node, 2"):
        exchange(one, two)


# ---- attacks on the exchange


def of(kind: Kind, message: msgspec.Struct, body: bytes = b"") -> Arrived:
    header = memoryview(msgspec.msgpack.encode(message))
    return Arrived(kind, 0, 0, header, memoryview(body))


def test_recorded_exchange_opens_no_second_connection() -> None:
    frames = exchange(calling(), called())
    # The nonce of the called node is another one, even within the same TLS connection.
    again = called(nonce=b"3" * 32)
    again.received(frames[0])
    with pytest.raises(RemoteProtocolError, match="has not proven"):
        again.received(frames[2])
    # On another connection, with the nonce of before.
    again = called(evidence=Evidence(binding=b"another"))
    again.received(frames[0])
    with pytest.raises(RemoteProtocolError, match="has not proven"):
        again.received(frames[2])
    assert again.caller is None


def test_recorded_answers_convince_no_caller() -> None:
    frames = exchange(calling(), called())
    one = calling(nonce=b"3" * 32)
    one.received(frames[1])
    with pytest.raises(RemoteProtocolError, match="has not proven"):
        one.received(frames[3])


def test_proof_is_not_turned_round() -> None:
    """A stranger that is called answers with what the caller has proven, and the other way."""
    one, two = calling(), called()
    challenge = arrived(two.received(arrived(one.begin())))
    proof = arrived(one.received(challenge))
    reflected = Arrived(Kind.WELCOME, 0, 0, proof.header, proof.body)
    with pytest.raises(RemoteProtocolError, match="has not proven"):
        one.received(reflected)
    # The stranger takes the role of the caller at the same time, and passes the challenge on.
    victim = called(node=1, nonce=ONE)
    stranger = calling(node=2, calls=1, nonce=TWO)
    to_prove = arrived(victim.received(arrived(stranger.begin())))
    one = calling(node=1, calls=2)
    one.begin()
    with pytest.raises(RemoteProtocolError, match="it is node 1"):
        one.received(to_prove)


def test_relayed_exchange_fails_at_both_ends() -> None:
    """A stranger between two TLS connections passes every frame on unchanged."""
    one = calling(evidence=Evidence(binding=b"to the stranger"))
    two = called(evidence=Evidence(binding=b"from the stranger"))
    challenge = two.received(arrived(one.begin()))
    proof = one.received(arrived(challenge))
    with pytest.raises(RemoteProtocolError, match="has not proven"):
        two.received(arrived(proof))
    assert not one.is_done
    assert two.caller is None


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_any_changed_byte_is_noticed(place: int) -> None:
    frames = exchange(calling(), called())
    changed = frames[place]
    data = bytes(changed.header) + bytes(changed.body)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        cut = len(changed.header)
        wrong = Arrived(changed.kind, 0, 0, memoryview(flipped)[:cut], memoryview(flipped)[cut:])
        one, two = calling(), called()
        delivered: list[Arrived] = []
        with pytest.raises(RemoteProtocolError):
            _run(one, two, place, wrong, delivered)
        assert not (one.is_done and two.caller is not None and place < 3)


def _run(
    one: CallingHandshake,
    two: CalledHandshake,
    place: int,
    wrong: Arrived,
    delivered: list[Arrived],
) -> None:
    pieces = one.begin()
    while True:
        for receive in (two.received, one.received):
            sent = arrived(pieces)
            delivered.append(sent)
            pieces = receive(wrong if len(delivered) - 1 == place else sent)
            if not pieces:
                return


@pytest.mark.parametrize("kind", list(Kind))
def test_frames_out_of_order_are_refused(kind: Kind) -> None:
    frame = of(kind, Proof(mac=b"x" * 32))
    if kind is not Kind.HELLO:
        with pytest.raises(DecodeError):
            called().received(frame)
    waiting = called()
    waiting.received(arrived(calling().begin()))
    with pytest.raises(RemoteProtocolError):
        waiting.received(frame)
    if kind is not Kind.WELCOME:
        with pytest.raises(DecodeError):
            calling().received(frame)
    one = calling()
    one.received(of(Kind.CHALLENGE, Challenge(node_id=2, cluster_id="c", nonce=TWO)))
    with pytest.raises(RemoteProtocolError):
        one.received(frame)


@pytest.mark.parametrize("size", [1, 31, 33, 1000])
def test_nonces_have_one_size(size: int) -> None:
    with pytest.raises(DecodeError, match="nonce"):
        called().received(arrived(calling(nonce=b"x" * size).begin()))
    with pytest.raises(DecodeError, match="nonce"):
        calling().received(
            of(Kind.CHALLENGE, Challenge(node_id=2, cluster_id="c", nonce=b"x" * size))
        )


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x80", b"\xc1", b"\x81\xa3mac\x01", b"x" * 100])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for kind in (Kind.CHALLENGE, Kind.WELCOME):
        one = calling()
        frame = Arrived(kind, 0, 0, memoryview(data), memoryview(b""))
        if (kind, data) == (Kind.WELCOME, b"\x80"):
            with pytest.raises(RemoteProtocolError, match="has not shown"):
                one.received(frame)
        else:
            with pytest.raises(DecodeError):
                one.received(frame)
    two = called()
    two.received(arrived(calling().begin()))
    with pytest.raises(RemoteProtocolError):
        two.received(Arrived(Kind.PROOF, 0, 0, memoryview(data), memoryview(b"")))


def test_secrets_are_in_no_text() -> None:
    assert "sss" not in repr(BY_SECRET)
    assert "sss" not in str(BY_SECRET)
