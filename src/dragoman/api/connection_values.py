"""Values of connections and damage, version 1 of the JSON API; see `values.py`."""

from __future__ import annotations

import msgspec

from dragoman.api.values import DamagedRange


class ConnectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A connection of a client, or of another node, to the answering node."""

    #: As lines of the log call it; unique while the node runs.
    id: str
    listener: str
    #: Empty while the first bytes on the listener `any` have not shown it.
    protocol: str
    #: Address and port; empty over a local socket, as from the console.
    peer: str
    #: The principal, such as `User:alice`; empty before the first request of HTTP.
    user: str
    #: What the client calls itself; empty where its protocol or its requests do not say.
    client_id: str
    encrypted: bool
    age_ms: int
    #: Since the last bytes from the client; null for HTTP.
    idle_ms: int | None
    #: Bytes received and sent; null for HTTP.
    bytes: int | None
    #: Memory of its requests and replies.
    in_flight_bytes: int


class ConnectionPage(msgspec.Struct, frozen=True, kw_only=True):
    #: The answering node, whose connections these are.
    node_id: int
    #: In order of `id`.
    items: tuple[ConnectionStatus, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None


class QuarantinedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged file that was kept aside."""

    #: Path within the data directory.
    path: str
    size_bytes: int


class DamagePage(msgspec.Struct, frozen=True, kw_only=True):
    #: The node whose disk this is about.
    node_id: int
    #: Offsets that cannot be read, in order of topic, partition and offset.
    items: tuple[DamagedRange, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None
    #: What the journal has lost.
    journal: tuple[str, ...]
    #: The first files in `quarantine/`, in order of name, and the bytes of all of them.
    quarantine: tuple[QuarantinedFile, ...]
    quarantined_bytes: int
