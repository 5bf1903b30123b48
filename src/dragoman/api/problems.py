"""Errors as RFC 9457 problem documents: the status and code of each exception."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from dragoman.api.admission import BEGUN
from dragoman.api.declaration import ApiError
from dragoman.api.request_ids import request_id
from dragoman.api.values import Problem
from dragoman.broker.errors import NotAuthorized, ThrottlingQuotaExceeded
from dragoman.errors import (
    AuthenticationFailedError,
    AuthError,
    BrokerError,
    ClusterError,
    ConfigError,
    DragomanError,
    LogError,
    LoginsOverloadedError,
)
from dragoman.net import connection_log

MEDIA_TYPE = "application/problem+json"

#: Codes whose status differs from that of their class.
STATUS_BY_CODE: Mapping[str, int] = {
    "unknown_topic": 404,
    "unknown_group": 404,
    "offset_out_of_range": 400,
    "non_empty_group": 409,
    "foreign_group": 409,
    "group_subscribed_to_topic": 409,
    "message_too_large": 413,
    "not_leader": 503,
    "not_enough_replicas": 503,
    "request_timed_out": 503,
    "not_coordinator": 503,
    "coordinator_loading": 503,
    "coordinator_not_available": 503,
    "unknown_node": 404,
    "unknown_capture": 404,
    "unknown_connection": 404,
    "topic_exists": 409,
    "capture_exists": 409,
    "capture_refused": 409,
    "capture_not_running": 503,
    "refused": 409,
    "unknown_user": 404,
    "invalid_password": 400,
    "user_exists": 409,
    "too_many_rules": 409,
    "security_mode_refused": 409,
    "secret": 409,
    "overloaded": 503,
    "throttling_quota_exceeded": 429,
    "disk_full": 507,
}

_STATUS_BY_CLASS: tuple[tuple[type[DragomanError], int], ...] = (
    (NotAuthorized, 403),
    (LoginsOverloadedError, 503),
    (AuthenticationFailedError, 401),
    (BrokerError, 400),
    (ConfigError, 400),
    (AuthError, 403),
    (ClusterError, 503),
    (LogError, 503),
)

#: Key in the state of a request's scope: the code of a refusal before any operation.
_REFUSED: Final = "refused"
#: Codes of errors that the HTTP layer itself raises.
_CODE_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}


def status_of(error: DragomanError) -> int:
    if isinstance(error, ApiError):
        return error.status
    if error.code in STATUS_BY_CODE:
        return STATUS_BY_CODE[error.code]
    for kind, status in _STATUS_BY_CLASS:
        if isinstance(error, kind):
            return status
    return 500


def problem(
    status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    body = Problem(title=HTTPStatus(status).phrase, status=status, code=code, detail=detail)
    return Response(msgspec.json.encode(body), status, headers, MEDIA_TYPE)


def refusal(
    scope: Scope, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The problem for a request that no operation gets, which is counted by its code."""
    scope.setdefault("state", {})[_REFUSED] = code
    return problem(status, code, detail, headers)


def refused_with(scope: Scope) -> str:
    """The code with which a request was refused before an operation began; empty: it was not."""
    code: str = scope.get("state", {}).get(_REFUSED, "")
    return code


async def on_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, DragomanError)
    if connection_log.is_on():
        connection_log.failed(
            request_id(request.scope),
            None,
            protocol="http",
            api=f"{request.method} {request.url.path}",
            client=None,
            user="",
            code=error.code,
            text=str(error),
        )
    headers = None
    if isinstance(error, ThrottlingQuotaExceeded):
        headers = {"retry-after": str(ceil(error.retry_after_s))}
    status = status_of(error)
    if not request.scope["state"].get(BEGUN):
        return refusal(request.scope, status, error.code, str(error), headers)
    return problem(status, error.code, str(error), headers)


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODE_BY_STATUS.get(error.status_code, "invalid_request")
    detail = f"{request.method} {request.url.path}: {error.detail.lower()}"
    return refusal(request.scope, error.status_code, code, detail, error.headers)


async def on_fault(_request: Request, _error: Exception) -> Response:
    """Answer a fault of the node. The traceback goes to the log and not to the caller."""
    return problem(500, "internal", "the node failed to answer; its log says why")
