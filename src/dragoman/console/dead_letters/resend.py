"""Sends chosen dead letters again, through the API of the node and with its user's rights.

Each has an outcome of its own. A request is carried out after the one before it, so that of two
clicks only one sends. Two consoles may still send the same dead letter at the same moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta

from dragoman.console.dead_letters.letters import (
    MARK,
    Letter,
    copy_of,
    mark_of,
    usual_target,
)
from dragoman.console.errors import ConsoleError
from dragoman.console.upstream import Headers, Upstream
from dragoman.limits import (
    CONSOLE_RESENT_AT_ONCE_MAX,
    CONSOLE_RESENT_SEARCHED_MAX,
    HTTP_BODY_BYTES_MAX,
)

_ANSWER_BYTES_MAX: Final = 16 << 20
_PAGE: Final = 1000
_JSON: Final = (("content-type", "application/json"),)

Outcome = Literal["ready", "sent", "sent_before", "gone", "no_target", "too_large", "failed"]


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: Annotated[int, Meta(ge=0)]
    offset: Annotated[int, Meta(ge=0)]


class ResendRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(min_length=1)]
    records: Annotated[tuple[Place, ...], Meta(min_length=1, max_length=CONSOLE_RESENT_AT_ONCE_MAX)]
    #: The topic to send to; empty: the usual one of each.
    to: str = ""
    #: Whether nothing is sent.
    validate_only: bool = False
    #: Whether those that were sent before are sent once more.
    repeat: bool = False


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of one dead letter."""

    partition: int
    offset: int
    outcome: Outcome
    to: str = ""
    #: Where the copy is, of `sent` and `sent_before`.
    to_partition: int | None = None
    to_offset: int | None = None
    detail: str = ""


class Resent(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Sent, ...]
    #: Targets that were not searched whole for copies, and why.
    unsearched: dict[str, str]


class _Page(msgspec.Struct):
    items: list[Letter]
    next: int | None


class _Partition(msgspec.Struct):
    partition: int


class _Topic(msgspec.Struct):
    partitions: list[_Partition]
    next: str | None = None


class _Written(msgspec.Struct):
    partition: int
    offset: int | None
    problem: str = ""


class _WrittenPage(msgspec.Struct):
    items: list[_Written]


class _Problem(msgspec.Struct):
    detail: str = ""


class RefusedError(ConsoleError):
    """The node has refused a request."""

    code = "refused"


class Resender:
    """Of one process: requests take turns."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._turn = asyncio.Lock()

    async def resend(self, request: ResendRequest, headers: Headers) -> Resent:
        """Raises `ConsoleError`."""
        async with self._turn:
            return await _Resending(self._upstream, headers, request).run()


class _Resending:
    def __init__(self, upstream: Upstream, headers: Headers, request: ResendRequest) -> None:
        self._upstream = upstream
        self._headers = headers
        self._request = request
        self._letters: dict[Place, Letter] = {}
        self._items: dict[Place, Sent] = {}
        self._unsearched: dict[str, str] = {}

    async def run(self) -> Resent:
        by_target: dict[str, list[Place]] = {}
        for place in dict.fromkeys(self._request.records):
            target = await self._look_at(place)
            if target:
                by_target.setdefault(target, []).append(place)
        for target, places in by_target.items():
            try:
                partitions = await self._partitions(target)
            except RefusedError as error:
                for place in places:
                    self._end(place, "failed", to=target, detail=str(error))
                continue
            copies = await self._copies(target, partitions, places)
            for place in places:
                await self._send(place, target, copies)
        return Resent(
            items=tuple(self._items[each] for each in dict.fromkeys(self._request.records)),
            unsearched=self._unsearched,
        )

    async def _look_at(self, place: Place) -> str:
        """Read a dead letter. Returns its target; empty if it has an outcome already."""
        query = {"offset": place.offset, "limit": 1, "max_value_bytes": HTTP_BODY_BYTES_MAX}
        topic = self._request.topic
        try:
            page = await self._page(topic, place.partition, query)
        except RefusedError as error:
            self._end(place, "gone", detail=str(error))
            return ""
        letter = page.items[0] if page.items else None
        if letter is None or letter.offset != place.offset:
            self._end(place, "gone", detail="the topic no longer has this record")
            return ""
        if not letter.is_whole:
            self._end(place, "too_large", detail="larger than what can be written over HTTP")
            return ""
        target = self._request.to or usual_target(topic, letter)
        if not target:
            detail = "it does not say which topic it came from: choose one"
            self._end(place, "no_target", detail=detail)
        if target == topic:
            self._end(place, "no_target", to=target, detail="this is the topic of the dead letters")
            return ""
        self._letters[place] = letter
        return target

    async def _send(self, place: Place, target: str, copies: dict[str, tuple[int, int]]) -> None:
        topic = self._request.topic
        copy = copies.get(mark_of(topic, place.partition, place.offset))
        if copy is not None and not self._request.repeat:
            detail = "a copy is there already; send it once more only on purpose"
            self._end(place, "sent_before", to=target, copy=copy, detail=detail)
            return
        body = msgspec.json.encode({"records": [copy_of(topic, self._letters[place], target)]})
        if len(body) > HTTP_BODY_BYTES_MAX:
            detail = "larger than what can be written over HTTP"
            self._end(place, "too_large", to=target, detail=detail)
            return
        if self._request.validate_only:
            self._end(place, "ready", to=target)
            return
        path = f"/api/v1/topics/{quote(target, safe='')}/records"
        try:
            found = await self._asked("POST", path, body)
            (written,) = msgspec.json.decode(found, type=_WrittenPage).items
        except ConsoleError as error:
            self._end(place, "failed", to=target, detail=str(error))
            return
        if written.offset is None:
            self._end(place, "failed", to=target, detail=written.problem)
            return
        self._end(place, "sent", to=target, copy=(written.partition, written.offset))

    def _end(
        self,
        place: Place,
        outcome: Outcome,
        *,
        to: str = "",
        copy: tuple[int, int] | None = None,
        detail: str = "",
    ) -> None:
        self._items[place] = Sent(
            partition=place.partition,
            offset=place.offset,
            outcome=outcome,
            to=to,
            to_partition=None if copy is None else copy[0],
            to_offset=None if copy is None else copy[1],
            detail=detail,
        )

    # ---- copies that exist

    async def _copies(
        self, target: str, partitions: list[int], places: list[Place]
    ) -> dict[str, tuple[int, int]]:
        """Copies in a target, by the dead letters that they are of. A copy is younger than its
        dead letter, so the search begins at the time of the oldest.
        """
        found: dict[str, tuple[int, int]] = {}
        since = min(self._letters[place].timestamp for place in places)
        searched = 0
        try:
            for partition in partitions:
                query: dict[str, object] = {"time": max(since, 0)}
                while True:
                    page = await self._page(target, partition, {**query, **_MARKS_ONLY})
                    for each in page.items:
                        mark = each.text((MARK,))
                        if mark:
                            found[mark] = (each.partition, each.offset)
                    searched += len(page.items)
                    if page.next is None:
                        break
                    if searched >= CONSOLE_RESENT_SEARCHED_MAX:
                        self._unsearched[target] = (
                            f"only {searched:,} records were searched for copies"
                        )
                        return found
                    query = {"offset": page.next}
        except RefusedError as error:
            self._unsearched[target] = f"it was not searched for copies: {error}"
        return found

    async def _partitions(self, topic: str) -> list[int]:
        found: list[int] = []
        path = f"/api/v1/topics/{quote(topic, safe='')}"
        target = path
        while True:
            page = msgspec.json.decode(await self._asked("GET", target), type=_Topic)
            found += [each.partition for each in page.partitions]
            if page.next is None:
                return found
            target = f"{path}?{urlencode({'after': page.next})}"

    # ---- the node

    async def _page(self, topic: str, partition: int, query: Mapping[str, object]) -> _Page:
        path = f"/api/v1/topics/{quote(topic, safe='')}/partitions/{partition}/records"
        body = await self._asked("GET", f"{path}?{urlencode(query)}")
        return msgspec.json.decode(body, type=_Page)

    async def _asked(self, method: str, target: str, body: bytes = b"") -> bytes:
        """Raises `RefusedError` and `NodeUnreachableError`."""
        headers = (*self._headers, *_JSON) if body else self._headers
        async with self._upstream.ask(method, target, headers, body) as answer:
            found = await answer.body(_ANSWER_BYTES_MAX)
            if answer.status >= 400:
                try:
                    detail = msgspec.json.decode(found, type=_Problem).detail
                except msgspec.DecodeError:
                    detail = ""
                raise RefusedError(detail or f"the node answers {answer.status}")
            return found


#: Names of headers are whole, and marks are short.
_MARKS_ONLY: Final = {"limit": _PAGE, "max_value_bytes": 1024}
