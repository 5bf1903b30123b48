"""Goal: new handshakes use the files as they are now, and never a pair that cannot be used.

Method: real files in a directory of the test; the clock is the test's.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import msgspec
import pytest

from dragoman.certificates import write_pair
from dragoman.config.settings import TlsOptions
from dragoman.errors import ConfigError
from dragoman.limits import TLS_FILE_BYTES_MAX, TLS_FILES_CHECK_INTERVAL_S
from dragoman.net.tls.contexts import TlsContexts, make_context
from dragoman.operating_system import RealPlainFiles, SystemClock
from dragoman.testing.sim.scheduler import SimScheduler
from worlds.tls import (
    MemoryPeer,
    TlsFiles,
    TlsRig,
    authority,
    client_context,
)


class Node:
    """A listener whose options and files change."""

    def __init__(self, directory: Path) -> None:
        self.files = TlsFiles(directory)
        self.scheduler = SimScheduler()
        self.options = TlsOptions(
            certificate_file=self.files.certificate,
            key_file=self.files.key,
            ca_file=self.files.ca,
        )
        self.contexts = TlsContexts(RealPlainFiles(), SystemClock(), self.scheduler)
        self.contexts.watch()
        self.listener = self.contexts.of("kafka-tls", lambda: self.options)

    def change(self, **fields: object) -> None:
        self.options = msgspec.structs.replace(self.options, **fields)

    def pass_time(self) -> None:
        self.scheduler.advance(TLS_FILES_CHECK_INTERVAL_S + 1)

    def served(self) -> str:
        """Host names in the certificate that a client gets."""
        rig = TlsRig(self.listener.current())
        context = client_context(self.files)
        context.check_hostname = False
        context.load_verify_locations(cadata=authority("second").pair.certificate.decode())
        peer = MemoryPeer(context)
        rig.connect().shake_hands(peer)
        certificate = peer.tls.getpeercert()
        assert certificate is not None
        return ",".join(name for _, name in certificate["subjectAltName"])

    def replace(self, *hosts: str, name: str = "first", days: float = 5) -> None:
        write_pair(str(self.files.directory), "server", authority(name).server(hosts, days=days))

    def takes(self, pair: tuple[str, str] | None) -> bool:
        rig = TlsRig(self.listener.current())
        connected, peer = rig.connect(), MemoryPeer(client_context(self.files_of_first, pair))
        try:
            connected.shake_hands(peer)
        except ssl.SSLError:
            return False
        return connected.above.calls == ["made"]

    @property
    def files_of_first(self) -> TlsFiles:
        other = self.files.directory / "first"
        other.mkdir(exist_ok=True)
        return TlsFiles(other)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_replaced_pair_is_used_for_new_handshakes(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.listener.load()
    assert node.served() == "localhost,127.0.0.1"
    node.replace("new.example")
    assert node.served() == "localhost,127.0.0.1"
    with caplog.at_level(logging.INFO, "dragoman.net"):
        node.pass_time()
    assert node.served() == "new.example"
    assert caplog.messages == ["listener kafka-tls: new certificates are in use"]
    before = node.listener.current()
    node.pass_time()
    assert node.listener.current() is before


def test_reload_does_not_wait_for_the_check(node: Node) -> None:
    node.listener.load()
    node.replace("new.example")
    node.contexts.reload()
    assert node.served() == "new.example"


def test_removed_authority_no_longer_counts(node: Node) -> None:
    node.files.write_ca("first", "second")
    node.change(client_certificates="required")
    node.listener.load()
    alice, bob = node.files.client("alice"), node.files.client("bob", name="second")
    assert node.takes(alice)
    assert node.takes(bob)
    node.files.write_ca("first")
    node.pass_time()
    assert node.takes(alice)
    assert not node.takes(bob)
    assert not node.takes(None)


def test_files_of_a_listener_without_tls_are_not_looked_at(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    broken(node, "garbage")
    node.pass_time()
    node.contexts.reload()
    assert caplog.messages == []
    assert node.contexts.states() == []


def test_states_name_the_certificate_and_what_is_wrong_with_its_files(node: Node) -> None:
    node.listener.load()
    (state,) = node.contexts.states()
    assert (state.listener, state.subject, state.problem) == ("kafka-tls", "CN=localhost", "")
    assert state.expires_ms > SystemClock().wall_ms()
    broken(node, "expired")
    node.contexts.reload()
    (state,) = node.contexts.states()
    assert state.subject == "CN=localhost"
    assert "has expired" in state.problem
    node.replace("localhost")
    node.contexts.reload()
    assert node.contexts.states()[0].problem == ""


def test_changed_options_count_at_once(node: Node) -> None:
    node.listener.load()
    assert node.takes(None)
    node.change(client_certificates="required")
    assert not node.takes(None)
    node.change(client_certificates="requested")
    assert node.takes(None)


def broken(node: Node, how: str) -> None:
    certificate, key = Path(node.files.certificate), Path(node.files.key)
    match how:
        case "mismatch":
            certificate.write_bytes(authority().server(["other.example"]).certificate)
        case "garbage":
            certificate.write_bytes(b"\x00\xff garbage")
        case "garbage key":
            key.write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
        case "empty":
            certificate.write_bytes(b"")
        case "missing":
            key.unlink()
        case "directory":
            key.unlink()
            key.mkdir()
        case "expired":
            node.replace("old.example", days=-1)
        case "huge":
            certificate.write_bytes(certificate.read_bytes() + b"\n" * TLS_FILE_BYTES_MAX)
        case "garbage authorities":
            (node.files.directory / "clients.pem").write_bytes(b"none")
            clients = str(node.files.directory / "clients.pem")
            node.change(client_certificates="required", ca_file=clients)
        case "cipher":
            node.change(cipher_suites=("NO-SUCH-CIPHER",))


BROKEN = {
    "mismatch": "is not that of the certificate",
    "garbage": "no certificate in PEM",
    "garbage key": "no key in PEM",
    "empty": "no certificate in PEM",
    "missing": "cannot read",
    "directory": "cannot read",
    "expired": "has expired on",
    "huge": "larger than",
    "garbage authorities": "no certificates in PEM",
    "cipher": "knows none of NO-SUCH-CIPHER",
}


@pytest.mark.parametrize("how", BROKEN)
def test_files_that_cannot_be_used_are_reported_once_and_not_used(
    node: Node, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    node.listener.load()
    broken(node, how)
    node.pass_time()
    node.pass_time()
    assert node.served() == "localhost,127.0.0.1"
    (message,) = caplog.messages
    assert message.startswith("listener kafka-tls: ssl.")
    assert BROKEN[how] in message
    assert message.endswith("; new connections keep the ones before")
    node.change(cipher_suites=(), client_certificates="none")
    Path(node.files.key).rmdir() if how == "directory" else None
    node.replace("mended.example")
    node.pass_time()
    assert node.served() == "mended.example"


@pytest.mark.parametrize("how", BROKEN)
def test_node_does_not_start_with_files_that_cannot_be_used(node: Node, how: str) -> None:
    broken(node, how)
    with pytest.raises(ConfigError, match=f"^listener kafka-tls: .*{BROKEN[how]}"):
        node.listener.load()
    assert node.listener.current() is None


def test_certificate_of_tomorrow_is_not_used(node: Node) -> None:
    with pytest.raises(ConfigError, match="valid only from"):
        make_context(node.options, RealPlainFiles(), now_ms=0)


def test_key_with_a_password_is_refused_without_a_question(node: Node) -> None:
    from cryptography.hazmat.primitives import serialization as s

    key = s.load_pem_private_key(Path(node.files.key).read_bytes(), None)
    locked = key.private_bytes(
        s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"secret")
    )
    Path(node.files.key).write_bytes(locked)
    with pytest.raises(ConfigError, match="has a password"):
        node.listener.load()


def test_key_may_be_in_the_certificates_file(node: Node) -> None:
    both = Path(node.files.certificate).read_bytes() + Path(node.files.key).read_bytes()
    Path(node.files.certificate).write_bytes(both)
    node.change(key_file="")
    assert node.served() == "localhost,127.0.0.1"


def test_cipher_suites_are_those_of_the_settings(node: Node) -> None:
    node.change(cipher_suites=("ECDHE-ECDSA-AES256-GCM-SHA384",))
    rig = TlsRig(node.listener.current())
    peer = MemoryPeer(client_context(node.files, newest="TLSv1_2"))
    rig.connect().shake_hands(peer)
    cipher = peer.tls.cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
