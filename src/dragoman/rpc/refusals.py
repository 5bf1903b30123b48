"""Errors on their way between nodes.

An error travels as its wire name, its text and its plain fields, and is raised as the same class at
the node that asked. A name that a node does not know becomes a `ClusterError`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.errors import ClusterError, DragomanError
from dragoman.rpc.messages import Answer


class Refused(Answer, frozen=True, kw_only=True, tag="Refused"):
    name: str
    text: str
    fields: dict[str, int | str | tuple[int, ...]] = {}


class Refusals:
    def __init__(self, classes: Mapping[str, type[DragomanError]]) -> None:
        """`classes`: by wire name."""
        self._classes = dict(classes)
        self._names = {kind: name for name, kind in self._classes.items()}

    def encode(self, error: DragomanError) -> Refused:
        """A class without a name of its own travels as its nearest base that has one."""
        fields = {
            name: value
            for name, value in vars(error).items()
            if isinstance(value, int | str | tuple)
        }
        name = next(self._names[each] for each in type(error).__mro__ if each in self._names)
        return Refused(name=name, text=str(error), fields=fields)

    def decode(self, refused: Refused) -> DragomanError:
        kind = self._classes.get(refused.name)
        if kind is None:
            return ClusterError(f"{refused.name}: {refused.text}")
        # Constructors differ; text and fields are all that there is to an exception.
        error = kind.__new__(kind)
        error.args = (refused.text,)
        vars(error).update(refused.fields)
        return error
