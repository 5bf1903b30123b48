"""How two nodes recognise each other on a connection, without input and output.

    the calling node                        the node that is called
    HELLO   its ids, nonce          ──>
                                    <──     CHALLENGE  its ids, nonce
    PROOF   of the calling node     ──>
                                    <──     WELCOME    proof of the node that is called

A node is recognised by its certificate, which names it (`Policy.names`), or by proof of the secret
that all nodes have. Other certificates of the same authority, such as those of clients, name no
node. A HELLO without a nonce is all that there is to say by certificate, or where none is required.

A proof is an HMAC under the secret over the role of its sender, both messages of the exchange, with
both nonces and all ids, and the Finished message of the TLS connection, which depends on the
server's certificate. It is therefore worthless on any other connection, in the other direction, for
another node and another cluster. The calling node proves first: only an impostor with the address
of a node could collect proofs to guess a weak secret from. Secrets are proven inside TLS 1.3 only.

A node may hold several secrets: it proves with the first, and accepts each, so that the secret can
be replaced node by node.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from dragoman.config.listeners import Requirement
from dragoman.errors import MALFORMED, DecodeError, RemoteProtocolError
from dragoman.limits import PEER_NONCE_BYTES
from dragoman.net.peer_frames import Arrived, Hello, Kind, frame, read_hello
from dragoman.types import Buffer, Certificate

_Role: TypeAlias = Literal[b"caller", b"called"]
_Message = TypeVar("_Message", bound=msgspec.Struct)
_CALLER: Final = b"caller"
_CALLED: Final = b"called"
_CONTEXT: Final = b"dragoman peer 1"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What this node demands of others, and what it can prove."""

    authentication: Requirement = "off"
    #: The first proves, each is accepted. Empty: nodes are recognised by their certificates.
    secrets: tuple[bytes, ...] = ()
    #: Names of a node's certificate, with `{node}` for its id: `KIND:NAME` as in
    #: `Certificate.alternative_names`, or `SUBJECT:` and the whole subject.
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Policy(authentication={self.authentication!r}, secrets={len(self.secrets)})"

    def names_node(self, certificate: Certificate | None, node: int) -> bool:
        """Whether the certificate is that of a node."""
        if certificate is None:
            return False
        found = {*certificate.alternative_names, f"SUBJECT:{certificate.subject}"}
        return any(each.replace("{node}", str(node)) in found for each in self.names)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection shows of the node at its other end."""

    #: Its certificate, if an authority of the nodes has signed it.
    certificate: Certificate | None = None
    #: Identifies the TLS connection, at both ends alike; empty where secrets are not proven.
    binding: bytes = b""


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies the node that is called."""

    node_id: int
    cluster_id: str
    nonce: bytes


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The body of PROOF and WELCOME; empty in a WELCOME without a CHALLENGE before it."""

    mac: bytes = b""


def proof_of(secret: bytes, role: _Role, hello: bytes, challenge: bytes, binding: bytes) -> bytes:
    """The proof for an exchange of these messages."""
    proof = hmac.new(secret, digestmod=hashlib.sha256)
    for part in (_CONTEXT, role, hello, challenge, binding):
        proof.update(len(part).to_bytes(4, "big") + part)
    return proof.digest()


class CallingHandshake:
    """The side of the node that has connected."""

    def __init__(
        self,
        policy: Policy,
        evidence: Evidence,
        node: int,
        hello: Hello,
        new_nonce: Callable[[], bytes],
    ) -> None:
        """`node` is the node that this one means to call. Raises `RemoteProtocolError` when the
        connection shows that it is not, or cannot be shown to be, that node.
        """
        self._policy = policy
        self._evidence = evidence
        self._node = node
        can_prove = bool(policy.secrets) and bool(evidence.binding)
        self._is_proving = can_prove and policy.authentication != "off"
        self._challenge: bytes | None = None
        #: Whether requests may be sent.
        self.is_done = not self._is_proving
        #: Whether the other node has been recognised.
        self.is_authenticated = self.is_done and policy.names_node(evidence.certificate, node)
        if self.is_done:
            self._check()
        self._cluster_id = hello.cluster_id
        self._header = msgspec.msgpack.encode(hello)
        self._nonce = b"" if self.is_done else new_nonce()

    def begin(self) -> list[Buffer]:
        """The first frame."""
        return frame(Kind.HELLO, 0, 0, self._header, [self._nonce] if self._nonce else [])

    def received(self, arrived: Arrived) -> list[Buffer]:
        """The answer to a frame of the handshake; empty: none. Raises `RemoteProtocolError`."""
        assert not self.is_done
        if arrived.kind is Kind.CHALLENGE and self._challenge is None:
            return self._prove(arrived.header)
        if arrived.kind is not Kind.WELCOME:
            raise DecodeError(f"{arrived.kind.name} in place of the answer to a HELLO")
        self._take_welcome(_decoded(arrived, Proof))
        self.is_done = True
        self._check()
        return []

    def _prove(self, header: memoryview) -> list[Buffer]:
        challenge = bytes(header)
        theirs = _decode(challenge, Challenge)
        if theirs.node_id != self._node:
            raise RemoteProtocolError(f"it is node {theirs.node_id}")
        _check_cluster(f"node {self._node}", theirs.cluster_id, self._cluster_id)
        _check_nonce(theirs.nonce)
        self._challenge = challenge
        return _proof_frame(Kind.PROOF, self._mac(_CALLER, challenge))

    def _take_welcome(self, welcome: Proof) -> None:
        if self._challenge is None:
            # It has no secret, or demands none: its certificate may say enough.
            certificate = self._evidence.certificate
            self.is_authenticated = self._policy.names_node(certificate, self._node)
        elif hmac.compare_digest(welcome.mac, self._mac(_CALLED, self._challenge)):
            self.is_authenticated = True
        else:
            raise RemoteProtocolError("it has not proven to know the secret")

    def _mac(self, role: _Role, challenge: bytes) -> bytes:
        secret = self._policy.secrets[0]
        hello = self._header + self._nonce
        return proof_of(secret, role, hello, challenge, self._evidence.binding)

    def _check(self) -> None:
        if self._policy.authentication == "required" and not self.is_authenticated:
            missing = _missing(self._policy, self._evidence)
            raise RemoteProtocolError(f"it has not shown to be node {self._node}: {missing}")


class CalledHandshake:
    """The side of the node that has been connected to."""

    def __init__(
        self, policy: Policy, evidence: Evidence, ours: Hello, new_nonce: Callable[[], bytes]
    ) -> None:
        self._policy = policy
        self._evidence = evidence
        self._ours = ours
        self._new_nonce = new_nonce
        self._hello = b""
        self._theirs: Hello | None = None
        self._challenge = b""
        #: The id that the caller says it has, where it has to be shown.
        self.claims: int | None = None
        #: The calling node, once it is accepted.
        self.caller: Hello | None = None
        #: Whether it has been recognised, rather than accepted for what it says.
        self.is_authenticated = False

    def received(self, arrived: Arrived) -> list[Buffer]:
        """The answer to a frame of the handshake; empty: none. Raises `RemoteProtocolError`."""
        assert self.caller is None
        if self._theirs is None:
            return self._take_hello(arrived)
        if arrived.kind is not Kind.PROOF:
            raise DecodeError(f"{arrived.kind.name} in place of a PROOF")
        return self._take_proof(self._theirs, _decoded(arrived, Proof))

    def _take_hello(self, arrived: Arrived) -> list[Buffer]:
        theirs = read_hello(arrived)
        if theirs.node_id == self._ours.node_id:
            raise RemoteProtocolError(f"a peer has the id of this node, {theirs.node_id}")
        _check_cluster(f"node {theirs.node_id}", theirs.cluster_id, self._ours.cluster_id)
        policy, evidence, nonce = self._policy, self._evidence, bytes(arrived.body)
        if policy.authentication != "off":
            self.claims = theirs.node_id
        if nonce and policy.authentication != "off" and policy.secrets and evidence.binding:
            _check_nonce(nonce)
            self._theirs, self._hello = theirs, bytes(arrived.header) + nonce
            self._challenge = msgspec.msgpack.encode(
                Challenge(
                    node_id=self._ours.node_id,
                    cluster_id=self._ours.cluster_id,
                    nonce=self._new_nonce(),
                )
            )
            return frame(Kind.CHALLENGE, 0, 0, self._challenge)
        self.is_authenticated = policy.names_node(evidence.certificate, theirs.node_id)
        if policy.authentication == "required" and not self.is_authenticated:
            raise RemoteProtocolError(
                f"node {theirs.node_id} has not shown who it is: {_missing(policy, evidence)}"
            )
        self.caller = theirs
        # A node that sent no nonce, such as one of an earlier release, expects no answer.
        return _proof_frame(Kind.WELCOME, b"") if nonce else []

    def _take_proof(self, theirs: Hello, proof: Proof) -> list[Buffer]:
        for secret in self._policy.secrets:
            if hmac.compare_digest(proof.mac, self._mac(secret, _CALLER)):
                self.caller, self.is_authenticated = theirs, True
                return _proof_frame(Kind.WELCOME, self._mac(secret, _CALLED))
        raise RemoteProtocolError(f"node {theirs.node_id} has not proven to know the secret")

    def _mac(self, secret: bytes, role: _Role) -> bytes:
        return proof_of(secret, role, self._hello, self._challenge, self._evidence.binding)


def _missing(policy: Policy, evidence: Evidence) -> str:
    """What the other node would have to show, in the words of the settings."""
    if policy.secrets and not evidence.binding:
        return "the secret is proven inside TLS 1.3 only"
    if evidence.certificate is not None:
        return f"its certificate ({evidence.certificate.subject}) names no such node"
    if policy.secrets:
        return "it has offered no proof of the secret"
    return "it has no certificate of a node"


def _check_cluster(who: str, theirs: str, ours: str) -> None:
    # A node that has not joined a cluster yet knows no id.
    if theirs and ours and theirs != ours:
        raise RemoteProtocolError(f"{who} belongs to cluster {theirs}, this one to {ours}")


def _check_nonce(nonce: bytes) -> None:
    if len(nonce) != PEER_NONCE_BYTES:
        raise DecodeError(f"a nonce of {len(nonce)} bytes from another node")


def _proof_frame(kind: Kind, mac: bytes) -> list[Buffer]:
    return frame(kind, 0, 0, msgspec.msgpack.encode(Proof(mac=mac)))


def _decoded(arrived: Arrived, kind: type[_Message]) -> _Message:
    return _decode(bytes(arrived.header), kind)


def _decode(data: bytes, kind: type[_Message]) -> _Message:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except MALFORMED as error:
        raise DecodeError(f"not a {kind.__name__} of another node: {error}") from None
