"""How the parts of a running pipeline get on, as values that are shown, kept and sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from dragoman.api.values import PipelinePart

PartState: TypeAlias = Literal["starting", "running", "done", "failed", "stopped"]
Progress: TypeAlias = PipelinePart

#: Jobs call it when there is something new, and leave alone what it raises: then they are to end.
Report: TypeAlias = Callable[[Progress], None]
