"""Requests to a node's HTTP API, with the standard library only."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec
from cyclopts import Parameter

from dragoman import limits
from dragoman.api.values import GroupPage, GroupSummary, Problem, TopicPage, TopicSummary
from dragoman.cli.status import USAGE, CommandError

DEFAULT_SERVER = "http://127.0.0.1:8080"
Server: TypeAlias = Annotated[str, Parameter(help="URL of a node's HTTP listener.")]

Answer = TypeVar("Answer", bound=msgspec.Struct)
Page = TypeVar("Page", TopicPage, GroupPage)

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Remote:
    """A node behind a URL. Every failure is a `CommandError` to show verbatim."""

    def __init__(self, server: str) -> None:
        self._url = server
        self._parts = _split_url(server)

    def get(self, path: str, answer: type[Answer]) -> Answer:
        return self._decode(self._request("GET", path), answer)

    def post(self, path: str, body: msgspec.Struct, answer: type[Answer]) -> Answer:
        return self._decode(self._request("POST", path, msgspec.json.encode(body)), answer)

    def send(self, path: str, body: msgspec.Struct) -> None:
        """A POST whose response has no body."""
        self._request("POST", path, msgspec.json.encode(body))

    def delete(self, path: str) -> bytes:
        return self._request("DELETE", path)

    def remove(self, path: str, answer: type[Answer]) -> Answer:
        return self._decode(self.delete(path), answer)

    def topics(self) -> list[TopicSummary]:
        return [item for page in self._pages("topics", TopicPage) for item in page.items]

    def groups(self) -> list[GroupSummary]:
        return [item for page in self._pages("groups", GroupPage) for item in page.items]

    def _pages(self, what: str, kind: type[Page]) -> Iterator[Page]:
        after: str | None = ""
        for _ in range(limits.CLI_PAGES_MAX):
            page = self.get(f"/api/v1/{what}?{urlencode({'after': after})}", kind)
            yield page
            after = page.next
            if after is None:
                return
        raise CommandError(f"{self._url} lists more than {limits.CLI_PAGES_MAX} pages of {what}")

    def _request(
        self, method: Literal["GET", "POST", "DELETE"], path: str, body: bytes | None = None
    ) -> bytes:
        connection = self._connection()
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            data = response.read(limits.CLI_RESPONSE_BYTES_MAX + 1)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise CommandError(
                f"cannot reach {self._url}: {reason}; is a node running there?"
            ) from None
        except http.client.HTTPException as error:
            raise CommandError(f"{self._url} does not speak HTTP: {error!r}") from None
        finally:
            connection.close()
        if len(data) > limits.CLI_RESPONSE_BYTES_MAX:
            bound = limits.CLI_RESPONSE_BYTES_MAX
            raise CommandError(f"the response of {self._url} is larger than {bound} bytes")
        if response.status >= 300:
            raise CommandError(self._refusal(response.status, data))
        return data

    def _connection(self) -> http.client.HTTPConnection:
        host = self._parts.hostname
        assert host is not None
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, self._parts.port, timeout=limits.CLI_TIMEOUT_SECONDS
            )
        return http.client.HTTPConnection(
            host, self._parts.port, timeout=limits.CLI_TIMEOUT_SECONDS
        )

    def _decode(self, data: bytes, answer: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(data, type=answer)
        except _UNREADABLE as error:
            raise CommandError(f"the response of {self._url} is not valid: {error}") from None

    def _refusal(self, status: int, data: bytes) -> str:
        try:
            problem = msgspec.json.decode(data, type=Problem)
        except _UNREADABLE:
            return f"{self._url} answered with HTTP status {status}"
        return f"{problem.detail} ({problem.code})"


def topic_path(name: str) -> str:
    return f"/api/v1/topics/{quote(name, safe='')}"


def group_path(group: str) -> str:
    return f"/api/v1/groups/{quote(group, safe='')}"


def _split_url(server: str) -> SplitResult:
    wrong = CommandError(f"--server: expected a URL like {DEFAULT_SERVER}, got {server!r}", USAGE)
    try:
        parts = urlsplit(server)
        port = parts.port
    except ValueError:
        raise wrong from None
    printable = server.isascii() and server.isprintable() and " " not in server
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not printable:
        raise wrong
    return parts
