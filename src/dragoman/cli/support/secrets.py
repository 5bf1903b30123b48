"""Hides secrets in text and JSON, wherever they come from.

Nothing that is collected should have a secret, because settings only refer to them. This is for
what should not be: passwords in addresses, in lines of a log, in options, in files that a user has
edited. References (`file:`, `env:`) and names of files are kept.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

HIDDEN: Final = "(hidden)"
#: Fields that name the key whose value an object has.
_NAMES: Final = ("name", "key", "property")
Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_PASSWORD: Final = "password|passwd|passphrase|passcode|pwd|(?:(?<![a-z])|db)pass(?![a-z])"
_WORD: Final = (
    f"(?:{_PASSWORD}|secret|token|credential|jaas|authorization|signature|(?<![a-z])sig(?![a-z])"
    "|(?:api|private|access|account|shared)[_.-]?key)"
)
_SECRET_KEY: Final = re.compile(_WORD, re.IGNORECASE)
_PASSWORD_KEY: Final = re.compile(_PASSWORD, re.IGNORECASE)
#: Keys that name a file, a place or a time, and not a secret.
_HARMLESS_KEY: Final = re.compile(
    r"(?:file|path|url|id|ids|label|issuer|audience|mechanisms?|_ms|seconds|count)$", re.IGNORECASE
)
_REFERENCE: Final = re.compile(r"(?:file|env):\S+")
_STRING: Final = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
_QUOTED: Final = r'"""[\s\S]*?"""' + r"|'''[\s\S]*?'''|" + _STRING
#: `key = value`, `key: value`, `"key": "value"`, `?key=value&`.
_ASSIGNMENT: Final = re.compile(
    # Without what is before the word, so that a long key takes no time that grows with its square.
    rf"(?P<key>{_WORD}[\w.-]{{0,64}})(?P<equals>\\?[\"']?\s*(?:[=:]|%3[ad])\s*)"
    rf"(?P<value>\\\"(?:[^\"\\]|\\[^\"])*\\\"|b?(?:{_QUOTED})"
    # A list, whose strings may have brackets; an object; lines of YAML; a word.
    rf"|\[(?:{_STRING}|[^\]\"'])*\]|\[[^\]]*\]|\{{[^}}]*\}}"
    rf"|[|>][+-]?\n(?:[ \t]+[^\n]*\n?)+|[^\s&\"'}}\]]+)",
    re.IGNORECASE,
)
_PATTERNS: Final = (
    # Keys in PEM, also with escaped line ends.
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    ),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),
    re.compile(r"\bSCRAM-SHA-\d+\$\S+"),
    re.compile(r"(?<=bearer )\s*[\w.~+/=-]{16,}", re.IGNORECASE),
    re.compile(r"(?<=authorization: )\w+ \S+", re.IGNORECASE),
    re.compile(r"(?<=cookie: )[^\r\n]+", re.IGNORECASE),
    # As their issuers mark them: GitHub, GitLab, Slack, AWS.
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-)[\w-]{16,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
)
#: What follows, in the first group, stays; the secret behind it goes.
_BEHIND: Final = (
    re.compile(r"(jdbc:oracle:\w+:[^\s/@]{0,256}/)[^\s@]{1,1024}(?=@)", re.IGNORECASE),
    # SQL; XML; a pair of a key and a value; an option of curl; a value as Python shows it.
    re.compile(r"((?:password|identified by)\s{1,9})'(?:[^']|'')*'", re.IGNORECASE),
    re.compile(rf"(<[\w:.-]{{0,64}}{_WORD}[\w:.-]{{0,64}}>)[^<]+", re.IGNORECASE),
    re.compile(
        rf"({_WORD}[\w.-]{{0,64}}[\"']\s{{0,9}},\s{{0,9}})b?(?:{_STRING})",
        re.IGNORECASE,
    ),
    re.compile(r"((?<!\S)-u\s{1,9}[^\s:]{1,256}:)\S+"),
    re.compile(rf"({_WORD}\()b?(?:{_STRING})", re.IGNORECASE),
)
#: Between the user of a URL and its host. A password may contain any character but spaces.
_IN_URL: Final = re.compile(r"(://[^\s:@/\"']{0,256}):[^\s\"']{0,1024}@")
#: An option of a command line whose value is the next word.
_OPTION: Final = re.compile(
    rf"(--[\w-]{{0,64}}{_WORD}(?!-file)[\w-]{{0,64}}\s+)(?!-)(\S+)", re.IGNORECASE
)


def is_secret_key(key: str) -> bool:
    return bool(_SECRET_KEY.search(key)) and not _HARMLESS_KEY.search(key)


def hide_in_text(text: str) -> str:
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    for pattern in _BEHIND:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    text = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    text = _OPTION.sub(_hidden_option, text)
    return _ASSIGNMENT.sub(_hidden_value, text)


def hide_in_json(value: Json, key: str = "") -> Json:
    """The same value, with strings hidden that are below the key of a secret."""
    match value:
        case dict():
            # An entry of a configuration has its key as a value.
            named = next((value[each] for each in _NAMES if each in value), None)
            name = named if isinstance(named, str) else key
            return {
                each: hide_in_json(inner, name if each == "value" and name else each or key)
                for each, inner in value.items()
            }
        case [str() as name, str() as text] if is_secret_key(name):
            return [name, hide_in_json(text, name)]
        case list():
            return [hide_in_json(each, key) for each in value]
        case str():
            if is_secret_key(key) and value and not _REFERENCE.fullmatch(value):
                return HIDDEN
            return hide_in_text(value)
        case int() | float() if not isinstance(value, bool) and _PASSWORD_KEY.search(key):
            return value if _HARMLESS_KEY.search(key) else HIDDEN
        case _:
            return value


def _hidden_value(found: re.Match[str]) -> str:
    key, equals, value = found["key"], found["equals"], found["value"]
    bare = value.removeprefix("b").strip("\\\"'") if value[-1] in "\"'" else value
    if not is_secret_key(key) or not bare or _REFERENCE.fullmatch(bare) or bare == HIDDEN:
        return found[0]
    quote = '\\"' if value.startswith('\\"') else value[0] if value[0] in "\"'" else ""
    return f"{key}{equals}{quote}{HIDDEN}{quote}"


def _hidden_option(found: re.Match[str]) -> str:
    option, value = found[1], found[2]
    if not is_secret_key(option.strip()) or _REFERENCE.fullmatch(value):
        return found[0]
    return option + HIDDEN
