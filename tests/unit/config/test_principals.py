"""Users' names in certificates: Kafka's rules, whole, by pattern, in order, and malformed ones."""

from __future__ import annotations

import pytest

from dragoman.config.principals import name_in_certificate, parse_principal_rules
from dragoman.errors import ConfigError

SUBJECT = "CN=Alice,OU=Billing,O=Example,C=DE"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("", SUBJECT),
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "ALICE@BILLING"),
        # The examples of Kafka's documentation, whose patterns contain commas.
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=Billing.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?), OU=(.*?)$/$1@$2/,DEFAULT", SUBJECT),
        ("RULE:CN=Alice/x/, DEFAULT ", SUBJECT),
        ("RULE:.*\\/.*/slash/", None),
        ("RULE:(.*)/cost \\$1/", "cost $1"),
        ("RULE:^CN=Bob.*$/bob/", None),
    ],
)
def test_first_rule_that_matches_the_whole_subject_names_the_user(
    rules: str, name: str | None
) -> None:
    assert name_in_certificate(SUBJECT, parse_principal_rules(rules)) == name


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "RULE:abc",
        "RULE:abc/def",
        "RULE:abc/def/X",
        "RULE:(/x/",
        "RULE:(a)(?=b)/$1/",
        "RULE:a/$1/",
        "RULE:a/b/L/DEFAULT",
    ],
)
def test_malformed_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules: "):
        parse_principal_rules(rules)


def test_pattern_with_exponential_backtracking_answers_at_once() -> None:
    rules = parse_principal_rules("RULE:(a+)+b/$1/")
    assert name_in_certificate("a" * 5_000, rules) is None
