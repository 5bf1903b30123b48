"""Goal: a node whose listeners require logins is administered from its own machine and, with
credentials, over the network.

Method: nodes as processes, the command line and plain HTTP; everything on loopback.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.certificates import Authority
from dragoman.cli.main import main
from nodes.process import ServedNode

FIRST = """
[[users]]
name = "admin"
password = "correct horse"

[[users]]
name = "guest"
password = "guest's own"

[[rules]]
principal = "User:admin"
operation = "all"
resource = "cluster"

[[rules]]
principal = "User:admin"
operation = "all"
resource = "topic"
"""


def written(path: Path, text: str | bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


class Locked:
    """A node that demands logins of its HTTP listeners, one of them with TLS."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        authority = Authority.create()
        self.ca = written(root / "ca.pem", authority.pair.certificate)
        pair = authority.server(["127.0.0.1"])
        self._certificate = written(root / "node.pem", pair.certificate + pair.key)
        admin, stranger = authority.client("admin"), Authority.create().client("admin")
        self.admin = written(root / "admin.pem", admin.certificate + admin.key)
        self.stranger = written(root / "stranger.pem", stranger.certificate + stranger.key)
        self._first = written(root / "first.toml", FIRST)
        self.node = self.start()

    def start(self) -> ServedNode:
        self.node = ServedNode(
            *("--data", str(self.data), "--listen", "http=127.0.0.1:0"),
            *("--listen", "http-tls=127.0.0.1:0", "--listen", "kafka=127.0.0.1:0"),
            *("--set", "authentication=required", "--set", "listener.http-tls.tls=required"),
            *("--set", f"ssl.certificate.file={self._certificate}"),
            *("--set", "listener.http-tls.ssl.client.auth=requested"),
            *("--set", f"ssl.ca.file={self.ca}"),
            *("--set", "ssl.principal.mapping.rules=RULE:^CN=([a-z]+)$/$1/"),
            *("--set", f"bootstrap.users.file={self._first}"),
        )
        return self.node.ready()

    def url(self, name: str = "http") -> str:
        scheme = "https" if name == "http-tls" else "http"
        return f"{scheme}://{self.node.listeners[name]}"

    @property
    def socket(self) -> str:
        return f"unix:{self.data}"

    def request(
        self, path: str, credentials: str = "", method: str = "GET", **headers: str
    ) -> http.client.HTTPResponse:
        host, port = self.node.listeners["http"].split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        if credentials:
            headers["Authorization"] = credentials
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Locked]:
    made = Locked(tmp_path)
    yield made
    made.node.kill()


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("DRAGOMAN_")]:
        monkeypatch.delenv(name)


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_http_asks_for_a_login_and_health_does_not(locked: Locked) -> None:
    for path in ("/livez", "/readyz"):
        assert locked.request(path).status == 200
    for path in ("/metrics", "/api/v1/topics", "/openapi.json", "/nothing"):
        refused = locked.request(path)
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"].startswith("Bearer ")
    admin = basic("admin", "correct horse")
    assert locked.request("/api/v1/topics", admin).status == 200
    assert locked.request("/metrics", admin).status == 200
    # The rules are enforced from the beginning.
    assert locked.request("/metrics", basic("guest", "guest's own")).status == 403
    for wrong in (basic("admin", "wrong"), basic("nobody", "correct horse"), "Bearer dragoman_x"):
        assert locked.request("/api/v1/topics", wrong).status == 401
    assert locked.request("/api/v1/topics", admin, Host="rebound.example").status == 421
    assert locked.request("/api/v1/topics", admin, Origin="http://evil.example").status == 403


def test_logins_over_http_name_their_protocol_in_the_audit_log(locked: Locked) -> None:
    for credentials in (basic("admin", "correct horse"), basic("admin", "x"), "Bearer dragoman_x"):
        locked.request("/api/v1/topics", credentials)
    assert locked.node.stop() == 0
    events = map(json.loads, (locked.data / "audit.log").read_text().splitlines())
    logins = [each for each in events if each["kind"] == "login"]
    assert [(each["action"], each["result"], each["protocol"]) for each in logins] == [
        ("password", "succeeded", "http"),
        ("password", "failed", "http"),
        ("token", "failed", "http"),
    ]


def test_command_line_logs_in_by_files_and_environment(
    locked: Locked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    password = written(locked.root / "password", "correct horse\n")
    credentials = ("--user", "admin", "--password-file", str(password))
    assert main(["topic", "create", "t", "--server", locked.url(), *credentials]) == 0
    tls = ("--server", locked.url("http-tls"), "--ca-file", str(locked.ca))
    assert main(["topic", "list", *tls, *credentials]) == 0
    capsys.readouterr()

    assert main(["topic", "list", *tls]) == 1
    assert "log in with --token-file FILE or --user NAME" in capsys.readouterr().err
    assert main(["topic", "list", "--server", locked.url("http-tls"), *credentials]) == 1
    assert "--ca-file names the certificates to trust" in capsys.readouterr().err

    monkeypatch.setenv("DRAGOMAN_SERVER", locked.url("http-tls"))
    monkeypatch.setenv("DRAGOMAN_CA_FILE", str(locked.ca))
    monkeypatch.setenv("DRAGOMAN_USER", "admin")
    monkeypatch.setenv("DRAGOMAN_PASSWORD_FILE", str(password))
    assert main(["topic", "describe", "t"]) == 0
    monkeypatch.setenv("DRAGOMAN_PASSWORD_FILE", str(written(locked.root / "other", "wrong")))
    capsys.readouterr()
    assert main(["topic", "describe", "t"]) == 1
    err = capsys.readouterr().err
    assert "logged in with user admin" in err
    assert "wrong" not in err.replace("wrong credentials", "")


def test_certificate_is_a_login(locked: Locked) -> None:
    def status(certificate: Path | None, **headers: str) -> int:
        context = ssl.create_default_context(cafile=locked.ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
        host, port = locked.node.listeners["http-tls"].split(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=context)
        try:
            connection.request("GET", "/api/v1/topics", headers=headers)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    assert status(locked.admin) == 200
    assert status(None) == 401
    # One of another authority is refused before there is a request.
    assert status(locked.stranger) == 0
    # Wrong credentials are not made good by the certificate.
    assert status(locked.admin, Authorization=basic("admin", "wrong")) == 401


def test_administrator_of_the_machine_needs_no_login(
    locked: Locked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stat.S_IMODE(locked.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((locked.data / "admin.sock").stat().st_mode) == 0o600
    assert main(["topic", "create", "t", "--server", locked.socket]) == 0
    # After a kill the socket is there and no one listens; the next start replaces it.
    locked.node.kill()
    assert (locked.data / "admin.sock").exists()
    capsys.readouterr()
    assert main(["topic", "list", "--server", locked.socket]) == 1
    assert "Connection refused; is a node running there?" in capsys.readouterr().err
    locked.start()
    assert main(["topic", "list", "--server", locked.socket]) == 0
    # A second node on the directory is refused, and leaves the first one's socket alone.
    second = ServedNode("--data", str(locked.data), "--listen", "http=127.0.0.1:0")
    assert second.finish() == 2
    assert main(["topic", "list", "--server", locked.socket]) == 0
    assert locked.node.stop() == 0
    assert not (locked.data / "admin.sock").exists()


def test_token_is_good_for_what_it_was_made_for_until_it_is_revoked(
    locked: Locked, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(name: str, *options: str) -> str:
        capsys.readouterr()
        arguments = ["user", "token", "create", name, *options, "--server", locked.socket]
        assert main(arguments) == 0
        return str(written(locked.root / f"token{len(options)}", capsys.readouterr().out))

    def run(*arguments: str, token: str) -> tuple[int, str]:
        status = main([*arguments, "--server", locked.url(), "--token-file", token])
        return status, capsys.readouterr().err

    full, reads = make("admin"), make("admin", "--read-only")
    assert run("topic", "create", "t", token=full)[0] == 0
    assert run("topic", "list", token=reads)[0] == 0
    status, err = run("topic", "delete", "t", "--yes", token=reads)
    assert status == 1
    assert "read_only_token" in err
    # A user without rights.
    guest = make("guest", "--days", "1")
    status, err = run("topic", "create", "u", token=guest)
    assert status == 1
    assert "guest may not create" in err
    assert "`dragoman acl add`" in err
    # From the next request on.
    assert main(["user", "disable", "admin", "--server", locked.socket]) == 0
    for token in (full, reads):
        status, err = run("topic", "list", token=token)
        assert status == 1
        assert "authentication_failed" in err
        assert Path(token).read_text().strip() not in err
    assert main(["user", "enable", "admin", "--server", locked.socket]) == 0
    assert run("topic", "list", token=full)[0] == 0
    assert not any("dragoman_" in line for line in locked.node.log)


def test_users_and_their_rules_outlive_the_file(locked: Locked) -> None:
    (locked.root / "first.toml").unlink()
    assert locked.node.stop() == 0
    locked.start()
    assert locked.request("/api/v1/topics", basic("admin", "correct horse")).status == 200
