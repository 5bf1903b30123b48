"""How an operation of the JSON API is declared: as a method of a service protocol.

The decorator names the HTTP method, the path, a summary and the refusals; the method's name is the
operation's; its signature declares the rest:

    a parameter named in the path     part of the path
    a parameter that is a `Caller`    the caller (`authentication.py`); not part of the request
    a parameter that is another struct  the JSON body of the request
    any other parameter               optional query parameter
    the return type                   the JSON body of the response; None: 204 without a body,
                                      also in a union with a type
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from inspect import Parameter as Argument
from inspect import signature
from types import NoneType
from typing import Final, Literal, NewType, TypeAlias, TypeVar, get_args

import msgspec

from dragoman import limits
from dragoman.errors import DragomanError
from dragoman.security.access import Caller
from dragoman.types import NodeId


class ApiError(DragomanError):
    """A request that the API itself refuses, before any service of the node runs."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


class EventStream(ABC):
    """The answer of an operation that goes on: Server-Sent Events."""

    #: Raises `DragomanError` when the caller may not receive more.
    check: Callable[[], None] = staticmethod(lambda: None)

    @abstractmethod
    def events(self) -> AsyncIterator[bytes]:
        """Whole events, until the stream ends."""
        ...

    @abstractmethod
    def end(self, error: DragomanError) -> None:
        """End the stream, with the reason as its last event."""
        ...

    @abstractmethod
    def close(self) -> None:
        """The client has gone, or has received the last event. May be called again."""
        ...


Method: TypeAlias = Literal["GET", "POST", "PATCH", "DELETE"]
Function = TypeVar("Function", bound=Callable[..., object])
#: Maximum number of items of one page.
PageLimit = NewType("PageLimit", int)

#: Number of a partition, in the path.
PartitionIndex = NewType("PartitionIndex", int)
#: Offset at which a reader begins.
FirstOffset = NewType("FirstOffset", int)
#: Maximum number of records of one response.
RecordLimit = NewType("RecordLimit", int)
#: Maximum number of bytes of the records of one response; the first record may exceed it.
ReadBytes = NewType("ReadBytes", int)
#: Bytes after which a key, a value or a header is cut.
ValueBytes = NewType("ValueBytes", int)
#: The id of the last event that a client of a stream has received.
LastEventId = NewType("LastEventId", str)
#: How keys and values are shown.
ValueForm: TypeAlias = Literal["text", "json", "base64"]

# ---- types of parameters


class ParameterType(msgspec.Struct, frozen=True):
    #: JSON schema of the parameter in the OpenAPI document.
    schema: dict[str, object]
    #: Parses the value of a parameter, given its name and its text. Raises `ApiError`.
    parse: Callable[[str, str], object]
    #: The value of a query parameter that is absent.
    default: object = None
    #: The header that carries it, instead of the query.
    header: str = ""


def _text(_name: str, text: str) -> str:
    return text


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ApiError(400, "invalid_request", f"{name}: expected true or false, got {text!r}")
    return text == "true"


def _page_limit(name: str, text: str) -> PageLimit:
    limit = int(text) if _is_number(text) else 0
    if not 1 <= limit <= limits.HTTP_PAGE_ITEMS_MAX:
        expected = f"a number from 1 to {limits.HTTP_PAGE_ITEMS_MAX}"
        raise ApiError(400, "invalid_request", f"{name}: expected {expected}, got {text!r}")
    return PageLimit(limit)


def _number(lowest: int, highest: int, default: int | None) -> ParameterType:
    """A number within bounds."""

    def parse(name: str, text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) <= 19
        if not is_number or not lowest <= int(text) <= highest:
            expected = f"a number from {lowest} to {highest}"
            raise ApiError(400, "invalid_request", f"{name}: expected {expected}, got {text!r}")
        return int(text)

    schema: dict[str, object] = {"type": "integer", "minimum": lowest, "maximum": highest}
    if default is not None:
        schema["default"] = default
    return ParameterType(schema, parse, default)


def _word(*words: str) -> ParameterType:
    """One of these words, by default the first."""

    def parse(name: str, text: str) -> str:
        if text not in words:
            expected = ", ".join(words)
            raise ApiError(400, "invalid_request", f"{name}: expected {expected}, got {text!r}")
        return text

    return ParameterType(
        {"type": "string", "enum": list(words), "default": words[0]}, parse, words[0]
    )


def _partition_index(_name: str, text: str) -> PartitionIndex:
    if not _is_number(text):
        raise ApiError(404, "unknown_topic", f"{text!r} is not the number of a partition")
    return PartitionIndex(int(text))


def _node_id(_name: str, text: str) -> NodeId:
    if not _is_number(text):
        raise ApiError(404, "unknown_node", f"{text!r} is not the number of a node")
    return NodeId(int(text))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


_TEXT_SCHEMA: Final[dict[str, object]] = {"type": "string"}
_LIMIT_SCHEMA: Final[dict[str, object]] = {
    "type": "integer",
    "minimum": 1,
    "maximum": limits.HTTP_PAGE_ITEMS_MAX,
}
_PARAMETER_TYPES: Final[dict[object, ParameterType]] = {
    str: ParameterType(_TEXT_SCHEMA, _text, ""),
    bool: ParameterType({"type": "boolean"}, _flag, False),
    PageLimit: ParameterType(_LIMIT_SCHEMA, _page_limit, limits.HTTP_PAGE_ITEMS_MAX),
    NodeId: ParameterType(_TEXT_SCHEMA, _node_id),
    NodeId | None: ParameterType(_TEXT_SCHEMA, _node_id),
    PartitionIndex: ParameterType({"type": "integer", "minimum": 0}, _partition_index),
    FirstOffset | None: _number(0, (1 << 63) - 1, None),
    RecordLimit: _number(1, limits.HTTP_RECORDS_MAX, limits.HTTP_RECORDS_DEFAULT),
    RecordLimit | None: _number(1, limits.HTTP_RECORDS_MAX, None),
    ReadBytes: _number(1, limits.HTTP_READ_BYTES_MAX, limits.HTTP_READ_BYTES_DEFAULT),
    ValueBytes: _number(0, limits.HTTP_VALUE_BYTES_MAX, limits.HTTP_VALUE_BYTES_DEFAULT),
    LastEventId: ParameterType(_TEXT_SCHEMA, _text, "", header="Last-Event-ID"),
    ValueForm: _word("text", "json", "base64"),
}


# ---- declarations


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    place: Literal["path", "query", "header"]
    type: ParameterType


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON body of a request: the name of its argument, and its type."""

    name: str
    type: type[msgspec.Struct]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    method: Method
    path: str
    #: Attribute of `NodeView` that holds the service.
    service: str
    #: Method of the service, and the operation's id in the OpenAPI document.
    name: str
    summary: str
    #: Status of a successful response.
    status: int
    parameters: tuple[Parameter, ...]
    body: Body | None
    #: Argument that receives the caller; empty: the operation does not depend on it.
    caller: str
    #: Type of the response's body, or None without one.
    answer: type | None
    #: Whether a response may also be 204, without that body.
    may_be_empty: bool
    #: Error statuses of this operation, in addition to those that every operation has.
    refusals: tuple[int, ...]
    #: Whether it is a POST that changes nothing, because its question is too long for a path.
    is_question: bool

    @property
    def creates(self) -> bool:
        """Whether the response carries the path of a new resource, after its `name`."""
        return self.status == 201


declared_operations: list[Operation] = []


def operation(
    method: Method,
    path: str,
    summary: str,
    *,
    creates: bool = False,
    is_question: bool = False,
    refuses: tuple[int, ...] = (),
) -> Callable[[Function], Function]:
    """Declare a method of a service protocol as an operation."""

    def declare(function: Function) -> Function:
        declared = signature(function, eval_str=True)
        _, *arguments = declared.parameters.values()
        answer, may_be_empty = _answer_of(declared.return_annotation)
        callers = [each for each in arguments if each.annotation is Caller]
        bodies = [each for each in arguments if _is_body(each)]
        others = [each for each in arguments if each not in callers and each not in bodies]
        declared_operations.append(
            Operation(
                method=method,
                path=path,
                service=function.__qualname__.partition(".")[0].lower(),
                name=function.__name__,
                summary=summary,
                status=204 if answer is None else 201 if creates else 200,
                parameters=tuple(_parameter(each, path) for each in others),
                body=Body(name=bodies[0].name, type=bodies[0].annotation) if bodies else None,
                caller=callers[0].name if callers else "",
                answer=answer,
                may_be_empty=may_be_empty,
                refusals=refuses,
                is_question=is_question,
            )
        )
        return function

    return declare


def _answer_of(annotation: object) -> tuple[type | None, bool]:
    """The type of the body, and whether a response may come without it."""
    kinds = [each for each in get_args(annotation) if each is not NoneType]
    found = kinds[0] if kinds else annotation
    assert found is None or isinstance(found, type)
    return found, bool(kinds)


def _is_body(argument: Argument) -> bool:
    kind = argument.annotation
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Caller


def _parameter(argument: Argument, path: str) -> Parameter:
    kind = _PARAMETER_TYPES[argument.annotation]
    is_in_path = f"{{{argument.name}}}" in path
    return Parameter(
        name=argument.name,
        place="path" if is_in_path else "header" if kind.header else "query",
        type=kind,
    )
