"""Requests to a node's HTTP API, with the standard library only."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from threading import Thread
from typing import Final, Literal, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from dragoman import limits
from dragoman.api.access_values import UserPage, UserSummary
from dragoman.api.values import (
    GroupDescription,
    GroupPage,
    GroupSummary,
    Problem,
    TopicDescription,
    TopicPage,
    TopicSummary,
)
from dragoman.cli.status import USAGE, CommandError, advice_on_certificate
from dragoman.cli.target import DEFAULT_SERVER, DEFAULT_URL, Server, Target

__all__ = ["CHECK_ONLY", "DEFAULT_SERVER", "Remote", "Server", "group_path", "topic_path"]

#: Behind the path of a change: it is only checked, and answered.
CHECK_ONLY: Final = "?validate_only=true"
#: Before the data directory of a node on this machine, whose administrator's socket is used.
UNIX: Final = "unix:"

Answer = TypeVar("Answer", bound=msgspec.Struct)
Page = TypeVar("Page", TopicPage, GroupPage, UserPage)
Description = TypeVar("Description", TopicDescription, GroupDescription)
Result = TypeVar("Result")

#: A refused field of a request's body, which the command has made from its arguments.
_IN_BODY: Final = re.compile(r"request body: (.+) - at `\$\.(.+)`", re.DOTALL)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Remote:
    """A node behind a URL, or on this machine. Failures are `CommandError`s to show verbatim."""

    def __init__(self, server: str | Target, *, timeout_s: float | None = None) -> None:
        #: For each step, such as connecting or reading some bytes, and for a whole exchange.
        self._timeout_s = limits.CLI_TIMEOUT_SECONDS if timeout_s is None else timeout_s
        self._exchange_s = limits.CLI_EXCHANGE_SECONDS_MAX if timeout_s is None else timeout_s
        target = Target(server=server) if isinstance(server, str) else server
        if isinstance(server, str) and not server:
            raise _not_a_url(server)
        self._target = target.resolved()
        self._url = self._target.server
        #: None: the administrator's socket, which needs no credentials.
        self._parts = None if self._url.startswith(UNIX) else check_url(self._url)
        self._authorization = "" if self._parts is None else self._target.authorization()

    def get(self, path: str, answer: type[Answer]) -> Answer:
        return self._decode(self._request("GET", path), answer)

    def post(self, path: str, body: msgspec.Struct, answer: type[Answer]) -> Answer:
        return self._decode(self._request("POST", path, msgspec.json.encode(body)), answer)

    def send(self, path: str, body: msgspec.Struct) -> None:
        """A POST whose response has no body."""
        self._request("POST", path, msgspec.json.encode(body))

    def patch(self, path: str, body: msgspec.Struct, answer: type[Answer]) -> Answer:
        return self._decode(self._request("PATCH", path, msgspec.json.encode(body)), answer)

    def delete(self, path: str) -> bytes:
        return self._request("DELETE", path)

    def remove(self, path: str, answer: type[Answer]) -> Answer:
        return self._decode(self.delete(path), answer)

    def topics(self) -> list[TopicSummary]:
        return [item for page in self._pages("topics", TopicPage) for item in page.items]

    def groups(self) -> list[GroupSummary]:
        return [item for page in self._pages("groups", GroupPage) for item in page.items]

    def users(self) -> list[UserSummary]:
        return [item for page in self._pages("security/users", UserPage) for item in page.items]

    def _pages(self, what: str, kind: type[Page]) -> Iterator[Page]:
        after: str | None = ""
        for _ in range(limits.CLI_PAGES_MAX):
            page = self.get(f"/api/v1/{what}?{urlencode({'after': after})}", kind)
            yield page
            after = page.next
            if after is None:
                return
        message = f"{self._url} lists more than {limits.CLI_PAGES_MAX} pages of {what}"
        raise CommandError(message, code="invalid_answer")

    def _request(
        self,
        method: Literal["GET", "POST", "PATCH", "DELETE"],
        path: str,
        body: bytes | None = None,
    ) -> bytes:
        response, data = self._exchange(method, path, body)
        if response.status >= 300:
            request_id = response.getheader("x-request-id", "")
            raise self._refusal(response.status, data, request_id)
        return data

    def _exchange(
        self,
        method: Literal["GET", "POST", "PATCH", "DELETE"],
        path: str,
        body: bytes | None = None,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """A response of any status, and its body. Raises `CommandError` when there is none."""
        connection = self._connection()
        headers = {"accept": "application/json"}
        if self._authorization:
            headers["authorization"] = self._authorization
        prefix = "" if self._parts is None else self._parts.path.rstrip("/")
        if body is not None:
            headers["content-type"] = "application/json"

        def exchange() -> tuple[http.client.HTTPResponse, bytes]:
            connection.request(method, prefix + path, body, headers)
            response = connection.getresponse()
            return response, response.read(limits.CLI_RESPONSE_BYTES_MAX + 1)

        try:
            response, data = _within(self._exchange_s, exchange)
        except TimeoutError:
            raise self._silent() from None
        except OSError as error:
            raise self._unreachable(error) from None
        except http.client.HTTPException as error:
            message = f"{self._url} does not speak HTTP: {error!r}"
            raise CommandError(message, code="invalid_answer") from None
        finally:
            _hang_up(connection)
        if len(data) > limits.CLI_RESPONSE_BYTES_MAX:
            bound = limits.CLI_RESPONSE_BYTES_MAX
            message = f"the response of {self._url} is larger than {bound} bytes"
            raise CommandError(message, code="invalid_answer")
        return response, data

    def topic(self, name: str) -> TopicDescription:
        """A topic with all of its partitions, which come a page at a time."""
        pages = list(self._parts_of(topic_path(name), TopicDescription))
        partitions = tuple(each for page in pages for each in page.partitions)
        return msgspec.structs.replace(pages[0], partitions=partitions, next=None)

    def group(self, name: str) -> GroupDescription:
        """A group with all of its offsets, which come a page at a time."""
        pages = list(self._parts_of(group_path(name), GroupDescription))
        offsets = tuple(each for page in pages for each in page.offsets)
        return msgspec.structs.replace(pages[0], offsets=offsets, next=None)

    def _parts_of(self, path: str, kind: type[Description]) -> Iterator[Description]:
        page = self.get(path, kind)
        yield page
        for _ in range(limits.CLI_PAGES_MAX):
            if page.next is None:
                return
            page = self.get(f"{path}?after={quote(page.next, safe='')}", kind)
            yield page
        message = f"{self._url} describes more than {limits.CLI_PAGES_MAX} pages at {path}"
        raise CommandError(message, code="invalid_answer")

    def _connection(self) -> http.client.HTTPConnection:
        if self._parts is None:
            return _UnixConnection(self._url.removeprefix(UNIX), self._timeout_s)
        host, port = self._parts.hostname, self._parts.port
        assert host is not None
        timeout = self._timeout_s
        if self._parts.scheme == "https":
            context = self._target.tls()
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _silent(self) -> CommandError:
        message = f"{self._url} has not answered in time"
        return CommandError(message, code="no_answer", hint="is it the HTTP listener of a node?")

    def _unreachable(self, error: OSError) -> CommandError:
        reason = error.strerror or str(error) or type(error).__name__
        advice = "is a node running there?"
        if isinstance(error, PermissionError):
            advice = "only the user that the node runs as may use its socket"
        elif "CERTIFICATE_VERIFY_FAILED" in str(error):
            reason = str(error).partition("] ")[2] or str(error)
            advice = advice_on_certificate(reason)
        elif isinstance(error, http.client.RemoteDisconnected):
            advice = "it may demand TLS: use https://; or it is no HTTP listener"
        elif "WRONG_VERSION_NUMBER" in str(error):
            advice = "it may not speak TLS: use http://"
        message = f"cannot reach {self._url}: {reason}"
        return CommandError(message, code="unreachable", hint=advice)

    def _decode(self, data: bytes, answer: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(data, type=answer)
        except _UNREADABLE as error:
            message = f"the response of {self._url} is not valid: {error}"
            raise CommandError(message, code="invalid_answer") from None

    def _refusal(self, status: int, data: bytes, request_id: str) -> CommandError:
        try:
            problem = msgspec.json.decode(data, type=Problem)
        except _UNREADABLE:
            message = f"{self._url} answered with HTTP status {status}"
            return CommandError(message, code="invalid_answer", request_id=request_id)
        detail = _IN_BODY.sub(r"\2: \1", problem.detail)
        return CommandError(
            f"{detail} ({problem.code})",
            code=problem.code,
            hint=self._advice(status),
            request_id=request_id,
        )

    def _advice(self, status: int) -> str:
        """What to type after a refusal for lack of credentials or rights."""
        if status == HTTPStatus.UNAUTHORIZED and not self._authorization:
            return (
                "log in with --token-file FILE or --user NAME --password-file FILE, or on the "
                "node's machine use --server unix:DATA-DIRECTORY"
            )
        if status == HTTPStatus.UNAUTHORIZED:
            what = self._target.token_file or f"user {self._target.user}"
            return f"logged in with {what}"
        if status == HTTPStatus.FORBIDDEN:
            return "`dragoman acl add` on the node's machine, with --server unix:DATA-DIRECTORY"
        return ""


def _within(seconds: float, work: Callable[[], Result]) -> Result:
    """The result of blocking work. Raises `TimeoutError` if it takes longer.

    A time-out of a socket is renewed by every byte, and does not count the lookup of a name. The
    work is therefore done by a thread, which is given up when it is late.
    """
    results: list[Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    for each in errors:
        raise each
    if not results:
        raise TimeoutError
    return results[0]


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Close a connection, from which a thread that was given up may still read.

    To close it waits for that thread, which ends with the connection.
    """
    if connection.sock is not None:
        with suppress(OSError):
            # Not the method of TLS, which would change what that thread uses.
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
    connection.close()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP on the administrator's socket of a data directory."""

    def __init__(self, directory: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._directory = directory
        self._timeout_s = timeout_s
        self.sock: socket.socket | None

    def connect(self) -> None:
        # Imported here: it needs the network's modules, which other commands do without.
        from dragoman.net.operator_socket import connect

        self.sock = connect(self._directory, self._timeout_s)


def topic_path(name: str) -> str:
    return f"/api/v1/topics/{quote(name, safe='')}"


def group_path(group: str) -> str:
    return f"/api/v1/groups/{quote(group, safe='')}"


def _not_a_url(server: str) -> CommandError:
    return CommandError(
        f"--server: expected a URL like {DEFAULT_URL}, or unix:DATA-DIRECTORY, got {server!r}",
        USAGE,
    )


def check_url(server: str) -> SplitResult:
    """The parts of the URL of a node. Raises `CommandError`."""
    wrong = _not_a_url(server)
    try:
        parts = urlsplit(server)
        port = parts.port
    except ValueError:
        raise wrong from None
    printable = server.isascii() and server.isprintable() and " " not in server
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not printable:
        raise wrong
    if parts.username is not None:
        raise CommandError("--server: no credentials in the URL; use --token-file or --user", USAGE)
    return parts
