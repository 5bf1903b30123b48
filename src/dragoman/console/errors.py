"""Failures of the console itself; those of a node are passed on as they are."""

from __future__ import annotations

from dragoman.errors import DragomanError


class ConsoleError(DragomanError):
    """A request that the console refuses; `code` names the problem, `status` is that of HTTP."""

    code = "console"
    status = 400


class NodeUnreachableError(ConsoleError):
    code = "node_unreachable"
    status = 502


class LoginNeededError(ConsoleError):
    code = "login_needed"
    status = 401


class LoginImpossibleError(ConsoleError):
    """The settings or the state of the node allow no login."""

    code = "login_impossible"
    status = 403


class ReadOnlyError(ConsoleError):
    code = "read_only"
    status = 403


class OverloadedError(ConsoleError):
    code = "overloaded"
    status = 503


class SlowRequestError(ConsoleError):
    code = "request_timeout"
    status = 408
