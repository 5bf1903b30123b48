"""Those who are not prepared, or mean harm: clients without what is demanded, and false nodes."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from chaos.clients import KAFKA_TOPIC
from dragoman.net.peer_frames import Kind
from dragoman.net.peer_handshake import Proof, proof_of
from nodes.peer_caller import PeerCaller, hello

_PATIENCE_MS = 8_000
_PATIENCE_S = 30.0


class Stranger:
    """A stock producer that is told nothing of what the cluster demands by now."""

    def __init__(self, bootstrap: str, security: Mapping[str, str]) -> None:
        self._complaints: list[str] = []
        self._answers: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.timeout.ms": _PATIENCE_MS,
                "log_level": 0,
                "error_cb": lambda error: self._complaints.append(error.name()),
                **security,
            }
        )

    def write(self) -> str:
        """Write a record. Returns the class of its error, and those reported beside it; empty: the
        record is acknowledged.
        """
        self._producer.produce(KAFKA_TOPIC, b"stranger", partition=0, on_delivery=self._delivered)
        assert not self._producer.flush(_PATIENCE_S), "a stranger's record is not answered"
        answer = self._answers.pop()
        return " ".join(dict.fromkeys([answer, *self._complaints])) if answer else ""

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._answers.append(error.name() if error else "")


def refusal_of_node(
    address: str, tls: ssl.SSLContext | None, node: int, cluster_id: str, nonce: bytes = b""
) -> str:
    """Why a node at that address does not take a caller for this node; `closed` without a word."""
    try:
        with PeerCaller(address, tls) as caller:
            with suppress(OSError):
                caller.send(Kind.HELLO, hello(node, cluster_id), nonce)
                # A request, in case the caller is taken.
                caller.send(Kind.REQUEST, b"\x80", number=1)
            answer = caller.answer()
            assert answer is None or answer[0] is Kind.REFUSAL, f"node {node} was taken: {answer}"
            return "closed" if answer is None else answer[1].decode()
    except (OSError, ssl.SSLError) as error:
        return f"closed ({type(error).__name__})"


def refusal_of_replay(
    address: str, tls: ssl.SSLContext, node: int, cluster_id: str, secret: bytes
) -> str:
    """Prove the secret once, then send the same bytes again on another connection."""
    nonce, greeting = b"n" * 32, hello(node, cluster_id)
    with PeerCaller(address, tls) as first:
        first.send(Kind.HELLO, greeting, nonce)
        kind, challenge = first.answer() or (None, b"")
        assert kind is Kind.CHALLENGE, kind
        mac = proof_of(secret, b"caller", greeting + nonce, challenge, first.binding)
        proof = msgspec.msgpack.encode(Proof(mac=mac))
        first.send(Kind.PROOF, proof)
        assert (first.answer() or (None,))[0] is Kind.WELCOME
    with PeerCaller(address, tls) as again:
        again.send(Kind.HELLO, greeting, nonce)
        assert (again.answer() or (None,))[0] is Kind.CHALLENGE
        again.send(Kind.PROOF, proof)
        kind, why = again.answer() or (None, b"")
        assert kind in (Kind.REFUSAL, None), kind
        return why.decode() or "closed"
