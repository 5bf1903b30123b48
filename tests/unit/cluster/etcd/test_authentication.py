"""Goal: requests carry a token that etcd accepts, with as few logins as it takes.

Method: a transport that the test answers, request by request.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dragoman.cluster.etcd.authentication import AuthenticatedGateway, Credentials
from dragoman.errors import DragomanError, SecretError
from dragoman.outcome import Outcome

PUT, LOGIN = "/v3/kv/txn", "/v3/auth/authenticate"
REFUSED = (401, b'{"message":"etcdserver: invalid auth token","code":16}')
OLD = (400, b'{"message":"etcdserver: revision of auth store is old","code":3}')
WRONG = (400, b'{"message":"etcdserver: authentication failed","code":3}')
DONE = (200, b"{}")


class Asked:
    def __init__(self, path: str, body: bytes, token: str) -> None:
        self.path, self.body, self.token = path, body, token
        self.outcome: Outcome[tuple[int, bytes]] = Outcome()


class Transport:
    """Keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.streams: list[str] = []

    def request(
        self,
        method: str,
        path: str,
        body: bytes,
        timeout_s: float,
        *,
        token: str = "",
    ) -> Outcome[tuple[int, bytes]]:
        self.asked.append(Asked(path, body, token))
        return self.asked[-1].outcome

    def stream(
        self,
        path: str,
        body: bytes,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
        *,
        token: str = "",
    ) -> Transport:
        self.streams.append(token)
        return self

    def close(self) -> None: ...

    def answer(self, path: str, answer: tuple[int, bytes], token: str = "") -> bytes:
        """Answer the oldest request, which must be this one; returns its body."""
        asked = self.asked.pop(0)
        assert (asked.path, asked.token) == (path, token)
        asked.outcome.succeed(answer)
        return asked.body


class Stage:
    def __init__(self) -> None:
        self.transport = Transport()
        self.password: str | DragomanError = "secret"
        self.gateway = AuthenticatedGateway(self.transport, self._credentials)
        self.answers: list[tuple[int, bytes] | DragomanError] = []

    def _credentials(self) -> Credentials:
        if isinstance(self.password, DragomanError):
            raise self.password
        return Credentials("user", self.password)

    def ask(self) -> None:
        self.gateway.request("POST", PUT, b"{}", 1.0).then(self.answers.append)

    def log_in(self, token: str) -> None:
        body = self.transport.answer(LOGIN, (200, msgspec.json.encode({"token": token})))
        assert msgspec.json.decode(body) == {"name": "user", "password": "secret"}


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_first_request_logs_in_and_later_ones_share_the_token(stage: Stage) -> None:
    for _ in range(3):
        stage.ask()
    assert len(stage.transport.asked) == 1
    stage.log_in("t1")
    for _ in range(3):
        stage.transport.answer(PUT, DONE, "t1")
    stage.ask()
    stage.transport.answer(PUT, DONE, "t1")
    assert stage.answers == [DONE] * 4
    stage.gateway.stream("/v3/watch", b"{}", print, print)
    assert stage.transport.streams == ["t1"]


@pytest.mark.parametrize("refusal", [REFUSED, OLD])
def test_refused_token_is_renewed_once_and_the_request_sent_again(
    stage: Stage, refusal: tuple[int, bytes]
) -> None:
    stage.ask()
    stage.log_in("t1")
    stage.transport.answer(PUT, DONE, "t1")
    stage.ask()
    stage.ask()
    stage.transport.answer(PUT, refusal, "t1")
    # The second one is refused while the token is fetched, and waits for it.
    stage.transport.asked.append(stage.transport.asked.pop(0))
    stage.log_in("t2")
    stage.transport.answer(PUT, refusal, "t1")
    stage.transport.answer(PUT, DONE, "t2")
    stage.transport.answer(PUT, DONE, "t2")
    assert stage.answers == [DONE] * 3
    assert not stage.transport.asked


def test_request_is_sent_no_third_time(stage: Stage) -> None:
    stage.ask()
    stage.log_in("t1")
    stage.transport.answer(PUT, REFUSED, "t1")
    stage.log_in("t2")
    stage.transport.answer(PUT, REFUSED, "t2")
    assert stage.answers == [REFUSED]
    assert not stage.transport.asked


def test_wrong_password_is_the_answer_of_all_that_wait(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.ask()
    stage.ask()
    stage.transport.answer(LOGIN, WRONG)
    assert stage.answers == [(0, b"etcd has accepted no login"), WRONG] or stage.answers == [
        WRONG,
        (0, b"etcd has accepted no login"),
    ]
    stage.ask()
    stage.transport.answer(LOGIN, WRONG)
    stage.ask()
    stage.log_in("t1")
    stage.transport.answer(PUT, DONE, "t1")
    assert stage.answers[-1] == DONE
    said = [each for each in caplog.messages if "accepts no login" in each]
    assert len(said) == 1
    assert "secret" not in said[0]


def test_other_refusals_and_lost_answers_are_passed_on(stage: Stage) -> None:
    stage.ask()
    stage.log_in("t1")
    denied = (403, b'{"message":"etcdserver: permission denied","code":7}')
    stage.transport.answer(PUT, denied, "t1")
    stage.ask()
    stage.transport.answer(PUT, (0, b"no answer in 1.0 s"), "t1")
    assert stage.answers == [denied, (0, b"no answer in 1.0 s")]
    assert not stage.transport.asked


@pytest.mark.parametrize(
    "answer", [(0, b"no answer"), (200, b"<html>"), (200, b"{}"), (503, b"\xff")]
)
def test_login_without_a_token_is_tried_again_by_the_next_request(
    stage: Stage, answer: tuple[int, bytes]
) -> None:
    stage.ask()
    stage.transport.answer(LOGIN, answer)
    assert len(stage.answers) == 1
    stage.ask()
    stage.log_in("t1")
    stage.transport.answer(PUT, DONE, "t1")
    assert stage.answers[-1] == DONE


def test_password_that_cannot_be_read_is_reported_and_read_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.password = SecretError("file:/gone on this node: No such file or directory")
    stage.ask()
    stage.ask()
    assert [each[0] for each in stage.answers if isinstance(each, tuple)] == [0, 0]
    assert sum("file:/gone" in each for each in caplog.messages) == 1
    stage.password = "secret"
    stage.ask()
    stage.log_in("t1")
    stage.transport.answer(PUT, DONE, "t1")
    assert stage.answers[-1] == DONE


def test_password_is_in_no_text() -> None:
    assert "secret" not in repr(Credentials("user", "secret"))
