"""From an HTTP request to the call of a service's method, and from its result to the response."""

from __future__ import annotations

from inspect import isawaitable
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dragoman import limits
from dragoman.api.admission import Admission
from dragoman.api.errors import ApiError
from dragoman.api.operations import NodeView, Operation, Parameter

_encoder = msgspec.json.Encoder()


async def respond(operation: Operation, node: NodeView, request: Request) -> Response:
    """Run an operation. Raises `DragomanError` for a refusal."""
    arguments: dict[str, object] = {}
    # Of several mistakes in a request, the one that is read first is reported: callers may rely on
    # the order body, query, path.
    if operation.body is not None:
        arguments[operation.body.name] = await _read_body(request, operation.body.type)
    for parameter in reversed(operation.parameters):
        arguments[parameter.name] = _read_parameter(request, parameter)
    service: object = getattr(node, operation.service)
    answer: object = getattr(service, operation.name)(**arguments)
    if isawaitable(answer):
        answer = await answer
    if operation.answer is None:
        return Response(status_code=operation.status)
    headers = {}
    if operation.creates:
        name: object = getattr(answer, "name", None)
        assert isinstance(name, str)
        headers["location"] = f"{operation.path}/{quote(name, safe='')}"
    return Response(_encoder.encode(answer), operation.status, headers, "application/json")


def admission_of(request: Request) -> Admission:
    admission = request.app.state.admission
    assert isinstance(admission, Admission)
    return admission


def _read_parameter(request: Request, parameter: Parameter) -> object:
    if parameter.place == "path":
        # Decoded here and not before: a name may hold an escaped slash.
        try:
            text = unquote(request.path_params[parameter.name], errors="strict")
        except UnicodeDecodeError:
            raise ApiError(400, "invalid_request", "the name in the path is not UTF-8") from None
        return parameter.type.parse(parameter.name, text)
    given = request.query_params.get(parameter.name)
    return parameter.type.default if given is None else parameter.type.parse(parameter.name, given)


async def _read_body(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
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
