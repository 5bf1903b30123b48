"""The question that the broker asks before it acts for a caller, and the answer by rules.

The mode of the cluster says what becomes of the answer: `open` asks nothing, `audit` reports what
would be refused and allows it, `enforce` refuses. Decisions are kept until the rules change, since
few callers ask for the same few resources again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from dragoman.limits import ACCESS_DECISIONS_KEPT_MAX, ACCESS_NAME_KEPT_CHARS_MAX
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.rules import Decision, Reason, Rule, RuleIndex

SecurityMode: TypeAlias = Literal["open", "audit", "enforce"]
OPEN: Final = "open"
AUDIT: Final = "audit"
ENFORCE: Final = "enforce"
#: The kind of principal of a node in requests to other nodes.
NODE_KIND: Final = "Node"
#: The kind of principal of the operator who administers a node from its own machine.
OPERATOR_KIND: Final = "Operator"


class Authorizer(Protocol):
    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool: ...

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        """The same answer for filters and alternatives, where a negative one refuses nothing and is
        not reported.
        """
        ...

    def allowed_among(
        self, caller: Caller, operation: Operation, resource: Resource, names: Collection[str]
    ) -> frozenset[str]:
        """The names for which `may` is true, for many of them at once."""
        ...

    def is_allowed_on_any(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Whether there is a resource of the kind, existing or not, on which the caller is allowed
        the operation.
        """
        ...

    def generalized(self, caller: Caller) -> Caller:
        """The caller without its host, unless some rule names the host. Callers that are
        generalized to the same have the same rights until the rules change.
        """
        ...


class AllowAll:
    """The authorizer of a node without rules."""

    def is_allowed(
        self,
        caller: Caller,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource: Resource,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> bool:
        return True

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        return self.is_allowed(caller, operation, resource, name)

    def allowed_among(
        self, caller: Caller, operation: Operation, resource: Resource, names: Collection[str]
    ) -> frozenset[str]:
        return frozenset(name for name in names if self.may(caller, operation, resource, name))

    def is_allowed_on_any(
        self,
        caller: Caller,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource: Resource,  # noqa: ARG002
    ) -> bool:
        return True

    def generalized(self, caller: Caller) -> Caller:
        return caller


class RuleBook(Protocol):
    """What the authorizer reads of the metadata image."""

    @property
    def security_mode(self) -> str: ...

    @property
    def rules(self) -> Mapping[Rule, None]: ...

    #: Changes with the rules, by one with each event.
    @property
    def rules_revision(self) -> int: ...


class OnRefused(Protocol):
    def __call__(
        self, caller: Caller, operation: Operation, resource: Resource, name: str | None, /
    ) -> None:
        """A request was refused, or would be if rules were enforced. Without a name, the caller is
        allowed the operation on no resource of the kind.
        """
        ...


class RuleAuthorizer:
    def __init__(
        self,
        book: RuleBook,
        super_users: Sequence[str] = (),
        *,
        allow_everyone: bool = False,
    ) -> None:
        """`super_users` are principals; `allow_everyone` opens resources that no rule matches."""
        self._book = book
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._index = RuleIndex()
        #: The revision of the rules in the index.
        self._revision = -1
        #: By principal, host and question; without a name, the question is about any resource of
        #: the kind.
        self._kept: dict[tuple[Principal, str, Operation, Resource, str | None], bool] = {}
        self.on_refused: OnRefused = _ignore

    @property
    def super_users(self) -> frozenset[str]:
        return self._super_users

    # ---- questions

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        if self._book.security_mode == OPEN:
            return True
        return self._is_allowed(caller, operation, resource, name) or self._is_overlooked(
            caller, operation, resource, name
        )

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        if self._book.security_mode != ENFORCE:
            return True
        return self._is_allowed(caller, operation, resource, name)

    def _is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        """What the rules say."""
        if self._book.rules_revision != self._revision:
            self._read_rules()
        is_allowed = self._kept.get((caller.principal, caller.host, operation, resource, name))
        if is_allowed is None:
            is_allowed = self.decide(caller, operation, resource, name).is_allowed
            self._keep(caller, operation, resource, name, is_allowed)
        return is_allowed

    def allowed_among(
        self, caller: Caller, operation: Operation, resource: Resource, names: Collection[str]
    ) -> frozenset[str]:
        if self._book.security_mode != ENFORCE or self._is_exempt(caller) is not None:
            return frozenset(names)
        if self._book.rules_revision != self._revision:
            self._read_rules()
        return self._index.allowed_among(
            caller, operation, resource, names, allow_unmatched=self._allow_everyone
        )

    def is_allowed_on_any(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        if self._book.security_mode == OPEN:
            return True
        if self._book.rules_revision != self._revision:
            self._read_rules()
        is_allowed = self._kept.get((caller.principal, caller.host, operation, resource, None))
        if is_allowed is None:
            is_allowed = self._is_exempt(caller) is not None or self._index.is_allowed_on_any(
                caller, operation, resource, allow_unmatched=self._allow_everyone
            )
            self._keep(caller, operation, resource, None, is_allowed)
        return is_allowed or self._is_overlooked(caller, operation, resource, None)

    def generalized(self, caller: Caller) -> Caller:
        if self._book.rules_revision != self._revision:
            self._read_rules()
        host = caller.host if self._index.names_host(caller.host) else ""
        return Caller(caller.principal, host)

    def decide(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> Decision:
        """What the rules say, in any mode."""
        exempt = self._is_exempt(caller)
        if exempt is not None:
            return Decision(True, exempt)
        if self._book.rules_revision != self._revision:
            self._read_rules()
        return self._index.decide(
            caller, operation, resource, name, allow_unmatched=self._allow_everyone
        )

    def _is_exempt(self, caller: Caller) -> Reason | None:
        """The reason for which rules do not apply to the caller; None: they apply."""
        kind = caller.principal.kind
        if kind == NODE_KIND:
            return Reason.NODE
        if kind == OPERATOR_KIND or str(caller.principal) in self._super_users:
            return Reason.SUPER_USER
        return None

    def _is_overlooked(
        self, caller: Caller, operation: Operation, resource: Resource, name: str | None
    ) -> bool:
        """Report a request that the rules do not allow. Whether it is allowed all the same."""
        self.on_refused(caller, operation, resource, name)
        return self._book.security_mode == AUDIT

    # ---- the index and the decisions

    def _keep(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
        name: str | None,
        is_allowed: bool,
    ) -> None:
        if name is not None and len(name) > ACCESS_NAME_KEPT_CHARS_MAX:
            return
        if len(self._kept) >= ACCESS_DECISIONS_KEPT_MAX:
            self._kept.clear()
        self._kept[caller.principal, caller.host, operation, resource, name] = is_allowed

    def _read_rules(self) -> None:
        """Build the index anew: the first time, and when the metadata was replaced."""
        self._index = RuleIndex(self._book.rules)
        self._revision = self._book.rules_revision
        self._kept.clear()

    def rules_changed(self, added: Sequence[Rule], removed: Sequence[Rule]) -> None:
        """The metadata has removed and added rules, in this order. Keeps the index current without
        building it anew; an index that has missed a change is built with the next question.
        """
        if self._revision != self._book.rules_revision - 1:
            return
        for rule in removed:
            self._index.remove(rule)
        for rule in added:
            self._index.add(rule)
        self._revision += 1
        self._kept.clear()


def _ignore(_caller: Caller, _operation: Operation, _resource: Resource, _name: str | None) -> None:
    return None
