"""Goal: the console's process learns how to reach its node and its records, and requests from it
are examined as those of its browsers.

Method: listeners without servers, and a real Unix socket with the HTTP API behind it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.api.console_access import console_security, console_settings
from dragoman.api.origin import BROWSER, console_origin
from dragoman.config.layers import Assignment, Flags, load
from dragoman.config.listeners import ListenerSecurity
from dragoman.config.settings import Settings
from dragoman.net.listener import OpenListener
from dragoman.net.operator_socket import CONSOLE_NAME, open_operator_socket, socket_address
from dragoman.security.access import ANONYMOUS


def configured(*listen: str, advertise: tuple[str, ...] = (), **values: str) -> Settings:
    assignments = tuple(Assignment("setting", name, value) for name, value in values.items())
    flags = Flags(assignments=assignments, listen=listen, advertise=advertise)
    return load(file=None, environment={}, flags=flags).settings


def opened(settings: Settings) -> list[OpenListener]:
    return [OpenListener(each, cast(Any, None), each.bind) for each in settings.listeners]


def made(settings: Settings) -> Any:
    return console_settings(opened(settings), settings, "/data", ["box", "127.0.0.1", "box"])


CONSOLE = "console=127.0.0.1:8081"


def test_default_listeners() -> None:
    found = made(configured())
    assert (found.server, found.kafka.bootstrap) == ("http://127.0.0.1:8080", "127.0.0.1:9092")
    assert (found.data, found.hosts) == ("/data", ("127.0.0.1", "box"))
    assert (found.is_local, found.tls) == (True, None)
    assert found.idle_s > 0


def test_console_alone_has_neither_url_nor_records() -> None:
    found = made(configured("console=0.0.0.0:8081"))
    assert (found.server, found.kafka.bootstrap, found.is_local) == ("", "", False)


def test_wildcards_are_reached_on_loopback() -> None:
    found = made(configured(CONSOLE, "http=0.0.0.0:80", "kafka=[::]:9092"))
    assert (found.server, found.kafka.bootstrap) == ("http://127.0.0.1:80", "[::1]:9092")


def test_records_come_from_where_users_log_in() -> None:
    settings = configured(
        CONSOLE,
        "kafka=127.0.0.1:9092",
        "kafka-b=127.0.0.1:9093",
        "kafka-c=127.0.0.1:9094",
        **{
            "listener.kafka-b.authentication": "optional",
            "listener.kafka-b.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.kafka-c.authentication": "required",
            "listener.kafka-c.sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "https://keys.example.org/",
        },
    )
    assert made(settings).kafka.bootstrap == "127.0.0.1:9093"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"listener.kafka.tls": "required", "listener.kafka.ssl.client.auth": "required"},
            "requires certificates",
        ),
        (
            {
                "listener.kafka.authentication": "required",
                "listener.kafka.sasl.enabled.mechanisms": "OAUTHBEARER",
            },
            "no mechanism that takes a password",
        ),
    ],
)
def test_obstacle_comes_with_its_remedy(values: dict[str, str], words: str) -> None:
    files = {"ssl.certificate.file": "node.pem", "ssl.ca.file": "ca.pem"}
    oauth = {"sasl.oauthbearer.jwks.endpoint.url": "https://keys.example.org/"}
    settings = configured(CONSOLE, "kafka=127.0.0.1:9092", **values, **files, **oauth)
    found = made(settings).kafka
    assert words in found.obstacle
    assert "kafka-local=" in found.obstacle


def test_encrypted_listeners_are_reached_by_the_name_in_their_certificate() -> None:
    settings = configured(
        CONSOLE,
        "http=0.0.0.0:8080",
        "kafka=0.0.0.0:9092",
        advertise=("http=node.example:8080", "kafka=node.example:9092"),
        **{
            "tls": "required",
            "authentication": "required",
            "ssl.certificate.file": "node.pem",
            "ssl.ca.file": "ca.pem",
        },
    )
    found = made(settings)
    assert found.server == "https://node.example:8080"
    assert (found.kafka.bootstrap, found.kafka.is_encrypted) == ("node.example:9092", True)
    assert found.kafka.authorities == "ca.pem"
    assert found.tls is not None


@pytest.mark.parametrize("configured_", ["off", "optional", "required"])
def test_credentials_always_count(configured_: Any) -> None:
    security = ListenerSecurity(authentication=configured_, principals=(("10.0.0.0/8", "batch"),))
    assert console_security(security, is_required=False).authentication == "optional"
    assert console_security(security, is_required=True).authentication == "required"
    assert console_security(security, is_required=True).principals == security.principals


async def test_request_has_the_origin_of_its_browser(tmp_path: Path) -> None:
    origins: list[Any] = []
    security = ListenerSecurity(authentication="required")

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            origins.append(console_origin(lambda: security, lambda: "no users", transport))
            cast(asyncio.Transport, transport).close()

    loop = asyncio.get_running_loop()
    listening = await open_operator_socket(str(tmp_path), loop, Accepting, 5, CONSOLE_NAME)
    await listening.serve()
    with socket_address(str(tmp_path), CONSOLE_NAME) as address:
        reader, writer = await asyncio.open_unix_connection(address)
    assert await reader.read() == b""
    writer.close()
    listening.close()
    (origin,) = origins
    # Without the header, a request has no caller at all.
    assert not origin.is_operator
    for text in ("", "192.0.2.7", "192.0.2.7 ftp", " http"):
        assert origin.of_browser(text) is None
    found = origin.of_browser("192.0.2.7 https")
    assert (found.initial().principal, found.initial().host) == (ANONYMOUS, "192.0.2.7")
    assert (found.is_encrypted, found.login_obstacle()) == (True, "no users")
    assert found.security() is security
    assert BROWSER.islower()
