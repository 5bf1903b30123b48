"""The coordinators of this node, of groups and of transactions, for the partitions that it leads.

Both keep their state in an internal topic. This module has their common parts: leadership of the
topics' partitions, the directory of coordinators, and timers.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from dragoman.broker.context import NodeContext
from dragoman.broker.directory import Directory
from dragoman.broker.groups.coordinator import GroupCoordinator
from dragoman.broker.internal_topic import InternalTopic
from dragoman.broker.transactions.service import Transactions
from dragoman.config.settings import Settings
from dragoman.limits import TRANSACTION_EXPIRY_INTERVAL_S, TRANSACTION_RETRY_INTERVAL_S
from dragoman.rpc import Coordinator
from dragoman.world import Handle


class CoordinatorKind(Enum):
    """The kinds of coordinators."""

    GROUP = "group"
    TRANSACTION = "transaction"


class Coordination:
    def __init__(
        self,
        context: NodeContext,
        directory: Directory,
        groups: GroupCoordinator,
        transactions: Transactions,
    ) -> None:
        self._context = context
        self._directory = directory
        self.groups = groups
        self.transactions = transactions
        self._logs: dict[CoordinatorKind, InternalTopic] = {
            CoordinatorKind.GROUP: groups.log,
            CoordinatorKind.TRANSACTION: transactions.log,
        }
        for log in self._logs.values():
            directory.add(log)
        self._timers: dict[str, Handle] = {}
        self._arm: dict[str, Callable[[], None]] = {}

    # ---- life cycle

    def start(self) -> None:
        """Start the periodic work."""
        transactions = self.transactions.coordinator
        self._every("offsets", self._offsets_interval_s, self.groups.expire_offsets)
        self._every("time-outs", self._time_outs_interval_s, transactions.abort_timed_out)
        self._every("retries", lambda: TRANSACTION_RETRY_INTERVAL_S, transactions.retry_failed)
        self._every("expiry", lambda: TRANSACTION_EXPIRY_INTERVAL_S, transactions.expire_idle)

    def _offsets_interval_s(self) -> float:
        return self._context.settings.offsets_retention_check_interval_ms / 1000

    def _time_outs_interval_s(self) -> float:
        settings = self._context.settings
        return settings.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000

    def _every(
        self, name: str, interval_s: Callable[[], float], action: Callable[[], object]
    ) -> None:
        def due() -> None:
            action()
            arm()

        def arm() -> None:
            self._timers[name] = self._context.scheduler.call_later(interval_s(), due)

        self._arm[name] = arm
        arm()

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings."""
        self.groups.reconfigure(settings)
        self.transactions.reconfigure(settings)
        for name in ("offsets", "time-outs"):
            timer = self._timers.get(name)
            if timer is not None:
                timer.cancel()
                self._arm[name]()

    def close(self) -> None:
        """Refuse all waiting requests: another node will coordinate."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for each in self._logs.values():
            each.close()
        self.groups.close()
        self.transactions.close()

    # ---- coordinators

    def coordinator_of(self, kind: CoordinatorKind, name: str) -> int:
        """The node that coordinates a name, or -1 while there is none."""
        return self._logs[kind].leader_of(name)

    async def find_coordinator(self, kind: CoordinatorKind, name: str) -> int:
        """The node that coordinates a name. Creates the internal topic if it does not exist. Raises
        `CoordinatorNotAvailable` while there is none.
        """
        return await self._directory.locate(Coordinator(self._logs[kind].name, name))

    def require_loaded(self, kind: CoordinatorKind) -> None:
        """Raises `CoordinatorLoading` while any partition is being loaded."""
        self._logs[kind].require_loaded()
