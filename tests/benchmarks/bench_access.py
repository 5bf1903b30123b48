"""What a decision about access costs, with 10,000 rules.

Run: PYTHONPATH=src python tests/benchmarks/bench_access.py

A produce request of one batch costs a node about 10 us, so a decision may cost 0.2 us of it.
"""

from __future__ import annotations

import platform
import sys
import timeit
from collections.abc import Callable
from time import perf_counter

from dragoman.captures.rights import CaptureAuthorizer
from dragoman.cluster.events import RulesChanged, SecurityModeChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.authorizer import AllowAll, Authorizer, RuleAuthorizer
from dragoman.security.rules import Pattern, Permission, Rule

RULES = 10_000
NUMBER = 200_000
ALICE = Caller(Principal("User", "user-7"), "10.0.0.7")


def rule(number: int) -> Rule:
    """Rules of 100 users: half prefixed in 20 lengths, a tenth denies, a fifth for one address."""
    prefix = "p" * (number % 20)
    return Rule(
        principal=f"User:user-{number % 100}",
        host="*" if number % 5 else f"10.0.{number % 250}.1",
        operation=(Operation.WRITE, Operation.READ, Operation.ALL)[number % 3],
        permission=Permission.ALLOW if number % 10 else Permission.DENY,
        resource=Resource.TOPIC,
        pattern=Pattern.PREFIXED if number % 2 else Pattern.LITERAL,
        name=f"{prefix}topic-{number}",
    )


def metadata(mode: str) -> MetadataImage:
    image = MetadataImage()
    image.apply(SecurityModeChanged(mode=mode))
    image.apply(RulesChanged(added=tuple(map(rule, range(RULES)))))
    return image


def authorizer(mode: str) -> RuleAuthorizer:
    return RuleAuthorizer(metadata(mode))


def of_a_node(mode: str) -> CaptureAuthorizer:
    image = metadata(mode)
    return CaptureAuthorizer(image, RuleAuthorizer(image))


def nanoseconds(operation: Callable[[], object], number: int = NUMBER) -> float:
    operation()
    return min(timeit.repeat(operation, number=number, repeat=7)) / number * 1e9


def asking(authorizer: Authorizer, caller: Caller) -> Callable[[], object]:
    # Names come from requests: equal, and not the same object.
    name = "".join(["topic-", "1007"])
    is_allowed, write, topic = authorizer.is_allowed, Operation.WRITE, Resource.TOPIC
    return lambda: is_allowed(caller, write, topic, name)


def main() -> None:
    print(f"{platform.python_implementation()} {platform.python_version()}, {sys.platform}")
    enforcing = authorizer("enforce")
    started = perf_counter()
    enforcing.is_allowed(ALICE, Operation.WRITE, Resource.TOPIC, "t")
    built = perf_counter() - started
    again = Caller(Principal("User", "user-7"), "10.0.0.7")
    any_topic = enforcing._index.is_allowed_on_any
    rows = {
        "empty function": nanoseconds(lambda: None),
        "no authorizer": nanoseconds(asking(AllowAll(), ALICE)),
        "mode open": nanoseconds(asking(authorizer("open"), ALICE)),
        "mode open, as a node has it": nanoseconds(asking(of_a_node("open"), ALICE)),
        "enforce, as a node has it": nanoseconds(asking(of_a_node("enforce"), ALICE)),
        "enforce, decided before": nanoseconds(asking(enforcing, ALICE)),
        "the same, another connection": nanoseconds(asking(enforcing, again)),
        "enforce, not decided before": nanoseconds(
            lambda: enforcing.decide(ALICE, Operation.WRITE, Resource.TOPIC, "topic-1007"), 20_000
        ),
        "on any topic, not decided before": nanoseconds(
            lambda: any_topic(ALICE, Operation.WRITE, Resource.TOPIC), 2_000
        ),
    }
    for what, cost in rows.items():
        print(f"{what:34} {cost:9,.0f} ns")
    print(f"{f'index of {RULES:,} rules':34} {built * 1e3:9.1f} ms")


if __name__ == "__main__":
    main()
