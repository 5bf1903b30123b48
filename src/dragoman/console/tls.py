"""TLS with browsers: files that have changed are in use for the next connections."""

from __future__ import annotations

import asyncio
import ssl

from dragoman.config.settings import TlsOptions
from dragoman.limits import TLS_FILES_CHECK_INTERVAL_S
from dragoman.net.tls.contexts import ListenerContext
from dragoman.operating_system import RealPlainFiles, SystemClock


class BrowserTls:
    def __init__(self, options: TlsOptions) -> None:
        """Raises `ConfigError` for files that cannot be used."""
        self._options = options
        self._files = ListenerContext("console", lambda: options, RealPlainFiles(), SystemClock())
        self._files.load()
        self._current = self._loaded()
        #: What the server was opened with; it stays the same object.
        self.context = self._current

    def _loaded(self) -> ssl.SSLContext:
        context = self._files.current()
        assert context is not None
        return context

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(TLS_FILES_CHECK_INTERVAL_S)
            self.check()

    def check(self) -> None:
        """Look whether the files have changed. What cannot be used leaves the old ones in use."""
        self._files.check()
        found = self._loaded()
        if found is not self._current:
            self._current = found
            options = self._options
            key_file = options.key_file or options.certificate_file
            self.context.load_cert_chain(options.certificate_file, key_file)
