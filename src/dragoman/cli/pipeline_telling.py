"""Tells a node how a pipeline is, beside the pipeline: a node that is away holds nothing up."""

from __future__ import annotations

import threading
from types import TracebackType

from dragoman.cli.remote import Remote
from dragoman.cli.status import CommandError, say
from dragoman.pipelines.state import Status

#: Between two reports of the same state.
_PAUSE_S = 2.0
_LAST_WORD_S = 5.0
#: Without anything new the last report is sent again: a node takes a silent pipeline for dead.
_AGAIN_S = 10.0


class Telling:
    """Only the newest status is kept: a report that was not sent is replaced by the next."""

    def __init__(self, server: str) -> None:
        self._remote = Remote(server) if server else None
        self._is_new = threading.Event()
        self._is_over = threading.Event()
        self._newest: Status | None = None
        self._has_complained = False
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Telling:
        if self._remote is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._is_new.set()
        if self._remote is not None:
            self._thread.join(_LAST_WORD_S)

    def tell(self, status: Status) -> None:
        self._newest = status
        self._is_new.set()

    def _send(self) -> None:
        assert self._remote is not None
        while True:
            self._is_new.wait(_AGAIN_S)
            self._is_new.clear()
            # Looked at before the status is, so that the last one is sent.
            is_over = self._is_over.is_set()
            try:
                if self._newest is not None:
                    self._remote.tell("/api/v1/pipelines", self._newest)
            except CommandError as error:
                if not self._has_complained:
                    say(f"the pipeline runs, but is not reported: {error}")
                self._has_complained = True
            if is_over:
                return
            self._is_over.wait(_PAUSE_S)
