"""Users and rights: those of 5.x, and the plain ones of 4.x."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.bodies import AclInfo, UserInfo
from dragoman.protocols.rocketmq.client.admin.reaching import Reaching
from dragoman.protocols.rocketmq.client.errors import RocketmqError
from dragoman.protocols.rocketmq.client.remoting import Fields
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.types import Buffer


class PlainAccess(msgspec.Struct, frozen=True, kw_only=True):
    """An account of 4.x. Rights are `topic=PUB|SUB` and their like."""

    access_key: str
    secret_key: str
    white_remote_address: str = ""
    is_admin: bool = False
    default_topic_perm: str = "DENY"
    default_group_perm: str = "DENY"
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()


class _Users(bodies.Body):
    users: list[UserInfo] = []


class _Acls(bodies.Body):
    acls: list[AclInfo] = []


class SecurityCalls(Reaching):
    # ---- users of 5.x

    async def create_user(self, broker: str, user: UserInfo) -> None:
        fields: Fields = {"username": user.username}
        await self._ask(broker, Request.AUTH_CREATE_USER, fields, bodies.encode(user))

    async def update_user(self, broker: str, user: UserInfo) -> None:
        fields: Fields = {"username": user.username}
        await self._ask(broker, Request.AUTH_UPDATE_USER, fields, bodies.encode(user))

    async def delete_user(self, broker: str, username: str) -> None:
        await self._ask(broker, Request.AUTH_DELETE_USER, {"username": username})

    async def get_user(self, broker: str, username: str) -> UserInfo | None:
        fields: Fields = {"username": username}
        body = await self._found(broker, Request.AUTH_GET_USER, fields)
        return bodies.decode(body, UserInfo) if body else None

    async def list_users(self, broker: str, containing: str = "") -> list[UserInfo]:
        answer = await self._ask(broker, Request.AUTH_LIST_USER, {"filter": containing})
        if _is_list(answer.body):
            return json.read(answer.body, list[UserInfo])
        return bodies.decode(answer.body or b"{}", _Users).users

    # ---- rights of 5.x

    async def create_acl(self, broker: str, acl: AclInfo) -> None:
        fields: Fields = {"subject": acl.subject}
        await self._ask(broker, Request.AUTH_CREATE_ACL, fields, bodies.encode(acl))

    async def update_acl(self, broker: str, acl: AclInfo) -> None:
        fields: Fields = {"subject": acl.subject}
        await self._ask(broker, Request.AUTH_UPDATE_ACL, fields, bodies.encode(acl))

    async def delete_acl(
        self, broker: str, subject: str, resource: str = "", policy_type: str = ""
    ) -> None:
        """All of a subject, or what it may do with one resource."""
        fields: Fields = {
            "subject": subject,
            "resource": resource or None,
            "policyType": policy_type or None,
        }
        await self._ask(broker, Request.AUTH_DELETE_ACL, fields)

    async def get_acl(self, broker: str, subject: str) -> AclInfo | None:
        body = await self._found(broker, Request.AUTH_GET_ACL, {"subject": subject})
        return bodies.decode(body, AclInfo) if body else None

    async def list_acls(self, broker: str, subject: str = "", resource: str = "") -> list[AclInfo]:
        fields: Fields = {"subjectFilter": subject, "resourceFilter": resource}
        answer = await self._ask(broker, Request.AUTH_LIST_ACL, fields)
        if _is_list(answer.body):
            return json.read(answer.body, list[AclInfo])
        return bodies.decode(answer.body or b"{}", _Acls).acls

    async def _found(self, broker: str, code: Request, fields: Fields) -> Buffer:
        """Empty when there is none: brokers say so in two ways."""
        try:
            return (await self._ask(broker, code, fields)).body
        except RocketmqError as error:
            if error.number in (Response.USER_NOT_EXIST, Response.POLICY_NOT_EXIST):
                return b""
            raise

    # ---- 4.x

    async def create_and_update_plain_access(self, broker: str, access: PlainAccess) -> None:
        fields: Fields = {
            "accessKey": access.access_key,
            "secretKey": access.secret_key,
            "whiteRemoteAddress": access.white_remote_address,
            "admin": access.is_admin,
            "defaultTopicPerm": access.default_topic_perm,
            "defaultGroupPerm": access.default_group_perm,
            "topicPerms": ",".join(access.topic_perms),
            "groupPerms": ",".join(access.group_perms),
        }
        await self._ask(broker, Request.UPDATE_AND_CREATE_ACL_CONFIG, fields)

    async def delete_plain_access(self, broker: str, access_key: str) -> None:
        await self._ask(broker, Request.DELETE_ACL_CONFIG, {"accessKey": access_key})

    async def update_global_white_addresses(self, broker: str, addresses: Iterable[str]) -> None:
        fields: Fields = {"globalWhiteAddrs": ",".join(addresses)}
        await self._ask(broker, Request.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, fields)

    async def examine_plain_access_version(self, broker: str) -> dict[str, str]:
        return (await self._ask(broker, Request.GET_BROKER_CLUSTER_ACL_INFO)).fields


def _is_list(body: Buffer) -> bool:
    return bytes(body[:1]) == b"["
