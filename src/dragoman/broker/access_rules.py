"""Changes of the access rules, and their search.

Rules are values: to add one that exists, or to remove one that does not, changes nothing. A request
with many rules becomes several changes of the metadata, one after the other; if one of them fails,
the ones before it hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from dragoman.broker.administration import Actor, recorded
from dragoman.broker.changes import Changes
from dragoman.broker.errors import InvalidRule, TooManyRules
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.broker.work_queue import Steps, WorkQueue
from dragoman.cluster.events import Event, RulesChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.limits import (
    ACCESS_RULE_TEXT_BYTES_MAX,
    ACCESS_RULES_CHARS_PER_CHANGE,
    ACCESS_RULES_MAX,
    ACCESS_RULES_PER_CHANGE,
    ACCESS_RULES_PER_REQUEST_MAX,
)
from dragoman.security.access import CLUSTER_NAME, Resource
from dragoman.security.audit import AuditLog
from dragoman.security.rule_filter import RuleFilter
from dragoman.security.rules import Rule


class AccessRules:
    def __init__(
        self,
        image: MetadataImage,
        changes: Changes,
        audit: AuditLog,
        work: WorkQueue,
        lock: KeyedLock,
    ) -> None:
        """`lock` orders the changes of rules and of the security mode."""
        self._image = image
        self._changes = changes
        self._audit = audit
        self._work = work
        self._lock = lock

    # ---- reading

    async def find(self, wanted: RuleFilter) -> list[Rule]:
        """The rules that the filter accepts, in the order in which they were added."""
        (found,) = await self._work.run(self._search([wanted]))
        return found

    # ---- changing

    async def add(self, rules: Sequence[Rule], actor: Actor) -> None:
        """Returns when all of them are in force on this node. Raises `InvalidRule` if one cannot
        be.
        """
        wanted = list(dict.fromkeys(rules))
        with recorded(self._audit, "acl.add", actor, "", tuple(map(str, wanted))):
            _check_number(rules)
            for rule in wanted:
                check_rule(rule)
            await self._make(wanted, self._addition)

    async def remove(self, filters: Sequence[RuleFilter], actor: Actor) -> list[list[Rule]]:
        """Remove all rules that one of the filters accepts; returns those of each filter."""
        removed: list[str] = []
        with recorded(self._audit, "acl.remove", actor, "", removed):
            _check_number(filters)
            found = await self._work.run(self._search(filters))
            gone = list(dict.fromkeys(chain.from_iterable(found)))
            await self._make(gone, self._removal)
            removed += map(str, gone)
        return found

    async def _make(self, rules: list[Rule], event: Callable[[list[Rule]], list[Event]]) -> None:
        async with self._lock.take(None):
            for part in _parts(rules):
                await self._changes.make(partial(event, part))

    def _addition(self, rules: list[Rule]) -> list[Event]:
        known = self._image.rules
        new = tuple(rule for rule in rules if rule not in known)
        if len(known) + len(new) > ACCESS_RULES_MAX:
            raise TooManyRules(f"there are {len(known)} access rules; at most {ACCESS_RULES_MAX}")
        return [RulesChanged(added=new)] if new else []

    def _removal(self, rules: list[Rule]) -> list[Event]:
        gone = tuple(rule for rule in rules if rule in self._image.rules)
        return [RulesChanged(removed=gone)] if gone else []

    def _search(self, filters: Sequence[RuleFilter]) -> Steps[list[list[Rule]]]:
        found: list[list[Rule]] = []
        count = 0
        for wanted in filters:
            accepted: list[Rule] = []
            found.append(accepted)
            only = wanted.only_rule()
            if only is not None:
                accepted += [only] if only in self._image.rules else []
                yield 1
                continue
            # A copy, because rules may change between two steps.
            for number, rule in enumerate(tuple(self._image.rules)):
                if wanted.accepts(rule):
                    accepted.append(rule)
                    count += 1
                if number % _RULES_PER_STEP == _RULES_PER_STEP - 1:
                    yield _ITEMS_PER_STEP
            if count > ACCESS_RULES_MAX:
                raise TooManyRules("the filters overlap too much: name each rule once")
            yield 1
        return found


#: Rules that a filter tests in one step, and what that costs, in items of the work queue.
_RULES_PER_STEP = 64
_ITEMS_PER_STEP = 8


def _parts(rules: list[Rule]) -> Iterator[list[Rule]]:
    """The rules in parts that are small enough for one change of the metadata."""
    part: list[Rule] = []
    size = 0
    for rule in rules:
        added = len(rule.principal) + len(rule.host) + len(rule.name)
        is_full = size + added > ACCESS_RULES_CHARS_PER_CHANGE
        if part and (is_full or len(part) >= ACCESS_RULES_PER_CHANGE):
            yield part
            part, size = [], 0
        part.append(rule)
        size += added
    if part:
        yield part


def check_rule(rule: Rule) -> None:
    """Raises `InvalidRule`."""
    kind, colon, name = rule.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidRule(f"the principal {_shown(rule.principal)} is not KIND:NAME")
    if not rule.host:
        raise InvalidRule("the host is empty: expected an address, or * for all")
    if not rule.name:
        raise InvalidRule("the name of the resource is empty: expected a name, or * for all")
    if rule.resource is Resource.CLUSTER and rule.name != CLUSTER_NAME:
        raise InvalidRule(f"the only name of a cluster is {CLUSTER_NAME}, not {_shown(rule.name)}")
    for text in (rule.principal, rule.host, rule.name):
        # A surrogate counts as it would be written, although it cannot be.
        if len(text.encode(errors="surrogatepass")) > ACCESS_RULE_TEXT_BYTES_MAX:
            raise InvalidRule(f"a text has more than {ACCESS_RULE_TEXT_BYTES_MAX} bytes")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise InvalidRule(f"{_shown(text)} is not Unicode text")


def _check_number(items: Sequence[object]) -> None:
    if len(items) > ACCESS_RULES_PER_REQUEST_MAX:
        raise TooManyRules(
            f"a request names at most {ACCESS_RULES_PER_REQUEST_MAX} access rules or filters"
        )


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 100 else f"{text[:99]}…")
