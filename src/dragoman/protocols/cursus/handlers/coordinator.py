"""Waiting for the coordinator of a group or transaction, on a node that will have it in a moment.

Groups and transactions are kept in internal topics, which are made when they are first needed and
read back after a change of leader. The original keeps them elsewhere and answers at once, so a
client of a fresh cluster does not expect to be refused: its first command waits, for a bounded
time. What another node coordinates is refused at once, with that node's address.
"""

from __future__ import annotations

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import CoordinatorLoading, CoordinatorNotAvailable
from dragoman.broker.global_table import Then
from dragoman.errors import DragomanError
from dragoman.limits import CURSUS_COORDINATOR_RETRY_S, CURSUS_COORDINATOR_WAIT_S
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.world import Handle


def when_coordinated(call: Call, kind: CoordinatorKind, name: str, then: Then) -> None:
    """Call `then` when this node coordinates the group or transaction, or refuse the command."""
    _Waiting(call, kind, name, then).look()


class _Waiting:
    def __init__(self, call: Call, kind: CoordinatorKind, name: str, then: Then) -> None:
        self._call = call
        coordination = call.service.broker.coordination
        is_group = kind is CoordinatorKind.GROUP
        self._require = (
            coordination.groups.require if is_group else coordination.transactions.require
        )
        self._name = name
        self._then = then
        self._deadline = call.service.scheduler.time() + CURSUS_COORDINATOR_WAIT_S
        self._timer: Handle | None = None

    def look(self) -> None:
        call, self._timer = self._call, None
        call.session.release = None
        try:
            self._require(self._name)
        except (CoordinatorLoading, CoordinatorNotAvailable) as error:
            self._wait(error)
        except DragomanError as error:
            call.refuse(error)
        else:
            call.attempt(self._then)

    def _wait(self, error: DragomanError) -> None:
        call, scheduler = self._call, self._call.service.scheduler
        if scheduler.time() >= self._deadline or call.service.broker.is_stopping:
            call.refuse(error)
            return
        self._timer = scheduler.call_later(CURSUS_COORDINATOR_RETRY_S, self.look)
        call.session.release = self._timer.cancel
