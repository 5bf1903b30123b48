"""Goal: sessions end, are bounded, and are named by nothing that a memory dump or a planted cookie
gives away.

Method: a clock that is moved.
"""

from __future__ import annotations

import pytest

from dragoman.console import sessions as module
from dragoman.console.sessions import Session, Sessions, TooManySessionsError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock, idle_s=60, life_s=300)


def alice() -> Session:
    return Session.of_password("alice", "secret ä")


def test_session_has_what_the_user_logged_in_with(sessions: Sessions) -> None:
    found = sessions.find(sessions.open(alice()))
    assert found is not None
    assert (found.user, found.password) == ("alice", "secret ä")
    assert found.authorization == "Basic YWxpY2U6c2VjcmV0IMOk"
    bearer = sessions.find(sessions.open(Session.of_token("drg_1")))
    assert bearer is not None
    assert (bearer.user, bearer.authorization) == ("", "Bearer drg_1")


def test_names_are_long_differ_and_are_not_kept(sessions: Sessions) -> None:
    names = {sessions.open(alice()) for _ in range(10)}
    assert len(names) == 10
    assert min(map(len, names)) >= 43
    assert not names & {str(each) for each in sessions._sessions}
    assert "secret" not in repr(sessions.find(names.pop()))


@pytest.mark.parametrize("name", ["", "x", "\udce9", "a" * 5000])
def test_other_names_open_nothing(sessions: Sessions, name: str) -> None:
    sessions.open(alice())
    assert sessions.find(name) is None


def test_unused_session_ends(sessions: Sessions, clock: Clock) -> None:
    name = sessions.open(alice())
    clock.now += 59
    assert sessions.find(name) is not None
    clock.now += 59
    assert sessions.find(name) is not None
    clock.now += 60
    assert sessions.find(name) is None
    assert len(sessions) == 0


def test_used_session_ends_in_the_end(sessions: Sessions, clock: Clock) -> None:
    name = sessions.open(alice())
    for _ in range(9):
        clock.now += 33
        assert sessions.find(name) is not None
    clock.now += 3
    assert sessions.find(name) is None


def test_open_sessions_are_those_that_have_not_expired(sessions: Sessions, clock: Clock) -> None:
    assert not sessions.are_open()
    sessions.open(alice())
    assert sessions.are_open()
    clock.now += 60
    assert not sessions.are_open()


def test_end_of_a_session_is_said_to_those_who_ask(sessions: Sessions, clock: Clock) -> None:
    ended: list[str] = []
    session = alice()
    sessions.open(session)
    with sessions.ending(session, lambda: ended.append("first")):
        with sessions.ending(session, lambda: ended.append("left")):
            pass
        assert not ended
        clock.now += 60
        assert not sessions.are_open()
        assert ended == ["first"]
        with sessions.ending(session, lambda: ended.append("late")):
            assert ended == ["first", "late"]
    with sessions.ending(None, lambda: ended.append("nobody")):
        assert len(ended) == 2


def test_user_loses_the_session_that_was_not_used_for_longest(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "USER_SESSIONS_MAX", 2)
    first = sessions.open(alice())
    clock.now += 1
    second = sessions.open(alice())
    other = sessions.open(Session.of_password("bob", "x"))
    clock.now += 1
    assert sessions.find(first) is not None
    third = sessions.open(alice())
    assert sessions.find(second) is None
    assert None not in (sessions.find(first), sessions.find(third), sessions.find(other))


def test_sessions_of_all_are_bounded(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 2)
    sessions.open(alice())
    name = sessions.open(Session.of_password("bob", "x"))
    with pytest.raises(TooManySessionsError):
        sessions.open(Session.of_password("carol", "x"))
    sessions.close(name)
    sessions.open(Session.of_password("carol", "x"))


def test_session_is_closed_by_itself(sessions: Sessions) -> None:
    name, other = sessions.open(alice()), sessions.open(alice())
    found = sessions.find(name)
    assert found is not None
    sessions.close_session(found)
    assert sessions.find(name) is None
    assert sessions.find(other) is not None


def test_look_at_a_session_is_no_use_of_it(sessions: Sessions, clock: Clock) -> None:
    session = sessions.find(sessions.open(alice()))
    assert session is not None
    clock.now += 30
    assert sessions.is_open(session)
    clock.now += 30
    assert not sessions.is_open(session)
    assert not sessions.use(session)


def test_used_session_does_not_idle(sessions: Sessions, clock: Clock) -> None:
    session = sessions.find(sessions.open(alice()))
    assert session is not None
    clock.now += 30
    assert sessions.use(session)
    clock.now += 30
    assert sessions.is_open(session)
