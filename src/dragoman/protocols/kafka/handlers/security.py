"""Requests about users and access rules, which are not supported: DescribeAcls (29), CreateAcls
(30), DeleteAcls (31), DescribeUserScramCredentials (50) and AlterUserScramCredentials (51).

A node without an authorizer answers ACL requests with SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.session import Call


def handle_describe_credentials(call: Call) -> None:
    request = call.decode(m.DescribeUserScramCredentialsRequest)
    named = Counter(each.name for each in request.users or ())
    results = []
    for name, count in named.items():
        code = ErrorCode.RESOURCE_NOT_FOUND if count == 1 else ErrorCode.DUPLICATE_RESOURCE
        results.append(
            m.DescribeUserScramCredentialsResponseUser(
                user=name, error_code=code, error_message=code.text
            )
        )
    call.reply(m.DescribeUserScramCredentialsResponse(error_message=None, results=results))


def handle_alter_credentials(call: Call) -> None:
    request = call.decode(m.AlterUserScramCredentialsRequest)
    # No credentials exist to delete, and none can be stored.
    codes = {each.name: ErrorCode.RESOURCE_NOT_FOUND for each in request.deletions}
    codes |= {each.name: ErrorCode.SECURITY_DISABLED for each in request.upsertions}
    call.reply(
        m.AlterUserScramCredentialsResponse(
            results=[
                m.AlterUserScramCredentialsResponseUser(
                    user=name, error_code=code, error_message=code.text
                )
                for name, code in codes.items()
            ]
        )
    )


_NO_ACLS: Final = ErrorCode.SECURITY_DISABLED
_NO_ACLS_TEXT: Final = "this node has no access control"


def handle_describe_acls(call: Call) -> None:
    call.request.decode()
    call.reply(m.DescribeAclsResponse(error_code=_NO_ACLS, error_message=_NO_ACLS_TEXT))


def handle_create_acls(call: Call) -> None:
    request = call.decode(m.CreateAclsRequest)
    refused = m.CreateAclsResponseResult(error_code=_NO_ACLS, error_message=_NO_ACLS_TEXT)
    call.reply(m.CreateAclsResponse(results=[refused] * len(request.creations)))


def handle_delete_acls(call: Call) -> None:
    request = call.decode(m.DeleteAclsRequest)
    refused = m.DeleteAclsResponseFilterResult(error_code=_NO_ACLS, error_message=_NO_ACLS_TEXT)
    call.reply(m.DeleteAclsResponse(filter_results=[refused] * len(request.filters)))
