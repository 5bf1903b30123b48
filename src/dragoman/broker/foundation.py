"""What a new cluster begins with: users and rules of a file, and the security mode.

The file (`bootstrap.users.file`, `first_access.py`) counts once, while the cluster has neither
users nor rules; then it may go. A cluster that is founded with a listener which requires a login
enforces its rules from the beginning. Clusters with topics are not new: nothing is changed in
those, except by the node that has founded the cluster and was faster than its first clients.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from dragoman.broker.changes import Changes
from dragoman.broker.context import NodeContext
from dragoman.cluster.events import Event, FeatureLevelChanged, SecurityModeChanged
from dragoman.cluster.metadata import SECURITY_MODE_FIRST
from dragoman.errors import ConfigError, DragomanError
from dragoman.limits import BOOTSTRAP_FILE_BYTES_MAX
from dragoman.outcome import attempt, start
from dragoman.plural import plural
from dragoman.security.audit import AuditLog, noticed
from dragoman.security.authorizer import ENFORCE
from dragoman.security.passwords import PasswordHasher
from dragoman.security.secrets import ClusterKeys
from dragoman.world import SecretSource

if TYPE_CHECKING:
    from dragoman.broker.first_access import FoundedAccess

log = logging.getLogger("dragoman.security")
_KEY: Final = "bootstrap.users.file"


class Foundation:
    def __init__(
        self,
        context: NodeContext,
        changes: Changes,
        keys: ClusterKeys,
        hasher: PasswordHasher,
        audit: AuditLog,
        source: SecretSource,
    ) -> None:
        self._context = context
        self._changes = changes
        self._keys = keys
        self._hasher = hasher
        self._audit = audit
        self._source = source
        self._is_started = False
        self._is_busy = False
        #: Whether this process has founded the cluster.
        self._is_founder = False

    def founded(self) -> None:
        """This node has founded the cluster."""
        self._is_founder = True

    async def begin(self) -> None:
        """Raises `ConfigError` for a file that cannot be used. Anything else is tried again when
        the cluster uses another feature level.
        """
        self._is_started = True
        await self._apply()

    def applied(self, event: Event | None) -> None:
        if self._is_started and (event is None or isinstance(event, FeatureLevelChanged)):
            # In a later turn: committed events are being applied.
            self._context.scheduler.call_soon(self._try)

    def _try(self) -> None:
        start(self._apply()).then(_report)

    # ---- what is due

    @property
    def _is_new(self) -> bool:
        return self._is_founder or not self._context.image.topics

    @property
    def _lacks_users(self) -> bool:
        image = self._context.image
        return not image.users and not image.rules

    @property
    def _lacks_mode(self) -> bool:
        settings = self._context.settings
        return self._context.image.security_mode == SECURITY_MODE_FIRST and any(
            settings.listener_security(each.name).authentication == "required"
            for each in settings.listeners
            if each.base != "peer"
        )

    async def _apply(self) -> None:
        path = self._context.settings.bootstrap_users_file
        has_file = bool(path) and self._lacks_users
        if self._is_busy or not self._is_new or not (has_file or self._lacks_mode):
            return
        self._is_busy = True
        try:
            first = await self._read(path) if has_file else None
        finally:
            self._is_busy = False

        def decide() -> list[Event]:
            events: list[Event] = []
            if self._lacks_users and first is not None:
                events += first.events(self._context.image, self._context.random)
            if self._lacks_mode:
                events.append(SecurityModeChanged(mode=ENFORCE))
            return events

        before = self._lacks_users, self._lacks_mode
        outcome = await attempt(self._changes.make(decide))
        if isinstance(outcome, DragomanError):
            log.info("the first users and the security mode have to wait: %s", outcome)
            return
        if before[0] and first is not None:
            users, rules = plural(len(first.users), "user"), plural(len(first.rules), "rule")
            said = f"{users} and {rules} of {path}"
            log.info("the cluster begins with %s; the file may go", said)
            self._audit.record(noticed("bootstrap.users", detail=said))
        if before[1]:
            log.info("a listener requires a login, so the new cluster enforces its rules")
            self._audit.record(noticed("bootstrap.mode", detail=ENFORCE))

    async def _read(self, path: str) -> FoundedAccess | None:
        """None when there is no such file: it may have gone. Raises `ConfigError`."""
        # Imported here: a file is read once in the life of a cluster.
        from dragoman.broker.first_access import decode_access

        try:
            data = self._source.read(path, BOOTSTRAP_FILE_BYTES_MAX, is_private=True)
        except FileNotFoundError:
            log.warning("%s: there is no %s, and the cluster has no users", _KEY, path)
            return None
        except OSError as error:
            raise ConfigError(f"{_KEY}: {path}: {error.strerror or error}") from None
        try:
            return await decode_access(data, path, self._keys, self._hasher, self._context.random)
        except ConfigError as error:
            raise ConfigError(f"{_KEY}: {error}") from None


def _report(error: DragomanError | None) -> None:
    if error is not None:
        log.error("%s", error)
