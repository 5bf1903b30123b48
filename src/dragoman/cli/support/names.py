"""Replaces the names of topics, groups, users and clients by numbered ones, the same everywhere.

Names are those that the files themselves name as such: in fields of JSON, labels of metrics and
fields of log lines. Each is replaced wherever it occurs as a word, so a name that is also another
word is replaced there, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from dragoman.cli.support.secrets import Json

#: What the value of a field is the name of.
_KINDS: Final = {
    "topic": "topic",
    "topics": "topic",
    "group": "group",
    "groups": "group",
    "user": "user",
    "users": "user",
    "super_users": "user",
    "principal": "user",
    "owner": "user",
    "client": "client",
    "client_id": "client",
    "member": "member",
    "member_id": "member",
    "instance_id": "member",
    "transactional_id": "transaction",
    "capture": "capture",
    "pipeline": "pipeline",
    "table": "table",
    "tables": "table",
    "include": "table",
    "exclude": "table",
    "outbox": "table",
    "channels": "channel",
    "database": "database",
    "dbname": "database",
    "slot": "slot",
    "publication": "publication",
}
#: Files of which the items have a `name`.
_LISTINGS: Final = {
    "topics": "topic",
    "users": "user",
    "captures": "capture",
    "pipelines": "pipeline",
}
_KIND: Final = "|".join(sorted(_KINDS, key=len, reverse=True))
#: In metrics and logs: `topic="a"`, `topic=a`, `"topic":"a"`.
_FIELD: Final = re.compile(rf"\b({_KIND})\"?\s*[=:]\s*(\"(?:[^\"\\]|\\.)*\"|[^\s\",}}\]]+)")
#: Fields of a capture whose keys are patterns of tables.
_BY_TABLE: Final = frozenset(("topics", "keys", "mask"))
#: Words that are joined, as in most names. Looking them up takes the same time for any number of
#: names, which a pattern of all names would not.
_WORD: Final = re.compile(r"[^\W_]+")
_WORDS: Final = re.compile(r"[^\W_](?:[\w.-]*[^\W_])?")
#: Words of a name.
_WORDS_MAX: Final = 32
_ANYONE: Final = frozenset(("", "*", "ANONYMOUS", "-"))


class Names:
    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        #: New names by the forms of a name in text.
        self._by_text: dict[str, str] = {}
        #: A pattern of the names that are not words joined by dots, dashes and underscores.
        self._unusual: re.Pattern[str] | None = None
        #: Joined words that were seen, with their names replaced.
        self._replaced: dict[str, str] = {}

    # ---- finding

    def learn_text(self, text: str) -> None:
        for kind, raw in _FIELD.findall(text):
            name = raw
            if raw.startswith('"'):
                try:
                    name = str(json.loads(raw))
                except ValueError:
                    name = raw[1:-1]
            self._learn(_KINDS[kind], name)

    def learn_json(self, path: str, value: Json) -> None:
        listing = path.rsplit("/", 1)[-1].removesuffix(".json")
        for key, name in _strings(value):
            kind = _LISTINGS.get(listing) if key == "name" else _KINDS.get(key)
            if kind is not None:
                self._learn(kind, name)
            elif name.startswith("User:"):
                self._learn("user", name)
            else:
                self.learn_text(name)

    def _learn(self, kind: str, name: str) -> None:
        name = name.removeprefix("User:")
        # Internal topics are the same everywhere.
        if name in _ANYONE or name.startswith("__") or name.isdigit() or name in self._found:
            return
        self._counts[kind] = number = self._counts.get(kind, 0) + 1
        self._found[name] = f"{kind}-{number}"

    # ---- replacing

    def settle(self) -> None:
        """All names are known."""
        self._by_text = {
            text: new
            for name, new in self._found.items()
            for text in (name, json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1])
        }
        # At the same place, the longest one.
        unusual = [each for each in self._by_text if not _WORDS.fullmatch(each)]
        listed = "|".join(map(re.escape, sorted(unusual, key=len, reverse=True)))
        self._unusual = re.compile(rf"(?<![^\W_])(?:{listed})(?![^\W_])") if unusual else None
        self._replaced.clear()

    def replace_in(self, text: str) -> str:
        if self._unusual is not None:
            text = self._unusual.sub(lambda found: self._by_text[found[0]], text)
        return _WORDS.sub(self._replace_words, text)

    def _replace_words(self, found: re.Match[str]) -> str:
        words = found[0]
        replaced = self._replaced.get(words)
        if replaced is None:
            replaced = self._replaced[words] = self._in_words(words)
        return replaced

    def _in_words(self, text: str) -> str:
        """Replace names in joined words, such as `orders-0`: from the left, the longest one."""
        spans = [each.span() for each in _WORD.finditer(text)]
        parts: list[str] = []
        position = at = 0
        while at < len(spans):
            start = spans[at][0]
            for last in range(min(len(spans), at + _WORDS_MAX) - 1, at - 1, -1):
                new = self._by_text.get(text[start : spans[last][1]])
                if new is not None:
                    parts += (text[position:start], new)
                    position, at = spans[last][1], last
                    break
            at += 1
        return "".join(parts) + text[position:]

    def replace_in_json(self, value: Json) -> Json:
        match value:
            case dict():
                return {
                    self._found.get(key, key): self.replace_in_json(inner)
                    for key, inner in value.items()
                }
            case list():
                return [self.replace_in_json(each) for each in value]
            case str():
                return self.replace_in(value)
            case _:
                return value


def _strings(value: Json, key: str = "") -> Iterator[tuple[str, str]]:
    """All strings below a value, each with the key of the field that holds it."""
    if isinstance(value, dict):
        for own, inner in value.items():
            if key in _BY_TABLE:
                yield "table", own
            yield from _strings(inner, own)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each, key)
    elif isinstance(value, str):
        yield key, value
