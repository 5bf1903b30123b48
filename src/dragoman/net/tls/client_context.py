"""The TLS of connections that a node makes: to other nodes, and to etcd.

Files are read for each connection, so that new certificates and authorities are in use at once.
"""

from __future__ import annotations

import ssl

from dragoman.errors import ConfigError


def client_context(
    ca_file: str, certificate_file: str, key_file: str, purpose: str
) -> ssl.SSLContext:
    """A context that verifies the server's certificate and name. Without `ca_file` the authorities
    of the system count. Raises `ConfigError`, which begins with `purpose`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
        else:
            context.load_default_certs()
        if certificate_file:
            context.load_cert_chain(certificate_file, key_file or None, password=_no_password)
    except OSError as error:
        files = ", ".join(filter(None, (ca_file, certificate_file, key_file)))
        reason = error.strerror or error
        raise ConfigError(f"{purpose}: the files {files} cannot be used: {reason}") from None
    return context


def _no_password() -> str:
    # Without a function, OpenSSL would ask at the terminal.
    raise ConfigError("the key has a password; write it without one, mode 0600")
