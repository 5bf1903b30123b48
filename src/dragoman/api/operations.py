"""The operations of the JSON API: one function each, and the table that routes and OpenAPI are
made from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dragoman import limits
from dragoman.api.admission import Admission
from dragoman.api.errors import ApiError
from dragoman.api.ports import NodeView
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    CapturePage,
    ClusterStatus,
    Elected,
    Election,
    Findings,
    GroupDescription,
    GroupPage,
    MlogEvents,
    Moves,
    NewMoves,
    NewNode,
    NewTopic,
    PipelineList,
    PipelineStatus,
    Told,
    TopicDescription,
    TopicPage,
    Transfer,
)
from dragoman.captures.definition import Definition

_encoder = msgspec.json.Encoder()
Body = TypeVar("Body", bound=msgspec.Struct)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    method: Literal["GET", "POST", "DELETE"]
    path: str
    name: str
    summary: str
    handler: Callable[[NodeView, Request], Awaitable[Response]]
    status: int = 200
    #: Type of the answer's body; None: it has none.
    answer: type | None = None
    body: type | None = None
    #: Whether the answer is one page of a listing, asked for with `after` and `limit`.
    paged: bool = False
    #: Query parameters that are true or false, and false when left out.
    flags: tuple[str, ...] = ()
    #: Statuses of refusals that are this operation's own.
    refusals: tuple[int, ...] = ()


async def list_topics(node: NodeView, request: Request) -> Response:
    after, limit = _page(request)
    found = node.list_topics(after, limit + 1)
    items = tuple(found[:limit])
    more = len(found) > limit
    return _json(TopicPage(items=items, next=items[-1].name if more else None))


async def describe_topic(node: NodeView, request: Request) -> Response:
    name = _name(request)
    topic = node.describe_topic(name)
    if topic is None:
        raise ApiError(404, "unknown_topic", f"there is no topic {name!r}")
    return _json(topic)


async def create_topic(node: NodeView, request: Request) -> Response:
    topic = await node.create_topic(await _read(request, NewTopic))
    location = f"/api/v1/topics/{quote(topic.name, safe='')}"
    return _json(topic, status=201, headers={"location": location})


async def delete_topic(node: NodeView, request: Request) -> Response:
    await node.delete_topic(_name(request))
    return Response(status_code=204)


async def list_groups(node: NodeView, request: Request) -> Response:
    after, limit = _page(request)
    found = node.list_groups(after, limit + 1)
    items = tuple(found[:limit])
    more = len(found) > limit
    return _json(GroupPage(items=items, next=items[-1].group if more else None))


async def describe_group(node: NodeView, request: Request) -> Response:
    name = _name(request)
    group = node.describe_group(name)
    if group is None:
        raise ApiError(404, "unknown_group", f"there is no group {name!r}")
    return _json(group)


async def cluster_status(node: NodeView, _request: Request) -> Response:
    return _json(node.cluster_status())


async def mlog_events(node: NodeView, _request: Request) -> Response:
    return _json(node.mlog_events())


async def add_node(node: NodeView, request: Request) -> Response:
    return _json(await node.add_node(await _read(request, NewNode)))


async def remove_node(node: NodeView, request: Request) -> Response:
    name = _name(request)
    if not (name.isascii() and name.isdigit() and len(name) <= 9):
        raise ApiError(404, "unknown_node", f"{name!r} is not the number of a node")
    return _json(await node.remove_node(int(name)))


async def transfer(node: NodeView, request: Request) -> Response:
    return _json(await node.transfer(await _read(request, Transfer)))


async def move_replicas(node: NodeView, request: Request) -> Response:
    return _json(await node.move(await _read(request, NewMoves)))


async def elect(node: NodeView, request: Request) -> Response:
    return _json(await node.elect(await _read(request, Election)))


async def list_captures(node: NodeView, request: Request) -> Response:
    after, limit = _page(request)
    found = await node.list_captures(after, limit + 1)
    items = tuple(found[:limit])
    more = len(found) > limit
    return _json(CapturePage(items=items, next=items[-1].name if more else None))


async def describe_capture(node: NodeView, request: Request) -> Response:
    return _json(await node.describe_capture(_name(request)))


async def add_capture(node: NodeView, request: Request) -> Response:
    capture = await node.add_capture(await _read(request, Definition))
    location = f"/api/v1/captures/{quote(capture.name, safe='')}"
    return _json(capture, status=201, headers={"location": location})


async def remove_capture(node: NodeView, request: Request) -> Response:
    keeps_slot = _flag(request, "keep_slot")
    return _json(await node.remove_capture(_name(request), keeps_slot=keeps_slot))


async def command_capture(node: NodeView, request: Request) -> Response:
    wanted = await _read(request, CaptureCommand)
    return _json(await node.command_capture(_name(request), wanted))


async def check_capture(node: NodeView, request: Request) -> Response:
    return _json(await node.check_capture(await _read(request, CaptureCheck)))


async def list_pipelines(node: NodeView, _request: Request) -> Response:
    return _json(PipelineList(items=node.pipelines.listing()))


async def report_pipeline(node: NodeView, request: Request) -> Response:
    node.pipelines.take(await _read(request, PipelineStatus))
    return Response(status_code=204)


#: Refusals of operations with a body that are about the body, and those of operators' wishes.
_BODY = (400, 408, 413, 415)
_WISH = (*_BODY, 404, 409)
OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/topics",
        name="list_topics",
        summary="Topics in order of name, a page at a time",
        handler=list_topics,
        answer=TopicPage,
        paged=True,
    ),
    Operation(
        method="POST",
        path="/api/v1/topics",
        name="create_topic",
        summary="Create a topic",
        handler=create_topic,
        status=201,
        answer=TopicDescription,
        body=NewTopic,
        refusals=(400, 408, 409, 413, 415),
    ),
    Operation(
        method="GET",
        path="/api/v1/topics/{name}",
        name="describe_topic",
        summary="A topic with its partitions and configuration",
        handler=describe_topic,
        answer=TopicDescription,
        refusals=(404,),
    ),
    Operation(
        method="DELETE",
        path="/api/v1/topics/{name}",
        name="delete_topic",
        summary="Delete a topic and its records",
        handler=delete_topic,
        status=204,
        refusals=(400, 404),
    ),
    Operation(
        method="GET",
        path="/api/v1/groups",
        name="list_groups",
        summary="Groups in order of name, a page at a time",
        handler=list_groups,
        answer=GroupPage,
        paged=True,
    ),
    Operation(
        method="GET",
        path="/api/v1/groups/{name}",
        name="describe_group",
        summary="A group with its members, committed offsets and lag",
        handler=describe_group,
        answer=GroupDescription,
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path="/api/v1/cluster",
        name="cluster_status",
        summary="State of the cluster as this node sees it",
        handler=cluster_status,
        answer=ClusterStatus,
    ),
    Operation(
        method="GET",
        path="/api/v1/cluster/mlog-events",
        name="mlog_events",
        summary="The metadata as mlog's metadata events",
        handler=mlog_events,
        answer=MlogEvents,
    ),
    Operation(
        method="POST",
        path="/api/v1/cluster/nodes",
        name="add_node",
        summary="Let a node join the cluster",
        handler=add_node,
        answer=Told,
        body=NewNode,
        refusals=_WISH,
    ),
    Operation(
        method="DELETE",
        path="/api/v1/cluster/nodes/{name}",
        name="remove_node",
        summary="Take a node out of the cluster",
        handler=remove_node,
        answer=Told,
        refusals=(404, 409),
    ),
    Operation(
        method="POST",
        path="/api/v1/cluster/transfers",
        name="transfer",
        summary="Let other nodes lead the metadata or a node's partitions",
        handler=transfer,
        answer=Told,
        body=Transfer,
        refusals=_WISH,
    ),
    Operation(
        method="POST",
        path="/api/v1/cluster/moves",
        name="move_replicas",
        summary="Move replicas to other nodes",
        handler=move_replicas,
        answer=Moves,
        body=NewMoves,
        refusals=_WISH,
    ),
    Operation(
        method="POST",
        path="/api/v1/cluster/elections",
        name="elect",
        summary="Elect preferred leaders, or one that may lack committed records",
        handler=elect,
        answer=Elected,
        body=Election,
        refusals=_WISH,
    ),
    Operation(
        method="GET",
        path="/api/v1/captures",
        name="list_captures",
        summary="Captures of databases in order of name, a page at a time",
        handler=list_captures,
        answer=CapturePage,
        paged=True,
    ),
    Operation(
        method="POST",
        path="/api/v1/captures",
        name="add_capture",
        summary="Capture a database",
        handler=add_capture,
        status=201,
        answer=CaptureDescription,
        body=Definition,
        refusals=(*_BODY, 409),
    ),
    Operation(
        method="GET",
        path="/api/v1/captures/{name}",
        name="describe_capture",
        summary="A capture with how it is",
        handler=describe_capture,
        answer=CaptureDescription,
        refusals=(404,),
    ),
    Operation(
        method="DELETE",
        path="/api/v1/captures/{name}",
        name="remove_capture",
        summary="End a capture; `keep_slot=true` leaves what it made in the database",
        handler=remove_capture,
        answer=Told,
        flags=("keep_slot",),
        refusals=(404, 409),
    ),
    Operation(
        method="POST",
        path="/api/v1/captures/{name}/commands",
        name="command_capture",
        summary="Pause or resume a capture, rewind it, or have it read tables again",
        handler=command_capture,
        answer=Told,
        body=CaptureCommand,
        refusals=_WISH,
    ),
    Operation(
        method="POST",
        path="/api/v1/capture-checks",
        name="check_capture",
        summary="Look whether a database is fit to be captured",
        handler=check_capture,
        answer=Findings,
        body=CaptureCheck,
        refusals=_WISH,
    ),
    Operation(
        method="GET",
        path="/api/v1/pipelines",
        name="list_pipelines",
        summary="Pipelines that have reported to this node, in order of name",
        handler=list_pipelines,
        answer=PipelineList,
    ),
    Operation(
        method="POST",
        path="/api/v1/pipelines",
        name="report_pipeline",
        summary="Tell this node how a pipeline is",
        handler=report_pipeline,
        status=204,
        body=PipelineStatus,
        refusals=_BODY,
    ),
)


def _json(
    value: msgspec.Struct, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(_encoder.encode(value), status, headers, "application/json")


def _name(request: Request) -> str:
    """The path's last part, decoded here and not before: a name may hold an escaped slash."""
    try:
        return unquote(request.path_params["name"], errors="strict")
    except UnicodeDecodeError:
        raise ApiError(400, "invalid_request", "the name in the path is not UTF-8") from None


def _page(request: Request) -> tuple[str, int]:
    text = request.query_params.get("limit", str(limits.HTTP_PAGE_ITEMS_MAX))
    limit = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    if not 1 <= limit <= limits.HTTP_PAGE_ITEMS_MAX:
        expected = f"a number from 1 to {limits.HTTP_PAGE_ITEMS_MAX}"
        raise ApiError(400, "invalid_request", f"limit: expected {expected}, got {text!r}")
    return request.query_params.get("after", ""), limit


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise ApiError(400, "invalid_request", f"{name}: expected true or false, got {text!r}")
    return text == "true"


def admission_of(request: Request) -> Admission:
    admission = request.app.state.admission
    assert isinstance(admission, Admission)
    return admission


async def _read(request: Request, kind: type[Body]) -> Body:
    body = await _json_body(request)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, "invalid_request", f"request body: {error}") from None


async def _json_body(request: Request) -> bytes:
    """The whole body, bounded in size and time.

    The media type is required because a web page may send any other body across origins without
    asking.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(415, "unsupported_media_type", "send the body as application/json")
    try:
        async with admission_of(request).reading():
            return await _bounded_body(request)
    except TimeoutError:
        raise ApiError(408, "request_timeout", "the request body did not arrive in time") from None
    except ClientDisconnect:
        raise ApiError(400, "invalid_request", "the request body ended early") from None


async def _bounded_body(request: Request) -> bytes:
    too_large = ApiError(
        413, "body_too_large", f"a request body may have {limits.HTTP_BODY_BYTES_MAX} bytes"
    )
    announced = request.headers.get("content-length", "0")
    if len(announced) > 18 or int(announced) > limits.HTTP_BODY_BYTES_MAX:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limits.HTTP_BODY_BYTES_MAX:
            raise too_large
        body += chunk
    return bytes(body)
