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
_ANYONE: Final = frozenset(("", "*", "ANONYMOUS", "-"))


class Names:
    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        #: New names by the forms of a name in text, and a pattern of these forms.
        self._by_text: dict[str, str] = {}
        self._pattern = re.compile(r"(?!)")

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

    def replace_in(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._by_text[found[0]], text)

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

    def settle(self) -> None:
        """All names are known."""
        self._by_text = {
            text: new
            for name, new in self._found.items()
            for text in (name, json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1])
        }
        # At the same place, the longest one.
        listed = sorted(self._by_text, key=len, reverse=True)
        words = "|".join(map(re.escape, listed)) or r"(?!)"
        self._pattern = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])")


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
