"""Names of users in certificates: Kafka's `ssl.principal.mapping.rules`.

A rule is `DEFAULT`, which takes the whole subject, or `RULE:pattern/replacement/` with `L` or `U`
behind it for lower or upper case. The pattern must match the whole subject; `$1` in the replacement
stands for its first group. The first rule that matches counts. Patterns are RE2's, so that no
subject takes long to match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from dragoman.errors import ConfigError

_KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(
    r"\s*(?:DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,|$)"
)
#: A group in a replacement, or a character that stands for itself.
_REFERENCE: Final = re.compile(r"\$(\d)|\\(.)")
_CASES: Final[dict[str, Callable[[str], str]]] = {"L": str.lower, "U": str.upper, "": str}


class PrincipalRule(msgspec.Struct, frozen=True):
    #: Empty: the rule takes every subject as it is.
    pattern: str = ""
    replacement: str = ""
    #: `L`, `U` or nothing.
    case: str = ""

    def name_of(self, subject: str) -> str | None:
        """The user's name; None when the rule does not match."""
        if not self.pattern:
            return subject
        found = _compiled(self.pattern).fullmatch(subject)
        if found is None:
            return None

        def expanded(reference: re.Match[str]) -> str:
            if reference[1] is None:
                return reference[2]
            return found.group(int(reference[1])) or ""

        return _CASES[self.case](_REFERENCE.sub(expanded, self.replacement))


@lru_cache(maxsize=64)
def parse_principal_rules(text: str) -> tuple[PrincipalRule, ...]:
    """The rules in order. Raises `ConfigError`."""
    rules: list[PrincipalRule] = []
    position = 0
    text = text.strip()
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ConfigError(
                f"{_KEY}: expected DEFAULT or RULE:pattern/replacement/[LU], "
                f"got {text[position : position + 80]!r}"
            )
        rules.append(_rule(found))
        position = found.end()
    return tuple(rules) or (PrincipalRule(),)


def _rule(found: re.Match[str]) -> PrincipalRule:
    if found["pattern"] is None:
        return PrincipalRule()
    rule = PrincipalRule(found["pattern"] or "()", found["replacement"], found["case"])
    groups = _compiled(rule.pattern).groups
    used = [int(each[1]) for each in _REFERENCE.finditer(rule.replacement) if each[1]]
    if any(each > groups for each in used):
        raise ConfigError(f"{_KEY}: {rule.pattern!r} has {groups} groups, not {max(used)}")
    return rule


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
    # Imported here: few nodes have certificates.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ConfigError(f"{_KEY}: {pattern!r} is no pattern of RE2: {error}") from None


def name_in_certificate(subject: str, rules: tuple[PrincipalRule, ...]) -> str | None:
    """The user's name by the first rule that matches; None when none does."""
    for rule in rules:
        name = rule.name_of(subject)
        if name is not None:
            return name
    return None
