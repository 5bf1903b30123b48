"""What the API itself refuses. Apart from `problems.py`, which needs what serves HTTP."""

from __future__ import annotations

from dragoman.errors import DragomanError


class ApiError(DragomanError):
    """A request the API itself refuses, before the node sees it."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
