"""Failures of queries, which the worker reports as lines."""

from __future__ import annotations

from dragoman.errors import DragomanError


class QueryError(DragomanError):
    """A query that fails. `position` is the place in its text, in characters, if it has one."""

    code = "query"

    def __init__(self, detail: str, position: int | None = None) -> None:
        super().__init__(detail)
        self.position = position


class MemoryUsedUpError(QueryError):
    code = "memory"
