"""The topics of tables and channels.

A name that Kafka's clients cannot use is made valid: invalid characters become `_`, and a hash of
the original name keeps two such names apart. A hash also separates tables with dots in their names
from tables that would get the same topic, such as `public."dot.ted"` and `dot.ted`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final

from dragoman.captures.definition import Definition
from dragoman.captures.patterns import table_matches
from dragoman.errors import ConfigError
from dragoman.limits import TOPIC_NAME_BYTES_MAX

_OTHERS: Final = re.compile(r"[^A-Za-z0-9._-]")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_HASH_DIGITS: Final = 8
#: The places that a template may have, for a table and for a row of an outbox.
TABLE_PLACES: Final = ("database", "schema", "table")
OUTBOX_PLACES: Final = (*TABLE_PLACES, "aggregatetype", "type")


def topic_name(text: str) -> str:
    """A valid name of a topic: the text itself if Kafka allows it."""
    usable = _OTHERS.sub("_", text)
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
    """Whether a table can share a topic only because of dots in its name, and not because the
    definition puts several tables into one topic.
    """
    template = template_for(definition.topics, schema, table)
    names_both = template is None or ("{schema}" in template and "{table}" in template)
    return names_both and ("." in schema or "." in table)


def topic_apart(topic: str, schema: str, table: str) -> str:
    """Another topic for a table whose own topic belongs to another table."""
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
    """Raises `ConfigError` for an unknown place, and for the name of an internal topic."""
    for place in _PLACE.findall(template):
        if place not in places:
            known = ", ".join(f"{{{each}}}" for each in places)
            raise ConfigError(f"topic {template!r} names {{{place}}}; it may name {known}")
    if template.startswith("__") or not template:
        raise ConfigError(
            f"topic {template!r} is not one to capture to: names with __ are internal"
        )
    return template


def filled(template: str, values: Mapping[str, str]) -> str:
    fill: Callable[[re.Match[str]], str] = lambda found: values[found[1]]  # noqa: E731
    name = topic_name(_PLACE.sub(fill, template))
    # A row must not be able to name an internal topic.
    return topic_name(f"_.{name}") if name.startswith("__") else name
