"""Administration of access: rules, users, and the mode in which rules are enforced.

Rules and users change no mode. The mode changes only at the request of an administrator who is one
by the rules, and has logged in by a credential: this shows that enforcing the rules locks out no
one who could undo it.
"""

from __future__ import annotations

from dragoman.broker.access_rules import AccessRules
from dragoman.broker.administration import Actor, recorded
from dragoman.broker.changes import Changes
from dragoman.broker.cluster_key import ClusterKeyService
from dragoman.broker.errors import ClusterNotAuthorized, SecurityModeRefused
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.broker.users import Users
from dragoman.broker.work_queue import WorkQueue
from dragoman.cluster.events import Event, SecurityModeChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.security.access import (
    CLUSTER_NAME,
    Caller,
    Operation,
    Principal,
    Resource,
)
from dragoman.security.audit import AuditLog
from dragoman.security.authorizer import ENFORCE, RuleAuthorizer, SecurityMode
from dragoman.security.logins import USER
from dragoman.security.rules import EVERY, Permission, Rule, covers
from dragoman.security.secrets import ClusterKeys
from dragoman.world import Clock, Random


class AccessControl:
    def __init__(
        self,
        image: MetadataImage,
        changes: Changes,
        authorizer: RuleAuthorizer,
        audit: AuditLog,
        keys: ClusterKeys,
        cluster_key: ClusterKeyService,
        work: WorkQueue,
        clock: Clock,
        random: Random,
    ) -> None:
        self._image = image
        self._changes = changes
        self._authorizer = authorizer
        self._audit = audit
        self._lock = KeyedLock()
        self.rules = AccessRules(image, changes, audit, work, self._lock)
        self.users = Users(image, changes, audit, keys, cluster_key, clock, random)

    @property
    def mode(self) -> str:
        return self._image.security_mode

    async def change_mode(self, mode: SecurityMode, actor: Actor) -> None:
        """Returns when the mode holds on this node.

        Raises `ClusterNotAuthorized` for a caller who is no administrator by the rules or has not
        logged in, `SecurityModeRefused` if there would be no administrator, and `ClusterError`
        while a node of the cluster does not know modes.
        """

        def decide() -> list[Event]:
            self._check_administrator(actor.caller)
            if mode == self._image.security_mode:
                return []
            if mode == ENFORCE and not self.has_administrator():
                raise SecurityModeRefused(
                    "nobody could change it back: allow a user `alter` on the cluster, or name one"
                    " in super.users"
                )
            return [SecurityModeChanged(mode=mode)]

        # One queue with the rules, which decide on this.
        with recorded(self._audit, "security.mode", actor, "", (mode,)):
            async with self._lock.take(None):
                await self._changes.make(decide)

    def _check_administrator(self, caller: Caller) -> None:
        if not caller.is_proven:
            raise ClusterNotAuthorized(
                "log in to change the security mode, by password, token or certificate: this shows"
                " that logins work"
            )
        if not self._may_alter(caller):
            raise ClusterNotAuthorized(
                f"{caller.name} may not change the security mode: no rule allows {caller.principal}"
                " `alter` on the cluster, and super.users does not name it"
            )

    def has_administrator(self) -> bool:
        """Whether a super user is configured, or the rules allow a user to alter the cluster."""
        if self._authorizer.super_users or self._may_alter(Caller()):
            return True
        return any(map(self._makes_administrator, self._image.rules))

    def _makes_administrator(self, rule: Rule) -> bool:
        kind, _, name = rule.principal.partition(":")
        host = "" if rule.host == EVERY else rule.host
        return (
            kind == USER
            and rule.resource is Resource.CLUSTER
            and rule.permission is Permission.ALLOW
            and covers(rule, Operation.ALTER)
            # Another rule may deny it.
            and self._may_alter(Caller(Principal(kind, name), host))
        )

    def _may_alter(self, caller: Caller) -> bool:
        decided = self._authorizer.decide(caller, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        return decided.is_allowed
