"""Answers that are no answers: whatever listens at the URL, a command ends with one clear line."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from dragoman import limits
from dragoman.cli.main import main
from dragoman.cli.remote import Remote
from dragoman.cli.status import CommandError, say


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """Makes a server that answers every connection with the same bytes, and gives its URL."""
    listening: list[tuple[socket.socket, threading.Thread]] = []

    def start(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=_answer, args=(listener, answer))
        thread.start()
        listening.append((listener, thread))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener, thread in listening:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _answer(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        # A client that has seen enough may hang up first.
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65536)


def http(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "Remote end closed connection"),
        (b"\x00\x01\x02\x03", "does not speak HTTP"),
        (http("200 OK", b"<html>"), "is not valid"),
        (http("200 OK", b"[]"), "is not valid"),
        (http("200 OK", b'{"items": 1, "next": null}'), "is not valid"),
        (http("200 OK", b'{"items": [{"name": "\xff"}]}'), "is not valid"),
        (http("500 Oops", b"<html>"), "HTTP status 500"),
        (http("502 Bad", b"\xff"), "HTTP status 502"),
        (http("301 Moved", b""), "HTTP status 301"),
        (
            http(
                "409 Conflict",
                b'{"type": "about:blank", "title": "Conflict", "status": 409,'
                b' "code": "topic_exists", "detail": "it\\nexists"}',
            ),
            "it exists (topic_exists)",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "is not valid"),
    ],
)
def test_bad_answer_is_one_line_and_status_1(
    answering, capsys: pytest.CaptureFixture[str], answer: bytes, words: str
) -> None:
    assert main(["topic", "list", "--server", answering(answer)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_huge_answer_is_not_kept(answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLI_RESPONSE_BYTES_MAX", 10)
    with pytest.raises(CommandError, match="larger than 10 bytes"):
        Remote(answering(http("200 OK", b"x" * 11))).topics()


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"],
    ids=["status", "header", "body"],
)
def test_answer_that_arrives_a_byte_at_a_time_is_given_up(
    monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(limits, "CLI_EXCHANGE_SECONDS_MAX", 0.3)
    over, sent = threading.Event(), list[bytes]()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(beginning)
                while not over.wait(0.01):
                    connection.sendall(b"x")
                    sent.append(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            remote = Remote(f"http://127.0.0.1:{listener.getsockname()[1]}")
            with pytest.raises(CommandError, match="has not answered in time") as silent:
                remote.topics()
        finally:
            over.set()
            thread.join()
    assert silent.value.code == "no_answer"
    # It was not waited for until it was complete.
    assert len(sent) < 9000


@pytest.mark.parametrize(
    ("describe", "answer"),
    [
        (
            Remote.topic,
            b'{"name": "t", "topic_id": "", "internal": false, "partitions": [], "config": [],'
            b' "next": "0"}',
        ),
        (
            Remote.group,
            b'{"group": "g", "state": "Empty", "protocol": "kafka", "generation": 1,'
            b' "coordinator": 1, "members": [], "offsets": [], "next": "0"}',
        ),
    ],
    ids=["topic", "group"],
)
def test_endless_description_is_given_up(
    answering,
    monkeypatch: pytest.MonkeyPatch,
    describe: Callable[[Remote, str], object],
    answer: bytes,
) -> None:
    monkeypatch.setattr(limits, "CLI_PAGES_MAX", 3)
    with pytest.raises(CommandError, match="describes more than 3 pages"):
        describe(Remote(answering(http("200 OK", answer))), "x")


def test_text_of_a_server_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("\x1b]0;owned\x07\nand \x9b2J")
    assert capsys.readouterr().err == "\\x1b]0;owned\\x07\nand \\x9b2J\n"


@pytest.mark.parametrize("listing", [Remote.topics, Remote.groups])
def test_endless_listing_is_given_up(
    answering, monkeypatch: pytest.MonkeyPatch, listing: Callable[[Remote], object]
) -> None:
    monkeypatch.setattr(limits, "CLI_PAGES_MAX", 3)
    remote = Remote(answering(http("200 OK", b'{"items": [], "next": "a"}')))
    with pytest.raises(CommandError, match="lists more than"):
        listing(remote)


def test_unreachable_server_error_names_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    assert main(["cluster", "status", "--server", url]) == 1
    err = capsys.readouterr().err
    assert err == f"dragoman: cannot reach {url}: Connection refused; is a node running there?\n"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "http://",
        "ftp://host",
        "http://host:port",
        "http://host:99999",
        "http://host:0",
        "http://[::1",
        "http://ho st",
        "http://host/\r\nX: y",
        "http://höst",
    ],
)
def test_bad_url_is_wrong_usage(url: str) -> None:
    with pytest.raises(CommandError, match="--server: expected a URL") as caught:
        Remote(url)
    assert caught.value.status == 2


def test_url_may_have_a_path_before_the_api(answering) -> None:
    url = answering(http("200 OK", b'{"items": [], "next": null}'))
    assert Remote(f"{url}/behind/a/proxy/").topics() == []
