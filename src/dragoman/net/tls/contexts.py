"""The certificates of this node, and their files.

Each listener has a context of OpenSSL, made from the files in its settings. When a file changes, or
the settings do, the next handshakes get a new one; connections keep what they began with. A new
context knows nothing of the old one's sessions, so a client whose authority was removed cannot
resume one. Files that cannot be used, because certificate and key do not match, for one, are
reported once, and the listener keeps what it has.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dragoman.config.settings import TlsOptions
from dragoman.errors import ConfigError
from dragoman.limits import TLS_FILE_BYTES_MAX, TLS_FILES_CHECK_INTERVAL_S
from dragoman.world import Clock, FileStamp, Handle, PlainFiles, Scheduler

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger("dragoman.net")
_CERTIFICATES = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class Loaded(NamedTuple):
    """A context, and what its certificate says."""

    context: ssl.SSLContext
    subject: str
    expires_ms: int


class CertificateState(msgspec.Struct, frozen=True):
    """The certificate of a listener at the moment."""

    listener: str
    #: RFC 2253. Empty: there is no certificate that can be used.
    subject: str
    expires_ms: int
    #: Why the files cannot be used as they are now; empty: they are in use.
    problem: str


class ListenerContext:
    """The context of one listener at the moment."""

    def __init__(
        self,
        listener: str,
        options: Callable[[], TlsOptions],
        files: PlainFiles,
        clock: Clock,
    ) -> None:
        """`options` returns the settings of the moment."""
        self._listener = listener
        self._options = options
        self._files = files
        self._clock = clock
        self._loaded: Loaded | None = None
        #: What was last tried, whether it could be used or not.
        self._tried: TlsOptions | None = None
        self._stamps: tuple[FileStamp | None, ...] = ()
        self._refused = ""

    def current(self) -> ssl.SSLContext | None:
        """None when there is no certificate that can be used."""
        options = self._options()
        if options != self._tried:
            self._try(options)
        return None if self._loaded is None else self._loaded.context

    def load(self) -> None:
        """Raises `ConfigError` for files that cannot be used."""
        if self.current() is None:
            raise ConfigError(self._refused)

    def check(self, *, is_forced: bool = False) -> None:
        """Load the files again if they have changed."""
        if self._tried is None:
            # No connection has asked for TLS on this listener.
            return
        options = self._options()
        if is_forced or options != self._tried or self._stamps != self._current_stamps(options):
            self._try(options)

    def _current_stamps(self, options: TlsOptions) -> tuple[FileStamp | None, ...]:
        return tuple(map(self._files.stamp, options.files))

    def _try(self, options: TlsOptions) -> None:
        # Before the files are read: a change from now on is found by the next check.
        self._stamps = self._current_stamps(options)
        self._tried = options
        is_first = self._loaded is None
        try:
            self._loaded = make_context(options, self._files, self._clock.wall_ms())
        except ConfigError as error:
            self._refused = f"listener {self._listener}: {error}"
            kept = "" if is_first else "; new connections keep the ones before"
            log.error("%s%s", self._refused, kept)
            return
        self._refused = ""
        if not is_first:
            log.info("listener %s: new certificates are in use", self._listener)

    def state(self) -> CertificateState | None:
        """None for a listener that has not had TLS."""
        if self._tried is None:
            return None
        loaded = self._loaded
        return CertificateState(
            self._listener,
            "" if loaded is None else loaded.subject,
            0 if loaded is None else loaded.expires_ms,
            self._refused,
        )


class TlsContexts:
    """The contexts of a node's listeners; their files are checked periodically."""

    def __init__(self, files: PlainFiles, clock: Clock, scheduler: Scheduler) -> None:
        self._files = files
        self._clock = clock
        self._scheduler = scheduler
        self._contexts: dict[str, ListenerContext] = {}
        self._timer: Handle | None = None

    def of(self, listener: str, options: Callable[[], TlsOptions]) -> ListenerContext:
        if listener not in self._contexts:
            self._contexts[listener] = ListenerContext(listener, options, self._files, self._clock)
        return self._contexts[listener]

    def watch(self) -> None:
        self._timer = self._scheduler.call_later(TLS_FILES_CHECK_INTERVAL_S, self._check)

    def _check(self) -> None:
        self.watch()
        for context in self._contexts.values():
            context.check()

    def reload(self) -> None:
        """Load all files again, whether they have changed or not."""
        for context in self._contexts.values():
            context.check(is_forced=True)

    def states(self) -> list[CertificateState]:
        """Of every listener with TLS."""
        states = (each.state() for each in self._contexts.values())
        return [each for each in states if each is not None]

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def make_context(options: TlsOptions, files: PlainFiles, now_ms: int) -> Loaded:
    """A server's context. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 1
    leaf = _load_pair(context, options, files, now_ms)
    if options.cipher_suites:
        try:
            context.set_ciphers(":".join(options.cipher_suites))
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites: OpenSSL knows none of {', '.join(options.cipher_suites)}"
            ) from None
    if options.ca_file and options.client_certificates != "none":
        authorities = _read(options.ca_file, "ssl.ca.file", files)
        try:
            context.load_verify_locations(cadata=authorities.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError, ValueError):
            raise ConfigError(
                f"ssl.ca.file: {options.ca_file} has no certificates in PEM"
            ) from None
        context.verify_mode = _CERTIFICATES[options.client_certificates]
    expires_ms = int(leaf.not_valid_after_utc.timestamp() * 1000)
    return Loaded(context, leaf.subject.rfc4514_string(), expires_ms)


def _load_pair(
    context: ssl.SSLContext, options: TlsOptions, files: PlainFiles, now_ms: int
) -> x509.Certificate:
    path, key_path = options.certificate_file, options.key_file or options.certificate_file
    certificate = _read(path, "ssl.certificate.file", files)
    _read(key_path, "ssl.key.file", files)
    leaf = _current_certificate(certificate, path, now_ms)
    try:
        context.load_cert_chain(path, key_path, password=partial(_no_password, "ssl.key.file"))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"the key in {key_path} is not that of the certificate in {path}"
        else:
            reason = f"{key_path} has no key in PEM for the certificate in {path}"
        raise ConfigError(f"ssl.key.file: {reason}") from None
    except OSError as error:
        raise ConfigError(f"ssl.certificate.file: {path}: {error.strerror or error}") from None
    return leaf


def _no_password(where: str) -> str:
    # Without a function, OpenSSL would ask at the terminal.
    raise ConfigError(f"{where}: the key has a password; write it without one, mode 0600")


def _read(path: str, key: str, files: PlainFiles) -> bytes:
    try:
        return files.read(path, TLS_FILE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror or error}") from None


def _current_certificate(certificate: bytes, path: str, now_ms: int) -> x509.Certificate:
    """The first certificate of a file. Raises `ConfigError` for what is none, or is not valid
    now.
    """
    # Imported here: only nodes with TLS need it.
    from cryptography import x509

    try:
        leaf = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise ConfigError(f"ssl.certificate.file: {path} has no certificate in PEM") from None
    if now_ms > leaf.not_valid_after_utc.timestamp() * 1000:
        raise ConfigError(
            f"ssl.certificate.file: the certificate in {path} has expired on"
            f" {leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        )
    if now_ms < leaf.not_valid_before_utc.timestamp() * 1000:
        raise ConfigError(
            f"ssl.certificate.file: the certificate in {path} is valid only from"
            f" {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
        )
    return leaf


def client_context(
    ca_file: str, certificate_file: str, key_file: str, purpose: str
) -> ssl.SSLContext:
    """A context for a connection that this node makes, to another node or to etcd. It verifies the
    server's certificate and name; without `ca_file` the authorities of the system count. The files
    are read for each connection, so that new ones are in use at once. Raises `ConfigError`, which
    begins with `purpose`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
        else:
            context.load_default_certs()
        if certificate_file:
            context.load_cert_chain(
                certificate_file, key_file or None, password=partial(_no_password, purpose)
            )
    except OSError as error:
        files = ", ".join(filter(None, (ca_file, certificate_file, key_file)))
        reason = error.strerror or error
        raise ConfigError(f"{purpose}: the files {files} cannot be used: {reason}") from None
    return context
