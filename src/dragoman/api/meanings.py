"""What parameters of operations mean, by name: for the OpenAPI document, `/docs` and the reference.

A name means the same in every operation; that of a path is the name of what the path leads to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dragoman.api.declaration import Parameter

_MEANINGS: Final[Mapping[str, str]] = {
    "address": "Only quotas of this address.",
    "after": "The value of `next` of the page before; by default the first page.",
    "begin": "Where the stream begins: a place such as `latest`, `earliest`, `42` or `@-15m`.",
    "bytes": "Bytes of records after which a page ends; its first record may be larger.",
    "client_id": "Only quotas of this client id.",
    "default_address": "Only quotas of addresses without one of their own.",
    "default_client_id": "Only quotas of client ids without one of their own.",
    "default_user": "Only quotas of users without one of their own.",
    "group": "Name of the group.",
    "keep_slot": "Whether the slot and the publication stay in the database.",
    "last": "Begin this many records before the end of the partition.",
    "last_event_id": "The `id` of the last event that the client has; the stream resumes after it.",
    "limit": "How many items a page has at most.",
    "listener": "Only connections of this listener.",
    "max_value_bytes": "Bytes after which a key, a value or a header is cut.",
    "node": "Number of the node that is asked; by default the one that answers.",
    "offset": "The offset of the first record.",
    "partition": "Number of the partition.",
    "partitions": "Numbers of partitions, such as `0,2`; by default all.",
    "prefix": "Only metrics whose names begin with this.",
    "principal": "As whom the capture runs; by default as the caller.",
    "time": "Begin with the first record of this time or later: RFC 3339, milliseconds, or `-15m`.",
    "token_id": "Number of the token, from the description of its user.",
    "topic": "Name of the topic.",
    "user": "Only quotas of this user, or of it with a client id.",
    "validate_only": "Whether to check and answer the request without effect.",
    "values": "How keys and values are shown.",
}
#: What the last part of a path names, by what comes before it.
_NAMED: Final[Mapping[str, str]] = {
    "captures": "Name of the capture.",
    "connections": "Name of the connection, as listings and the log have it.",
    "figures": "Name of the series.",
    "groups": "Name of the group, percent-encoded.",
    "nodes": "Number of the node.",
    "topics": "Name of the topic, percent-encoded.",
    "users": "Name of the user, percent-encoded.",
}


def meaning_of(path: str, parameter: Parameter) -> str:
    """A sentence about a parameter of an operation at a path; empty if there is none."""
    if parameter.name == "name":
        return _NAMED.get(path.partition("/{name}")[0].rpartition("/")[2], "")
    return _MEANINGS.get(parameter.name, "")
