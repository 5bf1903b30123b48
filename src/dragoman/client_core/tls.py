"""TLS of clients: what they trust, and the certificate that they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dragoman.errors import ConfigError

if TYPE_CHECKING:
    import ssl


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Files in PEM. `TlsSettings()` trusts what the machine trusts and shows no certificate."""

    #: Authorities whose servers are trusted; empty: those of the machine.
    ca: str = ""
    #: The client's certificate, where servers ask for one.
    certificate: str = ""
    #: The key of the certificate; empty: it is in the certificate's file.
    key: str = ""
    #: Whether the server's certificate is checked. Without that, anyone may be the server.
    verify: bool = True
    #: The name in the server's certificate; empty: the host that is connected to.
    server_name: str = ""

    def context(self) -> ssl.SSLContext:
        """Made for each connection, so that replaced files count. Raises `ConfigError`."""
        # Imported here: clients without TLS start faster.
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"tls: {self.ca}: {_reason(error)}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            try:
                context.load_cert_chain(
                    self.certificate, self.key or None, password=_refuse_password
                )
            except (OSError, ValueError) as error:
                files = " and ".join(filter(None, (self.certificate, self.key)))
                raise ConfigError(f"tls: {files}: {_reason(error)}") from None
        return context


def _refuse_password() -> str:
    # Without a function, OpenSSL would ask at the terminal.
    raise ConfigError("tls: the key has a password; write it without one, mode 0600")


def _reason(error: Exception) -> str:
    if type(error) in (FileNotFoundError, PermissionError, IsADirectoryError):
        return getattr(error, "strerror", "") or str(error)
    reason = getattr(error, "reason", None)
    return str(reason or error).lower().replace("_", " ")
