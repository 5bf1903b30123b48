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


class ReadOnlyError(ConsoleError):
    code = "read_only"
    status = 403
