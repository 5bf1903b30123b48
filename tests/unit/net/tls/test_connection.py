"""Goal: the protocol above a TLS connection sees what a plain connection would show it, and a peer
that is slow, broken or hostile costs a bounded amount and is told why.

Method: OpenSSL's client in memory, a transport that the test reads, and virtual time.
"""

from __future__ import annotations

import logging
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from dragoman.limits import TLS_HANDSHAKE_BYTES_MAX, TLS_HANDSHAKE_S_MAX
from worlds.tls import (
    Connected,
    MemoryPeer,
    TlsFiles,
    TlsRig,
    client_context,
    client_pair,
    server_context,
)

VERSIONS = ("TLSv1_2", "TLSv1_3")


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


@pytest.fixture
def rig(files: TlsFiles) -> TlsRig:
    return TlsRig(server_context(files))


def opened(rig: TlsRig, files: TlsFiles, newest: str = "TLSv1_3") -> tuple[Connected, MemoryPeer]:
    connected, peer = rig.connect(), MemoryPeer(client_context(files, newest=newest))
    connected.shake_hands(peer)
    assert connected.above.calls == ["made"]
    return connected, peer


# ---- the handshake


@pytest.mark.parametrize("newest", VERSIONS)
@pytest.mark.parametrize("at_once", [1, 100, 1 << 16])
def test_records_go_both_ways_however_they_are_cut(
    rig: TlsRig, files: TlsFiles, newest: str, at_once: int
) -> None:
    connected, peer = rig.connect(), MemoryPeer(client_context(files, newest=newest))
    connected.shake_hands(peer, at_once)
    assert peer.tls.version() == newest.replace("_", ".")
    question = bytes(range(256)) * 200
    connected.receive(peer.encrypt(question), at_once=at_once * 7)
    assert connected.above.received == question
    answer = b"answer" * 10_000
    assert connected.above.transport is not None
    connected.above.transport.writelines([answer, b"", memoryview(b"the end")])
    assert peer.decrypt(connected.take()) == answer + b"the end"
    assert (rig.handshakes.completed, rig.handshakes.failed, rig.handshakes.count) == (1, 0, 0)
    assert rig.budget.used == 0


def test_protocol_above_is_made_when_the_handshake_is_complete(
    rig: TlsRig, files: TlsFiles
) -> None:
    connected, peer = rig.connect(), MemoryPeer(client_context(files))
    connected.receive(peer.handshake())
    finished = peer.handshake(connected.take())
    assert connected.above.calls == []
    assert rig.counted == [("10.0.0.9", True)]
    # The first request comes with the end of the handshake.
    connected.receive(finished + peer.encrypt(b"request"))
    assert connected.above.calls == ["made"]
    assert connected.above.received == b"request"
    assert rig.counted == [("10.0.0.9", True), ("10.0.0.9", False)]
    transport = connected.above.transport
    assert transport is not None
    assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert transport.get_extra_info("peername") == ("10.0.0.9", 5)


def test_version_before_1_2_is_refused_with_an_alert(rig: TlsRig, files: TlsFiles) -> None:
    connected = rig.connect()
    hello = bytearray(MemoryPeer(client_context(files, newest="TLSv1_2")).handshake())
    # The client's newest version: 1.1.
    hello[9:11] = b"\x03\x02"
    connected.receive(bytes(hello))
    assert connected.transport.is_closed
    assert connected.above.calls == []
    alert = 0x15
    assert connected.take()[0] == alert


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x00", "does not begin with TLS"),
        (b"\x00\x00\x00\x10\x00\x12\x00\x03", "does not begin with TLS"),
        (b"GET / HTTP/1.1\r\n", "does not begin with TLS"),
        (b"\x16\x02\x01", "does not begin with TLS"),
        (b"\x16\x03\x01\x00\x00", "hello is malformed"),
        (b"\x16\x03\x01\xff\xff", "hello is malformed"),
        (b"\x16\x03\x01\x00\x04abcd", "TLS: "),
        (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00" + b"\x17" * 500, "TLS: "),
    ],
)
def test_garbage_is_closed_at_once_with_one_line(
    rig: TlsRig, first: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    connected = rig.connect()
    with caplog.at_level(logging.INFO, "dragoman.net"):
        connected.receive(first)
    assert connected.transport.is_closed
    assert len(caplog.records) == 1
    assert reason in caplog.text
    assert caplog.text.count("closing 10.0.0.9:5") == 1
    assert (rig.handshakes.failed, rig.handshakes.count, rig.budget.used) == (1, 0, 0)
    assert rig.counted[-1] == ("10.0.0.9", False)


def test_every_cut_of_a_hello_waits_and_then_times_out(rig: TlsRig, files: TlsFiles) -> None:
    hello = MemoryPeer(client_context(files)).handshake()
    cut = [rig.connect() for _ in range(0, len(hello), 16)]
    for number, connected in enumerate(cut):
        connected.receive(hello[: number * 16])
        assert not connected.transport.is_closed
    assert rig.budget.used == sum(number * 16 for number in range(len(cut)))
    rig.scheduler.advance(TLS_HANDSHAKE_S_MAX + 1)
    assert all(each.transport.is_closed for each in cut)
    assert (rig.handshakes.count, rig.budget.used) == (0, 0)


def test_handshake_that_is_not_answered_times_out(rig: TlsRig, files: TlsFiles) -> None:
    connected = rig.connect()
    connected.receive(MemoryPeer(client_context(files)).handshake())
    assert rig.handshakes.held_bytes == rig.budget.used > 0
    rig.scheduler.advance(TLS_HANDSHAKE_S_MAX - 1)
    assert not connected.transport.is_closed
    later = rig.connect()
    rig.scheduler.advance(2)
    assert connected.transport.is_closed
    assert not later.transport.is_closed
    assert rig.budget.used == 0
    rig.scheduler.advance(TLS_HANDSHAKE_S_MAX)
    assert later.transport.is_closed


def test_handshake_of_too_many_bytes_is_closed(rig: TlsRig, files: TlsFiles) -> None:
    connected = rig.connect()
    connected.receive_now(MemoryPeer(client_context(files)).handshake())
    rig.scheduler.run_ready()
    # The begin of a message of 16 MB. Nothing of it is looked at until the loop turn ends.
    data = b"\x16\x03\x03\x40\x00\x0b\xff\xff\xff" + bytes((1 << 14) - 4)
    taken = 0
    while connected.transport.is_reading:
        taken += connected.receive_now(data)
    assert taken < TLS_HANDSHAKE_BYTES_MAX
    rig.scheduler.run_ready()
    assert connected.transport.is_closed
    assert rig.budget.used == 0


@pytest.mark.parametrize("at_once", [1 << 10, 1 << 16])
def test_large_request_may_follow_the_handshake_at_once(
    rig: TlsRig, files: TlsFiles, at_once: int
) -> None:
    connected, peer = rig.connect(), MemoryPeer(client_context(files))
    connected.receive(peer.handshake())
    request = bytes(range(256)) * 1024
    unread = peer.handshake(connected.take()) + peer.encrypt(request)
    while unread:
        # As much as is read before the next step of the handshake.
        while unread and connected.transport.is_reading:
            unread = unread[connected.receive_now(unread[:at_once]) :]
        rig.scheduler.run_ready()
        assert not connected.transport.is_closed
    assert connected.above.received == request
    assert rig.budget.used == 0


def test_connection_beyond_the_bounds_is_refused(
    rig: TlsRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.refusal = "max.connections is 3"
    connected = rig.connect()
    assert connected.transport.is_closed
    assert rig.counted == []
    assert "refusing 10.0.0.9:5: max.connections is 3" in caplog.text


def test_listener_without_a_certificate_closes(rig: TlsRig, files: TlsFiles) -> None:
    rig.context = None
    connected = rig.connect()
    connected.receive(MemoryPeer(client_context(files)).handshake())
    assert connected.transport.is_closed


def test_peer_that_leaves_in_the_middle_frees_everything(rig: TlsRig, files: TlsFiles) -> None:
    for size in (0, 3, 100, 10_000):
        connected = rig.connect()
        connected.receive(MemoryPeer(client_context(files)).handshake()[:size])
        assert connected.connection.eof_received() is False
        connected.transport.close()
    assert (rig.handshakes.count, rig.budget.used) == (0, 0)
    assert rig.handshakes.failed == 4


# ---- plaintext, where it is allowed


@pytest.mark.parametrize("cut", [1, 2, 4, 100])
def test_other_bytes_go_to_the_protocol_without_this_layer(rig: TlsRig, cut: int) -> None:
    rig.allows_plaintext = True
    connected = rig.connect()
    request = b"\x00\x00\x00\x20" + bytes(range(32))
    connected.receive(request, at_once=cut)
    assert connected.above.received == request
    assert connected.above.transport is connected.transport
    assert (rig.handshakes.count, rig.budget.used) == (0, 0)
    assert (rig.handshakes.completed, rig.handshakes.failed) == (0, 0)
    assert rig.counted == [("10.0.0.9", True), ("10.0.0.9", False)]


def test_one_byte_that_may_begin_tls_waits_for_the_second(rig: TlsRig) -> None:
    rig.allows_plaintext = True
    connected = rig.connect()
    connected.receive(b"\x16")
    assert connected.above.calls == []
    connected.receive(b"\x00x")
    assert connected.above.received == b"\x16\x00x"


def test_tls_is_served_beside_plaintext(rig: TlsRig, files: TlsFiles) -> None:
    rig.allows_plaintext = True
    connected, peer = opened(rig, files)
    connected.receive(peer.encrypt(b"secret"))
    assert connected.above.received == b"secret"


# ---- clients' certificates


def certified(
    files: TlsFiles, pair: tuple[str, str] | None, clients: ssl.VerifyMode, newest: str
) -> tuple[Connected, Exception | None]:
    """What becomes of a client with this pair, and what it learns."""
    rig = TlsRig(server_context(files, clients))
    connected, peer = rig.connect(), MemoryPeer(client_context(files, pair, newest))
    try:
        connected.shake_hands(peer)
        peer.decrypt(connected.take())
    except ssl.SSLError as error:
        return connected, error
    return connected, None


@pytest.mark.parametrize("newest", VERSIONS)
def test_certificate_of_the_authority_is_taken(files: TlsFiles, newest: str) -> None:
    connected, error = certified(files, files.client("alice"), ssl.CERT_REQUIRED, newest)
    assert error is None
    transport = connected.above.transport
    assert transport is not None
    certificate = transport.get_extra_info("certificate")
    assert certificate.subject == "CN=alice"
    der = ssl.PEM_cert_to_DER_cert(client_pair("alice", 10, "first").certificate.decode())
    assert len(certificate.digest) == 32
    assert transport.get_extra_info("ssl_object").getpeercert(True) == der


@pytest.mark.parametrize("newest", VERSIONS)
@pytest.mark.parametrize("which", ["none", "foreign", "expired", "removed"])
def test_missing_foreign_or_expired_certificate_is_refused(
    files: TlsFiles, newest: str, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = {
        "none": None,
        "foreign": files.client("eve", name="foreign"),
        "expired": files.client("old", days=-1),
        # A certificate of an authority that is no longer trusted.
        "removed": files.client("alice"),
    }[which]
    if which == "removed":
        files.write_ca("foreign")
    context = client_context(files, pair, newest)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    rig = TlsRig(server_context(files, ssl.CERT_REQUIRED))
    connected, peer = rig.connect(), MemoryPeer(context)
    caplog.set_level(logging.INFO, "dragoman.net")
    # With TLS 1.3 the client learns of the refusal behind its handshake.
    with suppress(ssl.SSLError):
        connected.shake_hands(peer)
    assert connected.transport.is_closed
    assert connected.above.calls == []
    assert caplog.text.count("TLS: ") == 1


def test_requested_certificate_may_be_missing_but_not_wrong(files: TlsFiles) -> None:
    connected, error = certified(files, None, ssl.CERT_OPTIONAL, "TLSv1_3")
    assert error is None
    assert connected.above.transport is not None
    assert connected.above.transport.get_extra_info("certificate") is None
    foreign = files.client("eve", name="foreign")
    assert certified(files, foreign, ssl.CERT_OPTIONAL, "TLSv1_3")[1] is not None


@pytest.mark.parametrize("newest", VERSIONS)
def test_session_is_resumed_until_its_certificate_expires(files: TlsFiles, newest: str) -> None:
    rig = TlsRig(server_context(files, ssl.CERT_REQUIRED))
    context = client_context(files, files.client("alice"), newest)
    first, again = rig.connect(), rig.connect()
    peer = MemoryPeer(context)
    first.shake_hands(peer)
    resumed = MemoryPeer(context, peer.tls.session)
    again.shake_hands(resumed)
    assert resumed.tls.session_reused
    assert again.above.transport is not None
    assert again.above.transport.get_extra_info("certificate").subject == "CN=alice"
    rig.wall_ms = 1 << 50
    late = rig.connect()
    late.shake_hands(MemoryPeer(context, peer.tls.session))
    assert late.transport.is_closed
    assert late.above.calls == []


# ---- reading


def test_pause_stops_in_the_middle_of_what_has_arrived(rig: TlsRig, files: TlsFiles) -> None:
    connected, peer = opened(rig, files)
    above = connected.above
    assert above.transport is not None
    above.buffer = bytearray(1000)
    above.on_read = above.transport.pause_reading
    data = bytes(range(256)) * 200
    connected.receive(peer.encrypt(data))
    assert above.reads == [1000]
    assert not connected.transport.is_reading
    assert 0 < rig.budget.used < len(data) + 1000
    # What the loop had read before it was paused.
    connected.receive(peer.encrypt(b"more"))
    assert above.reads == [1000]
    above.on_read = lambda: None
    above.transport.resume_reading()
    assert above.reads == [1000]
    rig.scheduler.run_ready()
    assert above.received == data + b"more"
    assert connected.transport.is_reading
    assert rig.budget.used == 0


def test_pause_and_resume_in_any_order_keep_the_transport_in_step(
    rig: TlsRig, files: TlsFiles
) -> None:
    connected, peer = opened(rig, files)
    transport = connected.above.transport
    assert transport is not None
    transport.pause_reading()
    transport.pause_reading()
    transport.resume_reading()
    transport.pause_reading()
    rig.scheduler.run_ready()
    assert not connected.transport.is_reading
    transport.resume_reading()
    transport.resume_reading()
    rig.scheduler.run_ready()
    assert connected.transport.is_reading
    connected.receive(peer.encrypt(b"x"))
    assert connected.above.received == b"x"


def test_connection_lost_while_paused_returns_its_memory(rig: TlsRig, files: TlsFiles) -> None:
    connected, peer = opened(rig, files)
    assert connected.above.transport is not None
    connected.above.transport.pause_reading()
    connected.receive(peer.encrypt(bytes(30_000)))
    assert rig.budget.used > 30_000
    connected.transport.abort()
    assert rig.budget.used == 0
    assert connected.above.calls == ["made", "lost"]


def test_bytes_that_are_no_records_close_the_connection(
    rig: TlsRig, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    connected, peer = opened(rig, files)
    record = bytearray(peer.encrypt(b"request"))
    record[-1] ^= 1
    with caplog.at_level(logging.INFO, "dragoman.net"):
        connected.receive(bytes(record))
    assert connected.transport.is_closed
    assert connected.above.received == b""
    assert connected.above.calls == ["made", "lost"]
    assert "TLS: " in caplog.text


def test_another_hello_on_an_open_connection_closes_it(rig: TlsRig, files: TlsFiles) -> None:
    connected, _ = opened(rig, files, "TLSv1_2")
    connected.receive(MemoryPeer(client_context(files)).handshake())
    assert connected.transport.is_closed
    assert rig.handshakes.completed == 1


# ---- the end


@pytest.mark.parametrize("newest", VERSIONS)
def test_peers_close_notify_is_a_half_close(rig: TlsRig, files: TlsFiles, newest: str) -> None:
    connected, peer = opened(rig, files, newest)
    connected.receive(peer.encrypt(b"last") + peer.end())
    assert connected.above.received == b"last"
    assert connected.above.calls == ["made", "eof"]
    assert not connected.transport.is_closed
    assert connected.above.transport is not None
    connected.above.transport.write(b"reply")
    assert len(connected.transport.sent) > len(b"reply")
    # Its FIN follows.
    assert connected.connection.eof_received() is True
    assert connected.above.calls == ["made", "eof"]


def test_end_without_close_notify_still_gets_its_replies(rig: TlsRig, files: TlsFiles) -> None:
    connected, peer = opened(rig, files)
    connected.receive(peer.encrypt(b"last"))
    assert connected.connection.eof_received() is True
    assert connected.above.calls == ["made", "eof"]
    assert connected.above.transport is not None
    connected.above.transport.write(b"reply")
    connected.above.transport.close()
    assert peer.decrypt(connected.take()) == b"reply"


def test_end_that_the_protocol_does_not_outlive_closes(rig: TlsRig, files: TlsFiles) -> None:
    connected, peer = opened(rig, files)
    connected.above.stays_open = False
    connected.receive(peer.end())
    assert connected.transport.is_closed
    assert connected.above.calls == ["made", "eof", "lost"]


def test_end_waits_for_the_bytes_before_it(rig: TlsRig, files: TlsFiles) -> None:
    connected, peer = opened(rig, files)
    transport = connected.above.transport
    assert transport is not None
    transport.pause_reading()
    connected.receive(peer.encrypt(b"last"))
    connected.connection.eof_received()
    assert connected.above.calls == ["made"]
    transport.resume_reading()
    rig.scheduler.run_ready()
    assert connected.above.received == b"last"
    assert connected.above.calls == ["made", "eof"]


@pytest.mark.parametrize("newest", VERSIONS)
def test_close_sends_what_waits_and_says_that_it_is_all(
    rig: TlsRig, files: TlsFiles, newest: str
) -> None:
    connected, peer = opened(rig, files, newest)
    transport = connected.above.transport
    assert transport is not None
    connected.transport.is_stuck = True
    transport.write(b"reply")
    transport.close()
    transport.close()
    assert transport.is_closing()
    transport.write(b"too late")
    assert connected.above.calls == ["made"]
    connected.transport.take()
    assert peer.decrypt(connected.take()) == b"reply"
    # The end that close_notify makes; a cut raises.
    assert peer.tls.read(1) == b""


def test_abort_is_at_once(rig: TlsRig, files: TlsFiles) -> None:
    connected, _ = opened(rig, files)
    assert connected.above.transport is not None
    connected.above.transport.abort()
    assert connected.above.calls == ["made", "lost"]
    assert connected.above.transport.is_closing()
    assert connected.above.transport.get_write_buffer_size() == 0


def test_slow_reader_pauses_the_protocol_above(rig: TlsRig, files: TlsFiles) -> None:
    connected, peer = opened(rig, files)
    transport = connected.above.transport
    assert transport is not None
    transport.set_write_buffer_limits(high=10_000)
    connected.transport.is_stuck = True
    transport.write(bytes(50_000))
    assert connected.above.calls == ["made", "pause"]
    assert transport.get_write_buffer_size() > 50_000
    connected.transport.take()
    assert connected.above.calls == ["made", "pause", "resume"]
    assert peer.decrypt(connected.take()) == bytes(50_000)
