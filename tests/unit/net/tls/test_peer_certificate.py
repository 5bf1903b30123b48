"""Subjects as text of RFC 2253: order, short names, characters with a meaning, odd contents."""

from __future__ import annotations

import pytest

from dragoman.net.tls.peer_certificate import certificate_of


class Tls:
    """The part of OpenSSL's object that is read."""

    def __init__(self, names: dict[str, object] | None, encoded: bytes | None = b"der") -> None:
        self._names = names
        self._encoded = encoded

    def getpeercert(self, binary_form: bool = False) -> object:
        return self._encoded if binary_form else self._names


def subject(*parts: tuple[tuple[str, str], ...]) -> str:
    certificate = certificate_of(Tls({"subject": parts}))  # type: ignore[arg-type]
    assert certificate is not None
    return certificate.subject


def test_last_part_comes_first_under_its_short_name() -> None:
    assert (
        subject(
            (("countryName", "DE"),),
            (("stateOrProvinceName", "BE"),),
            (("organizationName", "Example"),),
            (("organizationalUnitName", "Billing"), ("userId", "7")),
            (("commonName", "Alice"),),
            (("emailAddress", "a@example.org"),),
        )
        == "emailAddress=a@example.org,CN=Alice,OU=Billing+UID=7,O=Example,ST=BE,C=DE"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Alice, CN=root", "Alice\\, CN\\=root".replace("\\=", "=")),
        ('a+b"c\\d<e>f;g', 'a\\+b\\"c\\\\d\\<e\\>f\\;g'),
        ("#1", "\\#1"),
        (" a ", "\\ a\\ "),
        (" ", "\\ "),
        ("a\x00b\n", "a\\00b\\0A"),
        ("Zoë", "Zoë"),
        ("", ""),
    ],
)
def test_characters_with_a_meaning_are_escaped(name: str, text: str) -> None:
    assert subject((("commonName", name),)) == f"CN={text}"


def test_alternative_names_keep_their_kind() -> None:
    names = {
        "subject": (),
        "subjectAltName": (
            ("DNS", "a.example"),
            ("URI", "dragoman://node/1"),
            ("DirName", ((("commonName", "x"),),)),
        ),
    }
    certificate = certificate_of(Tls(names))  # type: ignore[arg-type]
    assert certificate is not None
    assert certificate.alternative_names == ("DNS:a.example", "URI:dragoman://node/1")
    assert certificate.subject == ""


@pytest.mark.parametrize(("names", "encoded"), [(None, None), ({}, b"der"), (None, b"der")])
def test_unverified_certificate_is_none(names: dict[str, object] | None, encoded: bytes) -> None:
    assert certificate_of(Tls(names, encoded)) is None  # type: ignore[arg-type]
