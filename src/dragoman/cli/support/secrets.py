"""Hides secrets in text and JSON, wherever they come from.

Nothing that is collected should have a secret, because settings only refer to them. This is for
what should not be: passwords in addresses, in lines of a log, in options, in files that a user has
edited. References (`file:`, `env:`) and names of files are kept.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

HIDDEN: Final = "(hidden)"
Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_WORD: Final = (
    "(?:password|passwd|passphrase|pwd|secret|token|credential|jaas|authorization"
    "|(?:api|private|access)[_.-]?key)"
)
_SECRET_KEY: Final = re.compile(_WORD, re.IGNORECASE)
#: Keys that name a file, a place or a time, and not a secret.
_HARMLESS_KEY: Final = re.compile(
    r"(?:file|path|url|id|ids|label|issuer|audience|mechanisms?|_ms|seconds|count)$", re.IGNORECASE
)
_REFERENCE: Final = re.compile(r"(?:file|env):\S+")
_QUOTED: Final = (
    r'"""[\s\S]*?"""' + r"|'''[\s\S]*?'''" + r'|"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
)
#: `key = value`, `key: value`, `"key": "value"`, `?key=value&`.
_ASSIGNMENT: Final = re.compile(
    # Bounded, so that a long word without a secret takes no time that grows with its square.
    rf"(?P<key>[\w.-]{{0,64}}{_WORD}[\w.-]{{0,64}})(?P<equals>\\?[\"']?\s*[=:]\s*)"
    rf"(?P<value>\\\"(?:[^\"\\]|\\[^\"])*\\\"|{_QUOTED}|\[[^\]]*\]|\{{[^}}]*\}}|[^\s&\"'}}\]]+)",
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
    text = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    text = _OPTION.sub(_hidden_option, text)
    return _ASSIGNMENT.sub(_hidden_value, text)


def hide_in_json(value: Json, key: str = "") -> Json:
    """The same value, with strings hidden that are below the key of a secret."""
    match value:
        case dict():
            named = value.get("name", value.get("key"))
            # An entry of a configuration has its key as a value.
            name = named if isinstance(named, str) else ""
            return {
                each: hide_in_json(inner, name if each == "value" and name else each or key)
                for each, inner in value.items()
            }
        case list():
            return [hide_in_json(each, key) for each in value]
        case str():
            if is_secret_key(key) and value and not _REFERENCE.fullmatch(value):
                return HIDDEN
            return hide_in_text(value)
        case _:
            return value


def _hidden_value(found: re.Match[str]) -> str:
    key, equals, value = found["key"], found["equals"], found["value"]
    bare = value.strip("\\\"'")
    if not is_secret_key(key) or not bare or _REFERENCE.fullmatch(bare) or bare == HIDDEN:
        return found[0]
    quote = '\\"' if value.startswith('\\"') else value[0] if value[0] in "\"'" else ""
    return f"{key}{equals}{quote}{HIDDEN}{quote}"


def _hidden_option(found: re.Match[str]) -> str:
    option, value = found[1], found[2]
    if not is_secret_key(option.strip()) or _REFERENCE.fullmatch(value):
        return found[0]
    return option + HIDDEN
