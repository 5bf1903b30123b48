"""Certificates for tests and first steps: an authority, and pairs that it signs.

`dragoman tls dev` writes them to a directory, `EphemeralBroker(tls=True)` uses them. All keys are
P-256, whose handshakes cost least. The authority's own key lies beside them, unencrypted: this is
no authority for production.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_FILE: Final = "ca.pem"
_AUTHORITY_KEY_FILE: Final = "ca-key.pem"
_AUTHORITY_DAYS: Final = 3650
_PAIR_DAYS: Final = 825
#: Clocks of machines may differ: certificates are valid from this long ago.
_SKEW: Final = timedelta(days=1)


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    @classmethod
    def create(cls, name: str = "Dragoman test authority") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        now = datetime.now(UTC)
        builder = (
            _builder(subject, key, now - _SKEW, now + timedelta(days=_AUTHORITY_DAYS))
            .issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
        )
        return cls(_pair(builder.sign(key, hashes.SHA256()), key))

    def server(self, hosts: Iterable[str], *, days: float = _PAIR_DAYS) -> Pair:
        """The pair of a server that clients reach by these names and addresses. Nodes are each
        other's clients, too.
        """
        names = list(dict.fromkeys(hosts))
        purposes = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._sign(names[0], purposes, names, days)

    def client(self, name: str, *, days: float = _PAIR_DAYS) -> Pair:
        """The pair of a user: the certificate's subject is `CN=name`. With negative `days`, it has
        expired.
        """
        return self._sign(name, (ExtendedKeyUsageOID.CLIENT_AUTH,), (), days)

    def _sign(
        self,
        name: str,
        purposes: Iterable[x509.ObjectIdentifier],
        hosts: Iterable[str],
        days: float,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        end = datetime.now(UTC) + timedelta(days=days)
        begin = min(datetime.now(UTC), end) - _SKEW
        public = self._key.public_key()
        builder = (
            _builder(_name(name), key, begin, end)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False
            )
        )
        names = [_alternative_name(each) for each in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pair(builder.sign(self._key, hashes.SHA256()), key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    if "://" in host:
        return x509.UniformResourceIdentifier(host)
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


# ---- files


def write_pair(directory: str, name: str, pair: Pair) -> tuple[str, str]:
    """Write `NAME.pem` and `NAME-key.pem`, the key for its owner only. Returns the paths."""
    paths = os.path.join(directory, f"{name}.pem"), os.path.join(directory, f"{name}-key.pem")
    _write(paths[0], pair.certificate, 0o644)
    _write(paths[1], pair.key, 0o600)
    return paths


def authority_in(directory: str) -> Authority:
    """The authority of a directory, which is made with a new authority if there is none."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    paths = [os.path.join(directory, each) for each in (AUTHORITY_FILE, _AUTHORITY_KEY_FILE)]
    if all(map(os.path.exists, paths)):
        with open(paths[0], "rb") as certificate, open(paths[1], "rb") as key:
            return Authority(Pair(certificate.read(), key.read()))
    authority = Authority.create()
    write_pair(directory, AUTHORITY_FILE.removesuffix(".pem"), authority.pair)
    return authority


def _write(path: str, data: bytes, mode: int) -> None:
    # Replaced atomically: a node may read the file at any moment.
    aside = f"{path}.new"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.chmod(aside, mode)
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    os.replace(aside, path)
