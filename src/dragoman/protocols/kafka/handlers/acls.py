"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): there are no rules, and clients are told so.

Everything is allowed on a node without an authorizer; as Kafka does then, each request is answered
with SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Final

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.session import Call

_CODE: Final = ErrorCode.SECURITY_DISABLED
_MESSAGE: Final = "this node has no access control"


def handle_describe(call: Call) -> None:
    call.request.decode()
    call.reply(m.DescribeAclsResponse(error_code=_CODE, error_message=_MESSAGE))


def handle_create(call: Call) -> None:
    request = call.decode(m.CreateAclsRequest)
    refused = m.CreateAclsResponseResult(error_code=_CODE, error_message=_MESSAGE)
    call.reply(m.CreateAclsResponse(results=[refused] * len(request.creations)))


def handle_delete(call: Call) -> None:
    request = call.decode(m.DeleteAclsRequest)
    refused = m.DeleteAclsResponseFilterResult(error_code=_CODE, error_message=_MESSAGE)
    call.reply(m.DeleteAclsResponse(filter_results=[refused] * len(request.filters)))
