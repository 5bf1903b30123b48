"""Goal: a connection's origin says who its requests come from, at the moment of each request.

Method: fake transports for what a connection shows, and a real Unix socket for the operator.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path

import pytest

from dragoman.api import origin
from dragoman.api.listener import HttpListener
from dragoman.api.origin import host_of, listener_origin, open_origin
from dragoman.config.listeners import OPEN, ListenerSecurity
from dragoman.net.operator_socket import connect, open_operator_socket
from dragoman.operating_system import SystemClock
from dragoman.security.access import ANONYMOUS, Caller, Principal
from dragoman.types import Certificate

REQUEST = b"GET /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Shown(asyncio.Transport):
    def __init__(self, **info: object) -> None:
        super().__init__(info)


def test_open_listener_knows_the_address_alone() -> None:
    made = open_origin(Shown(peername=("10.1.2.3", 5), certificate=Certificate("CN=alice")))
    assert made.initial() == Caller(ANONYMOUS, "10.1.2.3")
    assert made.security() == OPEN
    assert not made.is_encrypted
    assert not made.is_operator


@pytest.mark.parametrize("peername", [None, "", "/path/to/socket"])
def test_unix_socket_has_no_address(peername: str | None) -> None:
    assert host_of(Shown(peername=peername)) == ""


def test_certificate_and_network_name_the_caller_by_the_settings_of_the_moment() -> None:
    security, rules = ListenerSecurity(principals=(("10.0.0.0/8", "batch"),)), ["DEFAULT"]
    shown = Shown(peername=("10.1.2.3", 5), certificate=Certificate("CN=alice"), ssl_object=1)
    certified = listener_origin(lambda: security, lambda: rules[0], shown)
    assert certified.is_encrypted
    assert certified.initial().name == "CN=alice"
    rules[0] = "RULE:^CN=([a-z]+)$/$1/"
    assert certified.initial() == Caller(Principal("User", "alice"), "10.1.2.3", is_proven=True)
    plain = listener_origin(lambda: security, lambda: rules[0], Shown(peername=("10.1.2.3", 5)))
    assert not plain.is_encrypted
    assert plain.initial().name == "batch"
    security = OPEN
    assert plain.initial().principal == ANONYMOUS


@pytest.mark.parametrize(("user", "is_served"), [(os.geteuid(), True), (os.geteuid() + 1, False)])
async def test_socket_serves_the_nodes_own_user_and_no_other(
    node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, is_served: bool
) -> None:
    loop = asyncio.get_running_loop()
    listener = HttpListener(lambda: node, SystemClock(), loop)
    opened = await open_operator_socket(
        str(tmp_path), loop, listener.factory(origin.operator_origin), 10
    )
    await opened.serve()
    monkeypatch.setattr(origin, "user_of", lambda _transport: user)

    def ask() -> bytes:
        with connect(str(tmp_path), 60) as connected:
            try:
                connected.sendall(REQUEST)
                return connected.recv(1000)
            except OSError:
                return b""

    answer = await asyncio.to_thread(ask)
    opened.close()
    await listener.close(grace_seconds=0)
    assert answer.startswith(b"HTTP/1.1 200") == is_served
    assert bool(answer) == is_served


def test_operator_has_the_name_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "user_of", lambda _transport: os.geteuid())
    made = origin.operator_origin(Shown())
    assert made is not None
    assert made.is_operator
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert made.initial() == Caller(Principal("Operator", name), is_proven=True)


def test_user_that_no_file_names_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "user_of", lambda _transport: 54_321)
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    made = origin.operator_origin(Shown())
    assert made is not None
    assert made.initial().name == "54321"


def test_system_that_does_not_say_who_connects_lets_no_one_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origin, "user_of", lambda _transport: None)
    assert origin.operator_origin(Shown()) is None
