"""What connections between nodes use of TLS and of the nodes' secret: settings, files, evidence.

Files are read when a connection is made, so that a new certificate, authority or secret is in use
as soon as it is there. Connections that exist keep what they began with.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final, Protocol

from dragoman.config.listeners import Requirement
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError
from dragoman.limits import PEER_SECRET_BYTES_MIN, PEER_SECRET_FILE_BYTES_MAX
from dragoman.net.peer_handshake import Evidence, Policy

LISTENER: Final = "peer"


class PeerSecurity(Protocol):
    """The settings of the moment. Both methods raise `ConfigError` for unusable files."""

    @property
    def tls(self) -> Requirement:
        """Whether connections to other nodes are TLS; `optional`: if the other node has it."""
        ...

    def policy(self) -> Policy: ...

    def client_context(self) -> ssl.SSLContext: ...


class OpenPeers:
    """No TLS, and no authentication."""

    tls: Requirement = "off"

    def policy(self) -> Policy:
        return Policy()

    def client_context(self) -> ssl.SSLContext:
        raise ConfigError("nodes do not use TLS here")


class ConfiguredPeers:
    """By the settings of the listener `peer`."""

    def __init__(
        self, settings: Callable[[], Settings], read_private: Callable[[str, int], bytes]
    ) -> None:
        """`read_private` reads a file of at most so many bytes. Raises `OSError`."""
        self._settings = settings
        self._read_private = read_private

    @property
    def tls(self) -> Requirement:
        return self._settings().listener_security(LISTENER).tls

    def policy(self) -> Policy:
        settings = self._settings()
        authentication = settings.listener_security(LISTENER).authentication
        path = settings.peer_secret_file
        return Policy(
            authentication=authentication,
            secrets=self._secrets(path) if path and authentication != "off" else (),
            names=settings.peer_certificate_names,
        )

    def _secrets(self, path: str) -> tuple[bytes, ...]:
        try:
            data = self._read_private(path, PEER_SECRET_FILE_BYTES_MAX)
        except OSError as error:
            raise ConfigError(f"peer.secret.file: {path}: {error.strerror or error}") from None
        secrets = tuple(line for line in map(bytes.strip, data.splitlines()) if line)
        if not secrets or min(map(len, secrets)) < PEER_SECRET_BYTES_MIN:
            raise ConfigError(
                f"peer.secret.file: {path}: expected lines of at least {PEER_SECRET_BYTES_MIN} "
                "characters, each a secret"
            )
        return secrets

    def client_context(self) -> ssl.SSLContext:
        # Imported here: it is needed for connections with TLS only.
        from dragoman.net.tls.contexts import client_context

        options = self._settings().listener_tls(LISTENER)
        context = client_context(
            options.ca_file, options.certificate_file, options.key_file, "TLS between nodes"
        )
        # All nodes with TLS have this version, by which secrets are proven.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The id in a node's certificate counts, not its address.
        context.check_hostname = False
        if not options.ca_file:
            # The authorities of the system sign no nodes. The secret recognises them.
            context.verify_mode = ssl.CERT_NONE
        return context


def evidence_of(tls: ssl.SSLObject | None) -> Evidence:
    """What a connection shows of its other end; without TLS, nothing."""
    if tls is None:
        return Evidence()
    # Imported here: it is needed for connections with TLS only.
    from dragoman.net.tls.peer_certificate import certificate_of

    # A Finished message of TLS 1.3 covers the whole handshake, the server's certificate included.
    # Nodes resume no sessions.
    is_bound = tls.version() == "TLSv1.3" and not tls.session_reused
    binding = tls.get_channel_binding("tls-unique") if is_bound else None
    return Evidence(certificate=certificate_of(tls), binding=binding or b"")
