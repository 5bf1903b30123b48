"""Lists that the API gives in pages, or of one node at a time, collected for a browser that asks
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from dragoman.console.errors import NodeUnreachableError
from dragoman.console.upstream import Headers, Upstream

Kind = TypeVar("Kind", bound=msgspec.Struct)
_PAGE_BYTES_MAX: Final = 16 << 20
_PAGES_MAX: Final = 200
_CLUSTER: Final = "/api/v1/cluster"


class NodeRefusedError(Exception):
    """The node's own refusal, which the browser gets as it is."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class _Page(msgspec.Struct):
    items: list[msgspec.Raw]
    next: str | None = None
    unreachable: list[int] = []


class _Whole(msgspec.Struct, omit_defaults=True):
    items: Sequence[msgspec.Raw]
    #: Nodes that did not answer, whose items are missing.
    unreachable: Sequence[int]
    #: Whether there are items beyond these.
    has_more: bool = False


class _Node(msgspec.Struct):
    node_id: int


class _Cluster(msgspec.Struct):
    nodes: list[_Node]


async def whole_list(upstream: Upstream, path: str, headers: Headers) -> bytes:
    """The items of all pages as JSON. Raises `NodeUnreachableError` and `NodeRefusedError`."""
    return msgspec.json.encode(await _collected(upstream, path, {}, headers, _PAGES_MAX))


async def list_of_nodes(
    upstream: Upstream, path: str, query: dict[str, str], headers: Headers, *, is_whole: bool = True
) -> bytes:
    """The items of a list that each node has its own of, with the number `node` of each; only of
    the first page of each node unless `is_whole`. A caller who may not see the cluster gets those
    of the node that is asked, without numbers. Raises as `whole_list`.
    """
    pages = _PAGES_MAX if is_whole else 1
    nodes = await _nodes(upstream, headers)
    if not nodes:
        return msgspec.json.encode(await _collected(upstream, path, query, headers, pages))
    found = await asyncio.gather(
        *(_of_node(upstream, path, {**query, "node": str(node)}, headers, pages) for node in nodes)
    )
    items = [
        _numbered(item, node)
        for node, each in zip(nodes, found, strict=True)
        if each is not None
        for item in each.items
    ]
    silent = [node for node, each in zip(nodes, found, strict=True) if each is None]
    has_more = any(each is not None and each.has_more for each in found)
    return msgspec.json.encode(_Whole(items, silent, has_more))


async def _of_node(
    upstream: Upstream, path: str, query: dict[str, str], headers: Headers, pages: int
) -> _Whole | None:
    """None: the node does not answer, or has just been removed."""
    try:
        return await _collected(upstream, path, query, headers, pages)
    except NodeRefusedError as error:
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or _is_removed(error.body):
            return None
        raise


def _is_removed(body: bytes) -> bool:
    return b'"unknown_node"' in body


async def _nodes(upstream: Upstream, headers: Headers) -> list[int]:
    """The nodes of the cluster; empty for a caller who may not see it."""
    async with upstream.ask("GET", _CLUSTER, headers) as answer:
        body = await answer.body(_PAGE_BYTES_MAX)
    if answer.status == HTTPStatus.FORBIDDEN:
        return []
    if answer.status != HTTPStatus.OK:
        raise NodeRefusedError(answer.status, body)
    return sorted(each.node_id for each in _decoded(body, _Cluster).nodes)


async def _collected(
    upstream: Upstream, path: str, query: dict[str, str], headers: Headers, pages: int
) -> _Whole:
    items: list[msgspec.Raw] = []
    unreachable: set[int] = set()
    after: str | None = ""
    for _ in range(pages):
        asked = {**query, "after": after} if after else query
        target = f"{path}?{urlencode(asked)}" if asked else path
        async with upstream.ask("GET", target, headers) as answer:
            body = await answer.body(_PAGE_BYTES_MAX)
            if answer.status != HTTPStatus.OK:
                raise NodeRefusedError(answer.status, body)
        page = _decoded(body, _Page)
        items += page.items
        unreachable |= set(page.unreachable)
        after = page.next
        if after is None:
            break
    else:
        if pages == _PAGES_MAX:
            raise NodeUnreachableError(f"the node lists more than {_PAGES_MAX} pages")
    return _Whole(items, sorted(unreachable), after is not None)


def _decoded(body: bytes, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise NodeUnreachableError(f"the node's answer is not valid: {error}") from None


def _numbered(item: msgspec.Raw, node: int) -> msgspec.Raw:
    """The item, which is an object with fields, with the number of its node."""
    return msgspec.Raw(b'{"node":%d,' % node + bytes(item).lstrip()[1:])
