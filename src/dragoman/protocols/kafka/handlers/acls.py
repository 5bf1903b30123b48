"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): there are no rules, and clients are told so.

Everything is allowed on a node without an authorizer; as Kafka does then, each request is answered
with SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Final

from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreateAclsResponseResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
    DescribeAclsResponse,
)

_CODE: Final = ErrorCode.SECURITY_DISABLED
_MESSAGE: Final = "this node has no access control"


def handle_describe(call: Call) -> None:
    call.request.decode()
    call.reply(DescribeAclsResponse(error_code=_CODE, error_message=_MESSAGE))


def handle_create(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, CreateAclsRequest)
    refused = CreateAclsResponseResult(error_code=_CODE, error_message=_MESSAGE)
    call.reply(CreateAclsResponse(results=[refused] * len(request.creations)))


def handle_delete(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, DeleteAclsRequest)
    refused = DeleteAclsResponseFilterResult(error_code=_CODE, error_message=_MESSAGE)
    call.reply(DeleteAclsResponse(filter_results=[refused] * len(request.filters)))
