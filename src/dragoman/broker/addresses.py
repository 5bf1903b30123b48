"""Where clients find the other nodes of the cluster."""

from __future__ import annotations

from dragoman.cluster.metadata import MetadataImage


def address_of(image: MetadataImage, node: int, listener: str) -> tuple[str, int] | None:
    """Host and port of a node's listener, as it registered; None when it has none or is unknown."""
    known = image.registrations.get(node)
    host, _, port = ("" if known is None else known.addresses.get(listener, "")).rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdecimal() else None
