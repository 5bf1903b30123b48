"""Lists that the API gives in pages, collected for a browser that asks once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec

from dragoman.console.errors import NodeUnreachableError
from dragoman.console.upstream import Headers, Upstream

_PAGE_BYTES_MAX: Final = 16 << 20
_PAGES_MAX: Final = 200


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


class _Whole(msgspec.Struct):
    items: Sequence[msgspec.Raw]
    #: Nodes that did not answer, whose items are missing.
    unreachable: Sequence[int]


async def whole_list(upstream: Upstream, path: str, headers: Headers) -> bytes:
    """The items of all pages as JSON. Raises `NodeUnreachableError` and `NodeRefusedError`."""
    items: list[msgspec.Raw] = []
    unreachable: set[int] = set()
    after: str | None = ""
    for _ in range(_PAGES_MAX):
        query = f"?{urlencode({'after': after})}" if after else ""
        async with upstream.ask("GET", path + query, headers) as answer:
            body = await answer.body(_PAGE_BYTES_MAX)
            if answer.status != 200:
                raise NodeRefusedError(answer.status, body)
        try:
            page = msgspec.json.decode(body, type=_Page)
        except msgspec.DecodeError as error:
            raise NodeUnreachableError(f"the node's answer is not valid: {error}") from None
        items += page.items
        unreachable |= set(page.unreachable)
        after = page.next
        if after is None:
            return msgspec.json.encode(_Whole(items, sorted(unreachable)))
    raise NodeUnreachableError(f"the node lists more than {_PAGES_MAX} pages")
