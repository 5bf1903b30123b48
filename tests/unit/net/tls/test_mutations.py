"""Goal: whatever a peer changes, cuts, repeats or mixes into its bytes, nothing is raised, nothing
wrong is passed on, and all memory comes back.

Method: a real client's bytes with seeded changes, in pieces of any size, before and after the end
of the handshake.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from worlds.tls import MemoryPeer, TlsFiles, TlsRig, client_context, server_context

CASES = 60
REQUEST = bytes(range(256)) * 40


def mutated(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 1:
                del changed[at : at + random.randrange(1, 50)]
            case 2:
                changed[at:at] = random.randbytes(random.randrange(1, 50))
            case 3:
                changed[at:at] = changed[at : at + 200]
            case _:
                del changed[at:]
    return bytes(changed)


@pytest.mark.parametrize("newest", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("is_optional", [False, True])
def test_changed_bytes_do_no_harm(tmp_path: Path, newest: str, is_optional: bool) -> None:
    files = TlsFiles(tmp_path)
    random = Random(newest)
    rig = TlsRig(server_context(files, ssl.CERT_OPTIONAL))
    rig.allows_plaintext = is_optional
    context = client_context(files, files.client("alice"), newest)
    for _ in range(CASES):
        connected, peer = rig.connect(), MemoryPeer(context)
        victim = random.randrange(4)
        with suppress(ssl.SSLError):
            flight = peer.handshake()
            for turn in range(6):
                if not flight or connected.transport.is_closed:
                    break
                sent = mutated(flight, random) if turn == victim else flight
                connected.receive(sent, at_once=random.randrange(1, 2000))
                flight = peer.handshake(connected.take())
            if connected.above.calls == ["made"] and connected.transport.protocol is None:
                data = peer.encrypt(REQUEST) + peer.end()
                connected.receive(mutated(data, random), at_once=random.randrange(1, 20_000))
                # A record is passed on whole and as it was, or not at all.
                assert REQUEST.startswith(connected.above.received[: len(REQUEST)])
        if not connected.transport.is_closed:
            protocol = connected.transport.protocol or connected.connection
            with suppress(AttributeError):
                protocol.eof_received()
            connected.transport.abort()
    assert (rig.handshakes.count, rig.handshakes.held_bytes, rig.budget.used) == (0, 0, 0)
