"""A server that stands in for PostgreSQL and asks for passwords in clear gets none.

The node has a password file that fits every server, and a password in its environment, as the
attacker of a real one hopes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman.captures.addresses import NO_FILE
from dragoman.captures.control import Finding
from dragoman.captures.definition import Definition
from dragoman.captures.kafka_access import KafkaAccess
from dragoman.captures.processes import CaptureProcesses
from dragoman.errors import DragomanError

SECRET = "hunter2-of-the-node"
OWN = "hunter2-of-the-caller"
_CLEAR, _MD5 = 3, 5


class FakePostgres:
    """Refuses TLS, then asks for a password; everything that comes is kept."""

    def __init__(self, method: int) -> None:
        self.received = b""
        self.port = 0
        self._method = method

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                startup = await reader.readexactly(size - 4)
                self.received += startup
                if size != 8:
                    break
                writer.write(b"N")
            salt = b"salt" if self._method == _MD5 else b""
            writer.write(b"R" + struct.pack(">ii", 8 + len(salt), self._method) + salt)
            self.received += await reader.read(1000)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def fake_postgres(method: int) -> AsyncIterator[FakePostgres]:
    fake = FakePostgres(method)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    async with server:
        yield fake


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    passwords = tmp_path / ".pgpass"
    passwords.write_text(f"*:*:*:*:{SECRET}\n")
    passwords.chmod(0o600)
    (tmp_path / ".pg_service.conf").write_text(f"[prod]\nhost=127.0.0.1\npassword={SECRET}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    return tmp_path


async def look(tmp_path: Path, dsn: str) -> tuple[Finding, ...]:
    """As a node looks at a database for a client of its HTTP API."""
    loop = asyncio.get_running_loop()
    processes = CaptureProcesses(
        loop, lambda: KafkaAccess("127.0.0.1:1"), str(tmp_path / "spool"), str, lambda _: None
    )
    found: asyncio.Future[tuple[Finding, ...] | DragomanError] = loop.create_future()
    processes.check(Definition(name="spy", dsn=dsn, tables=("t",))).then(found.set_result)
    answer = await found
    await processes.closed()
    assert not isinstance(answer, DragomanError), answer
    return answer


@pytest.mark.parametrize("method", [_CLEAR, _MD5], ids=["clear", "md5"])
@pytest.mark.parametrize("own", ["", f"password={OWN}", "passfile={home}/.pgpass"])
async def test_no_password_is_given_away(home: Path, tmp_path: Path, method: int, own: str) -> None:
    async with fake_postgres(method) as fake:
        dsn = f"host=127.0.0.1 port={fake.port} user=app dbname=shop {own.format(home=home)}"
        (finding,) = await look(tmp_path, dsn)
    assert b"user\0app\0" in fake.received
    assert SECRET.encode() not in fake.received
    assert OWN.encode() not in fake.received
    assert b"md5" not in fake.received
    assert finding.level == "problem"
    assert "in a way that reveals it" in finding.what
    assert "scram-sha-256" in finding.remedy
    assert OWN not in finding.what + finding.remedy


async def test_neither_hostaddr_nor_service_leads_to_another_server(
    home: Path, tmp_path: Path
) -> None:
    async with fake_postgres(_CLEAR) as fake:
        for dsn in (
            f"host=prod-db hostaddr=127.0.0.1 port={fake.port} user=app",
            f"postgresql://app@prod-db:{fake.port}/shop?hostaddr=127.0.0.1",
            f"service=prod port={fake.port}",
        ):
            (finding,) = await look(tmp_path, dsn)
            assert finding.level == "problem"
            assert finding.remedy
    assert fake.received == b""
    assert home == tmp_path


@pytest.mark.parametrize("named", ["passfile=/dev/zero", "sslrootcert=/dev/zero", "sslcrl=/absent"])
async def test_what_is_no_plain_file_is_not_read(tmp_path: Path, named: str) -> None:
    (finding,) = await look(tmp_path, f"host=127.0.0.1 port=1 {named}")
    assert finding.what.startswith(f"the DSN's {named.partition('=')[0]} ")


def test_no_file_never_exists() -> None:
    assert not Path(NO_FILE).exists()
