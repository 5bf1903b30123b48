"""The topics of tables and channels.

A name that is not valid as a topic is made valid: invalid characters become `_`, and a hash of the
original name keeps two of these names distinct. A hash also separates tables with dots in their
names from tables that would get the same topic, such as `public."dot.ted"` and `dot.ted`.

In a topic that two captures share, rows of one replace rows of the other with the same key. So
overlaps are detected, as far as definitions determine topics. A definition results in names of
topics, and in patterns of names, with `*` for a pattern of tables or a part of a template that only
rows determine. If both definitions name the topic literally, the overlap is intended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Final

import msgspec

from dragoman.captures.addresses import parameters
from dragoman.captures.definition import Definition, is_pattern, schema_and_name, table_matches
from dragoman.errors import ConfigError
from dragoman.limits import CAPTURE_OVERLAP_STEPS_MAX, TOPIC_NAME_BYTES_MAX

_INVALID: Final = re.compile(r"[^A-Za-z0-9._-]")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_HASH_DIGITS: Final = 8
#: The placeholders that a template may have, for a table and for a row of an outbox.
TABLE_PLACES: Final = ("database", "schema", "table")
OUTBOX_PLACES: Final = (*TABLE_PLACES, "aggregatetype", "type")

#: Marks: events about transactions, changed tables, snapshots and the capture itself. In the names
#: of their topics, a dot stands for the colon.
TRANSACTIONS: Final = "pgcdc:_txn"
SCHEMAS: Final = "pgcdc:_schema"
SNAPSHOTS: Final = "pgcdc:_snapshot"
HEARTBEATS: Final = "pgcdc:_heartbeat"


def topic_name(text: str) -> str:
    """A valid name of a topic: the text itself if Kafka allows it."""
    usable = _INVALID.sub("_", text)
    if usable == text and len(text) <= TOPIC_NAME_BYTES_MAX and text not in ("", ".", ".."):
        return text
    digest = sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{usable[: TOPIC_NAME_BYTES_MAX - _HASH_DIGITS - 1]}-{digest}"


def default_topic(schema: str, table: str) -> str:
    return "pgcdc." + (table if schema == "public" else f"{schema}.{table}")


def table_topic(definition: Definition, database: str, schema: str, table: str) -> str:
    """Raises `ConfigError` for a template that is not valid."""
    template = template_for(definition.topics, schema, table)
    if template is None:
        return topic_name(default_topic(schema, table))
    values = {"database": database, "schema": schema, "table": table}
    return filled(checked_template(template, TABLE_PLACES), values)


def is_dotted(definition: Definition, schema: str, table: str) -> bool:
    """Whether a table can share its topic only because of dots in names, and not because the
    definition maps several tables to one topic.
    """
    template = template_for(definition.topics, schema, table)
    names_both = template is None or ("{schema}" in template and "{table}" in template)
    return names_both and ("." in schema or "." in table)


def topic_apart(topic: str, schema: str, table: str) -> str:
    """A distinct topic for a table whose topic another table already has."""
    digest = sha256(f"{schema}\0{table}".encode()).hexdigest()[:_HASH_DIGITS]
    return f"{topic[: TOPIC_NAME_BYTES_MAX - _HASH_DIGITS - 1]}-{digest}"


def channel_topic(channel: str) -> str:
    """The topic of a channel of NOTIFY."""
    return topic_name(channel.replace(":", "."))


def template_for(topics: Mapping[str, str], schema: str, table: str) -> str | None:
    """The template of the first pattern that matches."""
    for pattern, template in topics.items():
        if table_matches(pattern, schema, table):
            return template
    return None


def checked_template(template: str, places: tuple[str, ...]) -> str:
    """Raises `ConfigError` for an unknown placeholder, and for the name of an internal topic."""
    for place in _PLACEHOLDER.findall(template):
        if place not in places:
            known = ", ".join(f"{{{each}}}" for each in places)
            raise ConfigError(f"topic {template!r}: expected one of {known}, got {{{place}}}")
    if template.startswith("__") or not template:
        raise ConfigError(
            f"topic {template!r}: expected the name of a topic; names with __ are internal"
        )
    return template


def filled(template: str, values: Mapping[str, str]) -> str:
    fill: Callable[[re.Match[str]], str] = lambda found: values[found[1]]  # noqa: E731
    name = topic_name(_PLACEHOLDER.sub(fill, template))
    # A row must not be able to name an internal topic.
    return topic_name(f"_.{name}") if name.startswith("__") else name


def mark_topics(definition: Definition) -> frozenset[str]:
    """The topics of the marks that a capture writes."""
    used = [SNAPSHOTS]
    used += [HEARTBEATS] if definition.heartbeat_s else []
    used += [TRANSACTIONS] if definition.transactions else []
    used += [SCHEMAS] if definition.schema_changes else []
    return frozenset(map(channel_topic, used))


def certain_topics(definition: Definition) -> list[str]:
    """The topics that a definition determines, whatever tables and rows there are."""
    found = _topics(definition)
    return sorted(found.derived | found.named | mark_topics(definition))


# ---- topics that two captures share


_ANY = "*"
_OUTBOX = "outbox.event.{aggregatetype}"


class Overlap(msgspec.Struct, frozen=True):
    #: The topic, or a pattern of the names of shared topics.
    topic: str
    #: Whether the topic is shared regardless of which tables exist.
    is_certain: bool

    def text(self, capture: str) -> str:
        """The consequence of the overlap with that capture, and the remedy."""
        may = "writes" if self.is_certain else "may write"
        return (
            f"capture {capture} {may} to the topic {self.topic}, too: rows of one would replace"
            " rows of the other with the same key. Give each its own topic, such as with --topic"
            " '*.*={database}.{schema}.{table}', or name the topic in both captures if you want to"
            " share it"
        )


class _Topics(msgspec.Struct, frozen=True):
    #: Topics derived from the names of tables and channels.
    derived: frozenset[str]
    #: Topics that the definition names literally.
    named: frozenset[str]
    #: Patterns of derived topics.
    forms: tuple[str, ...]


def overlap(one: Definition, other: Definition) -> Overlap | None:
    first, second = _topics(one), _topics(other)
    for topic in sorted(
        first.derived & second.derived | first.derived & second.named | first.named & second.derived
    ):
        return Overlap(topic, True)
    for form, topic in islice(_pairs(first, second), CAPTURE_OVERLAP_STEPS_MAX):
        if _meet(form, topic):
            return Overlap(min(form, topic, key=lambda each: each.count(_ANY)), False)
    return None


def _pairs(first: _Topics, second: _Topics) -> Iterator[tuple[str, str]]:
    for form in first.forms:
        for each in (*second.forms, *sorted(second.derived | second.named)):
            yield form, each
    for form in second.forms:
        for each in sorted(first.derived | first.named):
            yield form, each


@lru_cache(512)
def _topics_of(
    tables: tuple[str, ...],
    channels: tuple[str, ...],
    outbox: str,
    templates: tuple[tuple[str, str], ...],
    database: str,
) -> _Topics:
    derived = {channel_topic(each) for each in channels}
    named: set[str] = set()
    forms: dict[str, None] = {}
    # The comparison is bounded, so only the first of very many templates and patterns count.
    templates = templates[:CAPTURE_OVERLAP_STEPS_MAX]
    patterns_max = CAPTURE_OVERLAP_STEPS_MAX**2 // (len(templates) + 1)
    for pattern in (*tables, *((outbox,) if outbox else ()))[:patterns_max]:
        for template, text in _texts(pattern, templates, is_outbox=pattern == outbox):
            text = text.replace("{database}", database)
            if is_pattern(text):
                forms[text] = None
            elif template is not None and "{" not in template:
                named.add(topic_name(text))
            else:
                derived.add(topic_name(text))
    return _Topics(frozenset(derived), frozenset(named), tuple(forms))


def _topics(definition: Definition) -> _Topics:
    given = parameters(definition.dsn) or {}
    database = given.get("dbname") or given.get("user") or _ANY
    return _topics_of(
        definition.tables,
        definition.channels,
        definition.outbox,
        tuple(definition.topics.items()),
        database,
    )


def _texts(
    pattern: str, templates: tuple[tuple[str, str], ...], *, is_outbox: bool
) -> Iterator[tuple[str | None, str]]:
    """The templates that tables of a pattern may get, each with the pattern filled in."""
    schema, table = schema_and_name(pattern)
    for template in _templates(pattern, templates):
        if template is None and not is_outbox:
            yield None, default_topic(schema, table)
            if is_pattern(schema) and table_matches(f"{schema}.x", "public", "x"):
                yield None, default_topic("public", table)
            continue
        text = template or _OUTBOX
        for place, value in (
            ("{schema}", schema),
            ("{table}", table),
            ("{aggregatetype}", _ANY),
            ("{type}", _ANY),
        ):
            text = text.replace(place, value)
        yield template, text


def _templates(pattern: str, templates: tuple[tuple[str, str], ...]) -> Iterator[str | None]:
    """The templates that tables of a pattern may get; None is the default."""
    wanted = schema_and_name(pattern)
    for fits, template in templates:
        if table_matches(fits, *wanted):
            # The template matches the pattern itself, and so every table that it matches.
            yield template
            return
        if is_pattern(pattern) and table_matches(pattern, *schema_and_name(fits)):
            yield template
    yield None


def _meet(one: str, other: str) -> bool:
    """Whether a name can match both forms; `*` is any text without a dot, `?` one character."""
    if max(len(one), len(other)) > TOPIC_NAME_BYTES_MAX:
        return False
    # For each prefix of one, whether it can match the prefix of the other up to here.
    width = len(one) + 1
    reached = [True, *([False] * (width - 1))]
    for place in range(1, width):
        reached[place] = reached[place - 1] and one[place - 1] == _ANY
    for letter in other:
        last, reached = reached, [False] * width
        reached[0] = last[0] and letter == _ANY
        for place in range(1, width):
            mine = one[place - 1]
            if letter == _ANY:
                reached[place] = last[place] or (reached[place - 1] and mine != ".")
            elif mine == _ANY:
                reached[place] = reached[place - 1] or (last[place] and letter != ".")
            else:
                is_same = mine == letter or "?" in (mine, letter)
                reached[place] = last[place - 1] and is_same
    return reached[-1]
