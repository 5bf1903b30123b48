"""Lists of hosts in settings: what an entry covers, and which entries are refused."""

from __future__ import annotations

import pytest

from dragoman.config.hosts import check_hosts, host_matches
from dragoman.config.layers import Assignment, Flags, load
from dragoman.errors import ConfigError


@pytest.mark.parametrize(
    ("entry", "host", "covered"),
    [
        ("db.example.org", "DB.example.org", True),
        ("db.example.org", "db.example.org.", True),
        ("db.example.org", "xdb.example.org", False),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "badexample.org", False),
        ("*", "anything", True),
        ("10.0.0.0/8", "10.9.8.7", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "10.9.8.7.example.org", False),
        ("192.168.1.1", "192.168.1.1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("/run/postgresql", "/run/postgresql/", True),
        ("/run/postgresql", "/run/postgresql/../other", False),
        ("/run/Postgresql", "/run/postgresql", False),
    ],
)
def test_entry_covers(entry: str, host: str, covered: bool) -> None:
    assert host_matches(host, ["never.example.net", entry]) is covered


@pytest.mark.parametrize("entry", ["a b", "http://x", "host:8080", "*.", "a/b", "10.0.0.0/40"])
def test_entry_that_could_never_match_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"^some\.key: expected names"):
        check_hosts("some.key", [entry])


@pytest.mark.parametrize("key", ["http.allowed.hosts", "capture.allowed.hosts"])
def test_settings_are_checked(key: str) -> None:
    def loaded(text: str) -> object:
        flags = Flags(assignments=(Assignment("--set", key, text),))
        return load(file=None, environment={}, flags=flags).settings.value(key)

    assert loaded("a.example.org,*.b,10.0.0.0/8") == ("a.example.org", "*.b", "10.0.0.0/8")
    with pytest.raises(ConfigError):
        loaded("http://a")
