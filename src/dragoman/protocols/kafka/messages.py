"""Kafka's messages as values, made from the table of `schema.py`, each when it is first named.

There is one class per structure, for all versions of its message. `messages.pyi`, which
`generate.py` writes, tells type checkers and editors what the classes look like.
"""

from __future__ import annotations

import msgspec

from dragoman.protocols.kafka import notation
from dragoman.protocols.kafka.notation import NO_ID, StructSpec

__all__ = ["NO_ID", "Message"]


class Message(msgspec.Struct, frozen=True, gc=False):
    """Every message and every structure inside one.

    They are trees, so the cyclic collector need not look at them.
    """


def __getattr__(name: str) -> type[Message]:
    message = notation.name_of_message_with(name)
    if message is not None:
        _make(notation.message(message).struct)
    if name not in globals():
        raise AttributeError(f"Kafka has no message {name}")
    made: type[Message] = globals()[name]
    return made


def _make(struct: StructSpec) -> type[Message]:
    """The class of a structure, after the classes of those inside it."""
    # A structure may stand in two places of a message; it is the same in both.
    if struct.class_name not in globals():
        fields = []
        for field in struct.fields:
            default = notation.default_value(field)
            if field.inner is not None:
                inner = _make(field.inner)
                default = inner() if field.is_structure_by_default else default
            # The types are in the stub; nothing needs them at run time.
            fields.append((field.name, object, default))
        globals()[struct.class_name] = msgspec.defstruct(
            struct.class_name, fields, bases=(Message,), module=__name__, frozen=True
        )
    made: type[Message] = globals()[struct.class_name]
    return made
