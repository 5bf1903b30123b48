"""Goal: with the level debug, an operator can follow a connection and its requests; without, these
lines cost nothing.

Method: a node over real sockets, with what its loggers were given.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import httpx
import pytest
import uvloop

from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.net import connection_log
from dragoman.protocols.kafka import messages as m
from nodes.thread import Running
from protocols.kafka_socket import KafkaSocket
from worlds.broker import batch_of

LISTENERS = ("kafka", "rocketmq", "rocketmq-broker", "cursus", "minibroker", "mlog", "http")


@pytest.fixture
def running() -> Iterator[Running]:
    listeners = tuple(Listener(name=name, bind=Address("127.0.0.1", 0)) for name in LISTENERS)
    node = Running(uvloop.new_event_loop, Settings(listeners=listeners))
    yield node
    node.stop()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "dragoman.connections")
    return caplog


def address(running: Running, name: str) -> str:
    opened = running.node.listeners.find(name)
    assert opened is not None
    return str(opened.bound)


def said(lines: pytest.LogCaptureFixture, message: str) -> list[dict[str, object]]:
    return [vars(each) for each in lines.records if each.getMessage() == message]


def test_connection_is_followed_from_its_begin_to_its_end(
    running: Running, lines: pytest.LogCaptureFixture
) -> None:
    with KafkaSocket(address(running, "kafka")) as client:
        client.metadata()
        own = "{}:{}".format(*client.socket.getsockname())
    running.stop()
    (opened,) = said(lines, "connection opened")
    (closed,) = said(lines, "connection closed")
    assert (opened["connection"], opened["peer"], opened["protocol"]) == ("kafka-1", own, "kafka")
    assert (closed["connection"], closed["why"]) == ("kafka-1", "the client closed it")


def test_failed_request_of_kafka_has_its_id_code_and_client(
    running: Running, lines: pytest.LogCaptureFixture
) -> None:
    with KafkaSocket(address(running, "kafka")) as client:
        found = client.produce("no such topic", batch_of(b"x"))
        assert found.error_code
    (failed,) = said(lines, "request failed")
    assert str(failed["request"]).startswith("kafka-1.")
    assert failed["api"] == "Produce"
    assert failed["code"] in ("UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION")
    assert "no such topic" in str(failed["why"])


def test_topic_that_is_unknown_to_metadata_is_logged(
    running: Running, lines: pytest.LogCaptureFixture
) -> None:
    with KafkaSocket(address(running, "kafka")) as client:
        named = m.MetadataRequestTopic(name="no such topic")
        client.ask(m.MetadataRequest(topics=[named]), 9, m.MetadataResponse)
    (failed,) = said(lines, "request failed")
    assert (failed["api"], failed["code"]) == ("Metadata", "INVALID_TOPIC_EXCEPTION")


def test_line_about_a_request_has_its_id(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with KafkaSocket(address(running, "kafka")) as client:
        # Metadata 1, correlation id 77, no client id, seven topics that are missing.
        client.socket.sendall(bytes.fromhex("0000000e 0003 0001 0000004d ffff 00000007"))
        assert client.is_closed_by_peer()
    (line,) = [vars(each) for each in caplog.records if each.name == "dragoman.net"]
    assert (line["connection"], line["request"]) == ("kafka-1", "kafka-1.77")


def test_closed_connection_says_why(running: Running, lines: pytest.LogCaptureFixture) -> None:
    with KafkaSocket(address(running, "kafka")) as client:
        client.socket.sendall(b"\xff" * 8)
        assert client.is_closed_by_peer()
    running.stop()
    (closed,) = said(lines, "connection closed")
    assert "frame of -1 bytes" in str(closed["why"])


@pytest.mark.parametrize(
    ("listener", "request_bytes"),
    [
        ("cursus", b"\0\0\0\x18DESCRIBE topic=no-such-x"),
        ("minibroker", b"\0\0\0\x05\xff\0\0\0\0"),
    ],
)
def test_refusals_of_other_protocols_are_logged(
    running: Running,
    lines: pytest.LogCaptureFixture,
    listener: str,
    request_bytes: bytes,
) -> None:
    host, _, port = address(running, listener).rpartition(":")
    with socket.create_connection((host, int(port)), 60) as peer:
        peer.sendall(request_bytes)
        assert peer.recv(1 << 16)
    (failed,) = said(lines, "request failed")
    assert (failed["request"], failed["protocol"]) == (f"{listener}-1", listener)
    assert failed["code"]
    assert failed["why"]


def test_http_request_keeps_its_id(running: Running, lines: pytest.LogCaptureFixture) -> None:
    url = f"http://{address(running, 'http')}/api/v1/topics/none"
    response = httpx.get(url, headers={"X-Request-Id": "trace-7"})
    assert response.headers["x-request-id"] == "trace-7"
    (failed,) = said(lines, "request failed")
    assert (failed["request"], failed["code"]) == ("trace-7", "unknown_topic")
    (answered,) = said(lines, "HTTP request answered")
    assert (answered["request"], answered["status"]) == ("trace-7", 404)
    running.stop()
    assert [each["connection"] for each in said(lines, "connection opened")] == ["http-1"]
    assert [each["connection"] for each in said(lines, "connection closed")] == ["http-1"]


@pytest.mark.parametrize("given", ["x" * 65, "a b", "a\tb", "", "ä"])
def test_http_request_with_an_unusable_id_gets_one_of_the_node(
    running: Running, given: str
) -> None:
    url = f"http://{address(running, 'http')}/livez"
    found = httpx.get(url, headers={"X-Request-Id": given.encode()}).headers["x-request-id"]
    assert found.startswith("http-")
    assert found != httpx.get(url).headers["x-request-id"]


def test_level_info_has_no_such_lines(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert not connection_log.is_on()
    with KafkaSocket(address(running, "kafka")) as client:
        client.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse)
    assert [each for each in caplog.records if each.name == "dragoman.connections"] == []
