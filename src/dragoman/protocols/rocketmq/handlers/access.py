"""Users and rights (50 to 53, 3001 to 3010): there are none, and operators are told so.

Everything is allowed on a node without an authorizer. Lists are empty; what would change them is
refused, so that nobody believes a rule to hold that does not.
"""

from __future__ import annotations

from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import DEFAULT_CLUSTER, Response
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.routes import broker_data
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.tables import is_go
from dragoman.protocols.rocketmq.handlers.topic_admin import data_version


def _refuse(_call: Call) -> None:
    raise Refused(Response.NO_PERMISSION, "this node has no access control")


handle_update_and_create_acl_config = handle_delete_acl_config = _refuse
handle_update_global_white_addrs_config = _refuse
handle_auth_create_user = handle_auth_update_user = handle_auth_delete_user = _refuse
handle_auth_create_acl = handle_auth_update_acl = handle_auth_delete_acl = _refuse


def handle_get_broker_cluster_acl_info(call: Call) -> None:
    broker = broker_data(call, call.service.broker.node_id)
    call.reply(
        fields={
            "brokerName": broker.broker_name,
            "brokerAddr": broker.broker_addrs["0"],
            "clusterName": DEFAULT_CLUSTER,
            "version": bodies.encode(data_version(call)).decode(),
            "allAclFileVersion": "{}",
        }
    )


def handle_auth_get_user(call: Call) -> None:
    text = f"there is no user {call.text('username')!r}"
    raise Refused(Response.USER_NOT_EXIST, text)


def handle_auth_get_acl(call: Call) -> None:
    text = f"there are no rules for {call.text('subject')!r}"
    raise Refused(Response.POLICY_NOT_EXIST, text)


def handle_auth_list_user(call: Call) -> None:
    call.reply(body=b'{"users":[]}' if is_go(call) else b"[]")


def handle_auth_list_acl(call: Call) -> None:
    call.reply(body=b'{"acls":[]}' if is_go(call) else b"[]")
