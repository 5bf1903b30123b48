"""Goal: the index of the rules decides as Kafka's authorizer does.

Method: random rules over few names, hosts and principals, with many overlaps, and a model that
tests every rule for every question. Rules are added and removed one by one, and an index that is
kept current is compared with one that is built anew.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.cluster.codec import encode_image, restore_image
from dragoman.cluster.events import RulesChanged, SecurityModeChanged, UserChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.authorizer import RuleAuthorizer
from dragoman.security.rules import Pattern, Permission, Reason, Rule, RuleIndex
from dragoman.security.users import ApiToken, ScramVerifier, SealedSecret, User

NAMES = ("a", "ab", "abc", "b", "ba", "*", "é", "éa", "😀", "😀a", "a" * 300)
HOSTS = ("10.0.0.1", "::1", "example")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "User:CN=a,OU=b", "Node:1")
KINDS = (Resource.TOPIC, Resource.GROUP)

rules = st.builds(
    Rule,
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from((*HOSTS, "*")),
    operation=st.sampled_from(Operation),
    permission=st.sampled_from(Permission),
    resource=st.sampled_from(KINDS),
    pattern=st.sampled_from(Pattern),
    name=st.sampled_from(NAMES),
)
callers = st.builds(
    Caller,
    st.builds(lambda text: Principal(*text.split(":", 1)), st.sampled_from(PRINCIPALS)),
    st.sampled_from((*HOSTS, "", "10.0.0.2")),
)
questions = st.tuples(
    callers,
    st.sampled_from([each for each in Operation if each is not Operation.ALL]),
    st.sampled_from(KINDS),
    st.sampled_from((*NAMES, "", "abcd", "c", "éab")),
)

DESCRIBING = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)


def matches_name(rule: Rule, resource: Resource, name: str) -> bool:
    if rule.resource is not resource:
        return False
    if rule.pattern is Pattern.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, "*")


def applies(rule: Rule, caller: Caller, operation: Operation) -> bool:
    if rule.principal not in (str(caller.principal), "User:*"):
        return False
    if rule.host != "*" and rule.host != caller.host:
        return False
    if rule.operation in (Operation.ALL, operation):
        return True
    if rule.permission is Permission.DENY:
        return False
    if operation is Operation.DESCRIBE:
        return rule.operation in DESCRIBING
    return operation is Operation.DESCRIBE_CONFIGS and rule.operation is Operation.ALTER_CONFIGS


def decide(
    known: list[Rule], caller: Caller, operation: Operation, resource: Resource, name: str
) -> tuple[bool | None, list[Rule]]:
    """Whether it is allowed, None if no rule matches the resource; and the rules that say so."""
    matching = [rule for rule in known if matches_name(rule, resource, name)]
    if not matching:
        return None, []
    deciding = [rule for rule in matching if applies(rule, caller, operation)]
    denying = [rule for rule in deciding if rule.permission is Permission.DENY]
    return bool(deciding) and not denying, denying or deciding


def decide_on_any(
    known: list[Rule], caller: Caller, operation: Operation, resource: Resource
) -> bool:
    """Kafka's `Authorizer.authorizeByResourceType`."""
    found = [r for r in known if r.resource is resource and applies(r, caller, operation)]
    denied = [(r.pattern, r.name) for r in found if r.permission is Permission.DENY]
    allowed = [(r.pattern, r.name) for r in found if r.permission is Permission.ALLOW]
    if (Pattern.LITERAL, "*") in denied:
        return False
    if (Pattern.LITERAL, "*") in allowed:
        return True
    for pattern, name in allowed:
        if pattern is Pattern.LITERAL and (Pattern.LITERAL, name) in denied:
            continue
        prefixes = [prefix for kind, prefix in denied if kind is Pattern.PREFIXED]
        if not any(name.startswith(prefix) for prefix in prefixes):
            return True
    return False


@given(st.lists(rules, max_size=12), st.lists(questions, min_size=1, max_size=12))
def test_index_decides_as_a_search_of_all_rules(
    known: list[Rule], asked: list[tuple[Caller, Operation, Resource, str]]
) -> None:
    index = RuleIndex(known)
    for caller, operation, resource, name in asked:
        expected, deciding = decide(known, caller, operation, resource, name)
        found = index.decide(caller, operation, resource, name)
        assert found.is_allowed == bool(expected)
        if deciding:
            assert found.reason is Reason.RULE
            assert found.rule in deciding
        else:
            assert found.rule is None
            reason = Reason.NO_RULE if expected is None else Reason.NOT_ALLOWED
            assert found.reason is reason
        opened = index.decide(caller, operation, resource, name, allow_unmatched=True)
        assert opened.is_allowed == (expected is None or expected)
        on_any = index.is_allowed_on_any(caller, operation, resource)
        assert on_any == decide_on_any(known, caller, operation, resource)
        for is_open in (False, True):
            names = [*NAMES, name]
            found_among = index.allowed_among(
                caller, operation, resource, names, allow_unmatched=is_open
            )
            assert found_among == {
                each
                for each in names
                if index.decide(
                    caller, operation, resource, each, allow_unmatched=is_open
                ).is_allowed
            }


changes = st.tuples(st.lists(rules, max_size=4), st.lists(rules, max_size=4))


@given(st.lists(changes, max_size=8), st.lists(questions, min_size=1, max_size=8))
def test_index_that_is_kept_current_equals_one_that_is_built_anew(
    made: list[tuple[list[Rule], list[Rule]]],
    asked: list[tuple[Caller, Operation, Resource, str]],
) -> None:
    image = MetadataImage()
    image.security_mode = "enforce"
    authorizer = RuleAuthorizer(image)
    for added, removed in made:
        image.apply(RulesChanged(added=tuple(added), removed=tuple(removed)))
        authorizer.rules_changed(added, removed)
        anew = RuleAuthorizer(image)
        for question in asked:
            assert authorizer.is_allowed(*question) == anew.is_allowed(*question)
            # The decision that is kept is the one that was made.
            assert authorizer.is_allowed(*question) == authorizer.decide(*question).is_allowed
            assert authorizer.is_allowed_on_any(*question[:3]) == anew.is_allowed_on_any(
                *question[:3]
            )


texts = st.text(min_size=1, max_size=20)
secrets = st.binary(min_size=1, max_size=64)
users = st.builds(
    User,
    name=texts,
    incarnation=texts,
    is_enabled=st.booleans(),
    scram=st.dictionaries(
        st.sampled_from(("SCRAM-SHA-256", "SCRAM-SHA-512")),
        st.builds(ScramVerifier, secrets, st.integers(4096, 16384), secrets, secrets),
    ),
    signing_secret=st.none() | st.builds(SealedSecret, texts, secrets),
    tokens=st.lists(
        st.builds(
            ApiToken,
            texts,
            secrets,
            st.integers(0, 2**60),
            st.integers(0, 2**60),
            st.booleans(),
            st.text(max_size=20),
        ),
        max_size=3,
    ).map(tuple),
)


@given(
    st.lists(users, max_size=5),
    st.lists(rules, max_size=10),
    st.sampled_from(("open", "audit", "enforce")),
)
def test_snapshot_has_all_users_and_rules(known: list[User], found: list[Rule], mode: str) -> None:
    image = MetadataImage()
    for user in known:
        image.apply(UserChanged(user=user))
    image.apply(RulesChanged(added=tuple(found)))
    image.apply(SecurityModeChanged(mode=mode))
    restored = MetadataImage()
    restored.apply(RulesChanged(added=(Rule("User:x", "*", *_REST),)))
    before = (restored.security_revision, restored.rules_revision)
    assert restore_image(restored, encode_image(image, 7)) == 7
    assert restored.users == image.users
    assert list(restored.rules) == list(image.rules)
    assert restored.security_mode == mode
    assert restored.security_revision > before[0]
    assert restored.rules_revision > before[1]


_REST = (Operation.READ, Permission.ALLOW, Resource.TOPIC, Pattern.LITERAL, "t")
