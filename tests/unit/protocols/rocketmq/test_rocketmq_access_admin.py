"""Goal: RocketMQ's tools administer the cluster's users and rules, in both of their forms.

Method: a broker on virtual time whose requests are decided by its rules. What tools set is shown by
decisions and by signed requests, not only by lists.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.broker.access import AccessControl
from dragoman.config.settings import Settings
from dragoman.outcome import start
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import AclEntry, AclInfo, AclPolicy, UserInfo
from dragoman.protocols.rocketmq.codec import Command, encode
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.signatures import signed
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Principal, Resource
from dragoman.security.rules import Pattern, Permission, Rule
from worlds.access import Denies
from worlds.broker import World
from worlds.rocketmq import RocketmqPipe
from worlds.users import demand

READ, WRITE = Operation.READ, Operation.WRITE
TOPIC, GROUP = Resource.TOPIC, Resource.GROUP
HOST = "10.0.0.9"


@pytest.fixture
def world() -> World:
    # Connections of worlds come from another machine, without TLS.
    return World(Settings(sasl_insecure_clear_text=True))


@pytest.fixture
def pipe(world: World) -> RocketmqPipe:
    return RocketmqPipe(world)


def access(world: World) -> AccessControl:
    return world.broker.access


def is_allowed(world: World, operation: Operation, kind: Resource, name: str) -> bool:
    caller = Caller(Principal("User", "alice"), HOST)
    return world.broker.rule_authorizer.decide(caller, operation, kind, name).is_allowed


def create_user(pipe: RocketmqPipe, **more: str) -> None:
    user = {"username": "alice", "password": "12345678", "userType": "Normal"} | more
    pipe.ok(Request.AUTH_CREATE_USER, {"username": "alice"}, msgspec.json.encode(user))


def add_acl(pipe: RocketmqPipe, *entries: AclEntry, code: int = Request.AUTH_CREATE_ACL) -> None:
    acl = AclInfo(subject="User:alice", policies=[AclPolicy(entries=list(entries))])
    pipe.ok(code, {"subject": "User:alice"}, bodies.encode(acl))


def users(pipe: RocketmqPipe, **fields: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.json.decode(pipe.ok(Request.AUTH_LIST_USER, fields).body)
    return found


def acls(pipe: RocketmqPipe, **fields: object) -> list[AclInfo]:
    return msgspec.json.decode(pipe.ok(Request.AUTH_LIST_ACL, fields).body, type=list[AclInfo])


def can_sign(world: World, secret: str) -> bool:
    demand(world)
    pipe = RocketmqPipe(world)
    fields = signed({}, b"", access_key="alice", secret_key=secret)
    request = Command(code=Request.GET_BROKER_CLUSTER_INFO, opaque=1, version=399, fields=fields)
    pipe.feed(encode(request))
    world.settle()
    demand(world, "off")
    return pipe.replies()[1].code == 0


# ---- users of 5.x


@pytest.mark.parametrize("name", ["*", "ANONYMOUS", "a\n", "a" * 256])
def test_names_that_no_user_can_have_are_refused(
    world: World, pipe: RocketmqPipe, name: str
) -> None:
    user = msgspec.json.encode({"username": name, "password": "12345678", "userType": "Super"})
    fields = {"accessKey": name, "secretKey": "12345678", "admin": "true"}
    created = pipe.ask(Request.AUTH_CREATE_USER, {"username": name}, user)
    assert (created.code, "name" in str(created.remark)) == (Response.SYSTEM_ERROR, True)
    account = pipe.ask(Request.UPDATE_AND_CREATE_ACL_CONFIG, fields)
    assert (account.code, account.remark) == (created.code, created.remark)
    assert not access(world).users.known
    assert not world.broker.image.rules


def test_a_user_signs_with_its_password(world: World, pipe: RocketmqPipe) -> None:
    create_user(pipe)
    assert can_sign(world, "12345678")
    assert not can_sign(world, "87654321")
    assert access(world).users.known["alice"].scram == {}


def test_creating_a_user_again_changes_it(world: World, pipe: RocketmqPipe) -> None:
    create_user(pipe)
    incarnation = access(world).users.known["alice"].incarnation
    create_user(pipe, password="another one")
    assert can_sign(world, "another one")
    assert access(world).users.known["alice"].incarnation == incarnation


def test_users_are_listed_without_passwords(pipe: RocketmqPipe) -> None:
    create_user(pipe)
    listed = {"username": "alice", "userType": "Normal", "userStatus": "enable"}
    assert [{name: each[name] for name in listed} for each in users(pipe)] == [listed]
    reply = pipe.ok(Request.AUTH_GET_USER, {"username": "alice"})
    shown = msgspec.json.decode(reply.body)
    assert shown == listed | {"password": None} or shown == listed
    assert b"12345678" not in reply.body
    assert users(pipe, filter="lic") != []
    assert users(pipe, filter="bob") == []


def test_lists_have_the_form_of_the_client(world: World, pipe: RocketmqPipe) -> None:
    create_user(pipe)
    add_acl(pipe, AclEntry(resource="Topic:T", actions=["Pub"]))
    go = RocketmqPipe(world, language="GO")
    assert len(msgspec.json.decode(go.ok(Request.AUTH_LIST_USER).body)["users"]) == 1
    assert len(msgspec.json.decode(go.ok(Request.AUTH_LIST_ACL).body)["acls"]) == 1


def test_disabling_and_enabling(world: World, pipe: RocketmqPipe) -> None:
    create_user(pipe)
    change = {"username": "alice", "userStatus": "disable"}
    pipe.ok(Request.AUTH_UPDATE_USER, {"username": "alice"}, msgspec.json.encode(change))
    assert not can_sign(world, "12345678")
    assert users(pipe)[0]["userStatus"] == "disable"
    change["userStatus"] = "enable"
    pipe.ok(Request.AUTH_UPDATE_USER, {"username": "alice"}, msgspec.json.encode(change))
    assert can_sign(world, "12345678")


def test_superusers_are_allowed_everything(world: World, pipe: RocketmqPipe) -> None:
    create_user(pipe, userType="Super")
    assert users(pipe)[0]["userType"] == "Super"
    assert is_allowed(world, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    assert is_allowed(world, Operation.DELETE, TOPIC, "any")
    change = {"username": "alice", "userType": "Normal"}
    pipe.ok(Request.AUTH_UPDATE_USER, {"username": "alice"}, msgspec.json.encode(change))
    assert users(pipe)[0]["userType"] == "Normal"
    assert acls(pipe) == []


def test_deleted_users_leave_no_rules(world: World, pipe: RocketmqPipe) -> None:
    create_user(pipe, userType="Super")
    for _ in range(2):
        pipe.ok(Request.AUTH_DELETE_USER, {"username": "alice"})
    assert users(pipe) == []
    assert acls(pipe) == []
    create_user(pipe)
    assert users(pipe)[0]["userType"] == "Normal"


@pytest.mark.parametrize(
    ("code", "fields", "body", "refused"),
    [
        (Request.AUTH_GET_USER, {"username": "nobody"}, {}, 3001),
        (Request.AUTH_UPDATE_USER, {"username": "nobody"}, {"username": "nobody"}, 3001),
        (Request.AUTH_CREATE_USER, {}, {"password": "x"}, 29),
        (Request.AUTH_CREATE_USER, {}, {"username": "bob"}, 29),
        (Request.AUTH_CREATE_USER, {}, {"username": "bob", "password": "x", "userType": "?"}, 29),
        (Request.AUTH_CREATE_USER, {}, {"username": "b", "password": "x", "userStatus": "?"}, 29),
        (Request.AUTH_CREATE_USER, {}, {"username": "*", "password": "x"}, 1),
        (Request.AUTH_DELETE_USER, {}, {}, 1),
        (Request.AUTH_GET_ACL, {"subject": "User:alice"}, {}, 3002),
        (Request.AUTH_GET_ACL, {"subject": "alice"}, {}, 29),
        (Request.AUTH_CREATE_ACL, {}, {"subject": "Role:x", "policies": []}, 29),
        (Request.AUTH_CREATE_ACL, {}, {"subject": "User:x", "policies": []}, 29),
    ],
)
def test_what_makes_no_sense_is_refused(
    pipe: RocketmqPipe,
    code: int,
    fields: dict[str, object],
    body: dict[str, object],
    refused: int,
) -> None:
    assert pipe.refused(code, fields, msgspec.json.encode(body))[0] == refused


# ---- policies of 5.x


def test_entries_decide(world: World, pipe: RocketmqPipe) -> None:
    add_acl(
        pipe,
        AclEntry(resource="Topic:ord*", actions=["Pub"]),
        AclEntry(resource="Topic:orders", actions=["Pub"], decision="Deny"),
        AclEntry(resource="Group:g", actions=["Sub"], source_ips=["10.1.1.1"]),
    )
    assert is_allowed(world, WRITE, TOPIC, "ordinary")
    assert not is_allowed(world, WRITE, TOPIC, "orders")
    assert not is_allowed(world, READ, TOPIC, "ordinary")
    assert not is_allowed(world, READ, GROUP, "g")
    (acl,) = acls(pipe)
    assert acl.subject == "User:alice"
    assert {each.resource for each in acl.policies[0].entries} == {
        "Topic:ord*",
        "Topic:orders",
        "Group:g",
    }


def test_an_entry_replaces_those_about_its_resource(world: World, pipe: RocketmqPipe) -> None:
    add_acl(pipe, AclEntry(resource="Topic:T", actions=["Pub"]))
    add_acl(pipe, AclEntry(resource="Topic:U", actions=["Pub"]))
    update = AclEntry(resource="Topic:T", actions=["Sub"])
    add_acl(pipe, update, code=Request.AUTH_UPDATE_ACL)
    assert not is_allowed(world, WRITE, TOPIC, "T")
    assert is_allowed(world, READ, TOPIC, "T")
    assert is_allowed(world, WRITE, TOPIC, "U")


def test_entries_of_one_resource_or_all_are_deleted(world: World, pipe: RocketmqPipe) -> None:
    for topic in "TUV":
        add_acl(pipe, AclEntry(resource=f"Topic:{topic}", actions=["Pub"]))
    pipe.ok(Request.AUTH_DELETE_ACL, {"subject": "User:alice", "resource": "Topic:T"})
    assert not is_allowed(world, WRITE, TOPIC, "T")
    assert is_allowed(world, WRITE, TOPIC, "U")
    pipe.ok(Request.AUTH_DELETE_ACL, {"subject": "User:alice"})
    assert acls(pipe) == []


def test_policies_are_filtered(pipe: RocketmqPipe) -> None:
    add_acl(pipe, AclEntry(resource="Topic:T", actions=["Pub"]))
    assert len(acls(pipe, subjectFilter="ali", resourceFilter="Topic:")) == 1
    assert acls(pipe, subjectFilter="bob") == []
    assert acls(pipe, resourceFilter="Group:") == []
    reply = pipe.ok(Request.AUTH_GET_ACL, {"subject": "User:alice"})
    assert bodies.decode(reply.body, AclInfo).policies[0].entries[0].actions == ["Pub"]


def test_other_rules_stay(world: World, pipe: RocketmqPipe) -> None:
    """Those that RocketMQ cannot express are neither listed nor deleted with a policy."""
    rule = Rule(
        principal="User:alice",
        host="*",
        operation=WRITE,
        permission=Permission.ALLOW,
        resource=Resource.TRANSACTIONAL_ID,
        pattern=Pattern.LITERAL,
        name="x",
    )
    from dragoman.broker.administration import Actor

    start(access(world).rules.add([rule], Actor(Caller(), "test")))
    world.settle()
    add_acl(pipe, AclEntry(resource="Topic:T", actions=["Pub"]))
    pipe.ok(Request.AUTH_DELETE_ACL, {"subject": "User:alice"})
    assert list(world.broker.image.rules) == [rule]


# ---- accounts of 4.x


def account(pipe: RocketmqPipe, **fields: object) -> None:
    given = {"accessKey": "alice", "secretKey": "12345678"} | fields
    pipe.ok(Request.UPDATE_AND_CREATE_ACL_CONFIG, given)


def test_an_account_is_a_user_with_rules(world: World, pipe: RocketmqPipe) -> None:
    account(
        pipe,
        admin="false",
        defaultTopicPerm="PUB|SUB",
        defaultGroupPerm="DENY",
        topicPerms="T=PUB,U=DENY",
        groupPerms="g=SUB",
    )
    assert can_sign(world, "12345678")
    assert is_allowed(world, READ, TOPIC, "other")
    assert [is_allowed(world, each, TOPIC, "T") for each in (WRITE, READ)] == [True, False]
    assert [is_allowed(world, each, TOPIC, "U") for each in (WRITE, READ)] == [False, False]
    assert is_allowed(world, READ, GROUP, "g")
    assert not is_allowed(world, READ, GROUP, "h")
    assert not is_allowed(world, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)


def test_what_a_request_does_not_name_stays(world: World, pipe: RocketmqPipe) -> None:
    account(pipe, defaultTopicPerm="SUB", topicPerms="T=PUB", groupPerms="g=SUB")
    account(pipe, topicPerms="U=PUB")
    assert not is_allowed(world, WRITE, TOPIC, "T")
    assert is_allowed(world, WRITE, TOPIC, "U")
    assert is_allowed(world, READ, TOPIC, "T")
    assert is_allowed(world, READ, GROUP, "g")
    pipe.ok(Request.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "alice", "admin": "true"})
    assert is_allowed(world, WRITE, TOPIC, "T")
    assert can_sign(world, "12345678")


def test_deleting_an_account(world: World, pipe: RocketmqPipe) -> None:
    account(pipe, admin="true", topicPerms="T=PUB")
    pipe.ok(Request.DELETE_ACL_CONFIG, {"accessKey": "alice"})
    assert not can_sign(world, "12345678")
    assert not world.broker.image.rules


@pytest.mark.parametrize(
    "fields",
    [
        {"secretKey": ""},
        {"whiteRemoteAddress": "10.0.0.*"},
        {"topicPerms": "T=FLY"},
        {"defaultTopicPerm": "FLY"},
    ],
)
def test_accounts_that_cannot_be_expressed_are_refused(
    world: World, pipe: RocketmqPipe, fields: dict[str, object]
) -> None:
    given = {"accessKey": "alice", "secretKey": "12345678"} | fields
    assert pipe.refused(Request.UPDATE_AND_CREATE_ACL_CONFIG, given)[0] == 29
    assert not access(world).users.known
    assert not world.broker.image.rules


def test_white_addresses_are_refused_with_a_reason(pipe: RocketmqPipe) -> None:
    code, text = pipe.refused(
        Request.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.10.*.*"}
    )
    assert code == 29
    assert "principals" in text


def test_the_version_of_the_rules(pipe: RocketmqPipe) -> None:
    before = pipe.ok(Request.GET_BROKER_CLUSTER_ACL_INFO).fields
    assert before["clusterName"] == "DefaultCluster"
    account(pipe)
    assert pipe.ok(Request.GET_BROKER_CLUSTER_ACL_INFO).fields["version"] != before["version"]


# ---- who may


CHANGES = {
    Request.UPDATE_AND_CREATE_ACL_CONFIG: {"accessKey": "a", "secretKey": "b"},
    Request.DELETE_ACL_CONFIG: {"accessKey": "a"},
    Request.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: {},
    Request.AUTH_CREATE_USER: {"username": "a", "password": "b"},
    Request.AUTH_UPDATE_USER: {"username": "a"},
    Request.AUTH_DELETE_USER: {"username": "a"},
    Request.AUTH_CREATE_ACL: {"subject": "User:a"},
    Request.AUTH_UPDATE_ACL: {"subject": "User:a"},
    Request.AUTH_DELETE_ACL: {"subject": "User:a"},
}
LOOKS = {
    Request.GET_BROKER_CLUSTER_ACL_INFO: {},
    Request.AUTH_GET_USER: {"username": "a"},
    Request.AUTH_LIST_USER: {},
    Request.AUTH_GET_ACL: {"subject": "User:a"},
    Request.AUTH_LIST_ACL: {},
}


@pytest.mark.parametrize(
    ("code", "fields", "operation"),
    [(*each, Operation.ALTER) for each in CHANGES.items()]
    + [(*each, Operation.DESCRIBE) for each in LOOKS.items()],
)
def test_administration_needs_the_right(
    code: int, fields: dict[str, object], operation: Operation
) -> None:
    authorizer = Denies((operation, Resource.CLUSTER, CLUSTER_NAME))
    pipe = RocketmqPipe(World(authorizer=authorizer))
    assert pipe.refused(code, fields)[0] == 16
    assert set(authorizer.asked) == authorizer.denied


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (Request.AUTH_CREATE_USER, {"username": "alice", "password": "12345678"}),
        (Request.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "alice", "secretKey": "12345678"}),
    ],
)
def test_secrets_need_tls(code: int, body: dict[str, object]) -> None:
    world = World()
    pipe = RocketmqPipe(world)
    assert pipe.refused(code, body)[0] == 16
    assert not access(world).users.known


def test_no_secret_is_shown(pipe: RocketmqPipe) -> None:
    assert "12345678" not in repr(UserInfo(username="alice", password="12345678"))
