"""The names in a peer's certificate."""

from __future__ import annotations

import hashlib
import ssl
from typing import Final

from dragoman.types import Certificate

#: Types of names that RFC 2253 has a short form for; others keep OpenSSL's name.
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED: Final = frozenset(',+"\\<>;')


def certificate_of(tls: ssl.SSLObject) -> Certificate | None:
    """The peer's verified certificate; None when it has none."""
    encoded = tls.getpeercert(binary_form=True)
    names = tls.getpeercert()
    if not encoded or not names:
        return None
    return Certificate(
        subject=_subject(names.get("subject")),
        alternative_names=tuple(
            f"{kind}:{name}" for kind, name in _pairs(names.get("subjectAltName"))
        ),
        digest=hashlib.sha256(encoded).digest(),
    )


def _pairs(value: object) -> list[tuple[str, str]]:
    """Pairs of texts; alternative names of other kinds are left out."""
    found = value if isinstance(value, tuple) else ()
    return [each for each in found if len(each) == 2 and isinstance(each[1], str)]


def _subject(value: object) -> str:
    """The subject by RFC 2253: the last part of the name comes first."""
    parts = value if isinstance(value, tuple) else ()
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_escape(name)}" for kind, name in _pairs(part))
        for part in reversed(parts)
    )


def _escape(name: str) -> str:
    escaped = "".join(_escape_char(each) for each in name)
    if name[:1] in ("#", " "):
        escaped = "\\" + escaped
    if len(name) > 1 and name.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped


def _escape_char(char: str) -> str:
    if char in _ESCAPED:
        return "\\" + char
    return f"\\{ord(char):02X}" if ord(char) < 0x20 else char
