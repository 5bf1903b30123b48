"""A row for each command: arguments that work, what they need, and arguments that name nothing.

What a command connects to follows from its options. Names in capitals stand for places of a test:
DATA is a data directory that no node uses, HOME an empty folder.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.cli.client_security import BrokerTarget
from dragoman.cli.target import Target
from dragoman.cli.tree import Command

#: What a command connects to.
Side: TypeAlias = Literal["http", "broker", "rocketmq", "nothing"]


class Row(NamedTuple):
    #: Arguments of a run that succeeds.
    words: str = ""
    #: Commands that make what it needs, a line each.
    setup: str = ""
    #: Arguments that name a topic, a group or another thing that does not exist; empty: none do.
    unknown: str = ""
    #: The code of the failure that they end with; empty: such a change succeeds, as with mqadmin.
    unknown_code: str = ""
    unknown_status: int = 1
    #: What a user without any right gets: the code of a failure, or what is shown instead.
    denied: str = "cluster_not_authorized"
    #: Exit status of the run that succeeds.
    status: int = 0
    stdin: str = ""
    #: Why the run that succeeds is not tried here.
    not_here: str = ""
    #: Whether a server that does not answer is a finding on stdout, not a failure.
    finds_faults: bool = False
    #: Why the command has no JSON form.
    no_json: str = ""


SPARK: Final = "needs Spark"
SERVES: Final = "runs until it is stopped"
#: Commands that are not run at all.
NOT_RUN: Final = frozenset((SPARK, SERVES))
POSTGRES: Final = "needs PostgreSQL"
CLUSTER: Final = "needs several nodes"
MEMBER: Final = "needs a member"
#: What lists show to a user without any right.
NOTHING: Final = "shows nothing"
MISSING: Final = "lists what is missing"
CHECKS: Final = "shows what needs no right"

_ORDERS: Final = "topic create orders --partitions 2"
_GROUP: Final = f"""{_ORDERS}
produce orders < one
consume orders --group reports"""
_ALICE: Final = "user create alice --new-password file:alice.password"
_QUOTA: Final = "quota set producer_byte_rate=1024 --for-user alice"
_MQ: Final = "rocketmq update-topic -t orders -r 2 -w 2"
_SENT: Final = f"{_MQ}\nrocketmq send-message -t orders -p apples -k a -b dragoman-1 -i 0"
_MQ_GROUP: Final = f"{_MQ}\nrocketmq update-sub-group -g reports"

_FEW: Final = "--records 100 --warm-up 0 --size 10"

ROWS: Final[dict[str, Row]] = {
    "serve": Row(no_json="runs until it is stopped", not_here="test_serve_process.py"),
    "produce": Row("orders", _ORDERS, stdin="one\ntwo\n", denied="access_denied"),
    "consume": Row("orders", f"{_ORDERS}\nproduce orders < one", denied="access_denied"),
    "sql": Row('"select 1"', not_here=SPARK),
    "pipeline init": Row("HOME/project"),
    "pipeline run": Row(
        "profile --topic orders",
        not_here=SPARK,
        unknown="HOME/none.toml",
        unknown_code="pipeline_file",
        unknown_status=2,
    ),
    "pipeline list": Row("--state HOME"),
    "pipeline status": Row(
        "p --state HOME",
        not_here=SPARK,
        unknown="none --state HOME",
        unknown_code="unknown_pipeline",
    ),
    "pipeline stop": Row(
        "p --state HOME",
        not_here=SPARK,
        unknown="none --state HOME",
        unknown_code="unknown_pipeline",
    ),
    "topic list": Row("", _ORDERS, denied=NOTHING),
    "topic describe": Row(
        "orders", _ORDERS, unknown="none", unknown_code="unknown_topic", denied="not_authorized"
    ),
    "topic create": Row("orders", denied="not_authorized"),
    "topic alter": Row(
        "orders --set retention.ms=1000",
        _ORDERS,
        unknown="none --set retention.ms=1000",
        unknown_code="unknown_topic",
        denied="not_authorized",
    ),
    "topic partitions": Row(
        "orders 4 --yes",
        _ORDERS,
        unknown="none 4 --yes",
        unknown_code="unknown_topic",
        denied="not_authorized",
    ),
    "topic truncate": Row(
        "orders --before end --yes",
        _ORDERS,
        unknown="none --before end --yes",
        unknown_code="unknown_topic",
        denied="not_authorized",
    ),
    "topic delete": Row(
        "orders --yes",
        _ORDERS,
        unknown="none --yes",
        unknown_code="unknown_topic",
        denied="not_authorized",
    ),
    "group list": Row("", _GROUP, denied=NOTHING),
    "group describe": Row(
        "reports",
        _GROUP,
        unknown="none",
        unknown_code="unknown_group",
        denied="group_not_authorized",
    ),
    "group delete": Row(
        "reports --yes",
        _GROUP,
        unknown="none --yes",
        unknown_code="unknown_group",
        denied="group_not_authorized",
    ),
    "group reset": Row(
        "reports --to earliest --yes",
        _GROUP,
        unknown="reports --to earliest --topic none --yes",
        unknown_code="unknown_topic",
        denied="group_not_authorized",
    ),
    "cluster status": Row(),
    "cluster mlog-events": Row("", _ORDERS),
    "cluster add": Row("2@127.0.0.1:1", not_here=CLUSTER),
    "cluster remove": Row("2", not_here=CLUSTER, unknown="9", unknown_code="refused"),
    "cluster transfer": Row(
        "--leaders-of 1", not_here=CLUSTER, unknown="--leaders-of 9", unknown_code="unknown_node"
    ),
    "cluster reassign": Row(
        "--topic orders --nodes 1",
        _ORDERS,
        unknown="--topic none --nodes 1",
        unknown_code="unknown_topic",
    ),
    "cluster elect": Row("", unknown="--topic none", unknown_code="unknown_topic"),
    "cluster unclean-elect": Row(
        "orders-0 1 --yes", not_here=CLUSTER, unknown="none-0 1 --yes", unknown_code="unknown_topic"
    ),
    "cluster up": Row(no_json="runs until it is stopped", not_here="test_local_cluster.py"),
    "cdc add": Row(
        "shop --no-check --detach --dsn postgresql://127.0.0.1:1/none --tables t",
        not_here=POSTGRES,
        denied="not_authorized",
    ),
    "cdc list": Row(denied=NOTHING),
    "cdc status": Row("", unknown="none", unknown_code="unknown_capture", denied=NOTHING),
    "cdc pause": Row(
        "shop",
        not_here=POSTGRES,
        unknown="none",
        unknown_code="unknown_capture",
        denied="not_authorized",
    ),
    "cdc resume": Row(
        "shop",
        not_here=POSTGRES,
        unknown="none",
        unknown_code="unknown_capture",
        denied="not_authorized",
    ),
    "cdc run-as": Row(
        "shop User:alice",
        not_here=POSTGRES,
        unknown="none User:alice",
        unknown_code="unknown_capture",
        denied="not_authorized",
    ),
    "cdc rewind": Row(
        "shop --to 0/1",
        not_here=POSTGRES,
        unknown="none --to 0/1",
        unknown_code="unknown_capture",
        denied="not_authorized",
    ),
    "cdc snapshot": Row(
        "shop",
        not_here=POSTGRES,
        unknown="none",
        unknown_code="unknown_capture",
        denied="not_authorized",
    ),
    "cdc remove": Row(
        "shop",
        not_here=POSTGRES,
        unknown="none",
        unknown_code="unknown_capture",
        denied="not_authorized",
    ),
    "cdc doctor": Row(
        "shop",
        not_here=POSTGRES,
        unknown="none",
        unknown_code="unknown_capture",
        denied="not_authorized",
    ),
    "user create": Row("alice --new-password file:alice.password"),
    "user password": Row(
        "alice --new-password file:alice.password",
        _ALICE,
        unknown="none --new-password file:alice.password",
        unknown_code="unknown_user",
    ),
    "user signing-secret": Row(
        "alice --new-secret file:alice.password",
        _ALICE,
        unknown="none --new-secret file:alice.password",
        unknown_code="unknown_user",
    ),
    "user enable": Row("alice", _ALICE, unknown="none", unknown_code="unknown_user"),
    "user disable": Row("alice", _ALICE, unknown="none", unknown_code="unknown_user"),
    "user delete": Row("alice", _ALICE, unknown="none", unknown_code="unknown_user"),
    "user list": Row("", _ALICE),
    "user describe": Row("alice", _ALICE, unknown="none", unknown_code="unknown_user"),
    "user token create": Row("alice", _ALICE, unknown="none", unknown_code="unknown_user"),
    "user token revoke": Row(
        "alice 0", _ALICE, unknown="none 0", unknown_code="unknown_user", not_here="ids are random"
    ),
    "acl add": Row("alice read topic:orders"),
    "acl remove": Row("--principal alice", "acl add alice read topic:orders"),
    "acl list": Row("", "acl add alice read topic:orders"),
    "acl test": Row("alice read topic:orders", "acl add alice read topic:orders"),
    "quota list": Row("", _QUOTA),
    "quota set": Row("producer_byte_rate=1024 --for-user alice"),
    "quota remove": Row(
        "--all --for-user alice",
        _QUOTA,
        unknown="--all --for-user none",
        unknown_code="unknown_quota",
    ),
    "quota test": Row("--for-user alice", _QUOTA),
    "quota usage": Row("", _QUOTA),
    "security mode": Row("audit", not_here="needs an administrator who logged in"),
    "security status": Row(),
    "security key new": Row("HOME/cluster.key"),
    "security key rotate": Row(),
    "security key status": Row(),
    "rocketmq topic-list": Row("", _MQ, denied="no_permission"),
    "rocketmq topic-route": Row(
        "-t orders", _MQ, unknown="-t none", unknown_code="topic_not_found", denied="no_permission"
    ),
    "rocketmq topic-status": Row(
        "-t orders", _MQ, unknown="-t none", unknown_code="topic_not_found", denied="no_permission"
    ),
    "rocketmq update-topic": Row("-t orders", denied="no_permission"),
    "rocketmq delete-topic": Row(
        "-t orders", _MQ, unknown="-t none", unknown_code="", denied="no_permission"
    ),
    "rocketmq cluster-list": Row(denied="no_permission"),
    "rocketmq broker-status": Row(denied="no_permission"),
    "rocketmq consumer-progress": Row(
        "-g reports", _MQ_GROUP, unknown="-g none", unknown_code="", denied="no_permission"
    ),
    "rocketmq consumer-connection": Row(
        "-g reports",
        not_here=MEMBER,
        unknown="-g none",
        unknown_code="group_offline",
        denied="no_permission",
    ),
    "rocketmq producer-connection": Row(
        "-g shop -t orders",
        not_here=MEMBER,
        unknown="-g none -t none",
        unknown_code="topic_not_found",
        denied="no_permission",
    ),
    "rocketmq reset-offset-by-time": Row(
        "-g reports -t orders -s now",
        _MQ_GROUP,
        unknown="-g none -t none -s now",
        unknown_code="topic_not_found",
        denied="no_permission",
    ),
    "rocketmq update-sub-group": Row("-g reports", denied="no_permission"),
    "rocketmq delete-sub-group": Row(
        "-g reports", _MQ_GROUP, unknown="-g none", unknown_code="", denied="no_permission"
    ),
    "rocketmq query-msg-by-id": Row(
        "-t orders -i 0",
        not_here="ids are made by brokers",
        unknown="-t none -i 0",
        unknown_code="topic_not_found",
        denied="no_permission",
    ),
    "rocketmq query-msg-by-key": Row(
        "-t orders -k a",
        _SENT,
        unknown="-t none -k a",
        unknown_code="topic_not_found",
        denied="no_permission",
    ),
    "rocketmq query-msg-by-unique-key": Row(
        "-t orders -i 0",
        not_here="ids are made by clients",
        unknown="-t none -i 0",
        unknown_code="topic_not_found",
        denied="no_permission",
    ),
    "rocketmq query-msg-by-offset": Row(
        "-t orders -b dragoman-1 -i 0 -o 0",
        _SENT,
        unknown="-t none -b dragoman-1 -i 0 -o 0",
        unknown_code="topic_not_found",
        denied="no_permission",
    ),
    "rocketmq send-message": Row("-t orders -p apples", _MQ, denied="no_permission"),
    "rocketmq dlq-list": Row(
        "-g reports", _MQ_GROUP, unknown="-g none", unknown_code="", denied="no_permission"
    ),
    "rocketmq dlq-resend": Row(
        "-g reports --all",
        _MQ_GROUP,
        unknown="-g none --all",
        unknown_code="",
        denied="no_permission",
    ),
    "rocketmq create-user": Row("-u alice --password-file alice.password", denied="no_permission"),
    "rocketmq update-user": Row(
        "-u alice -s disable",
        _ALICE,
        unknown="-u none -s disable",
        unknown_code="unknown_user",
        denied="no_permission",
    ),
    "rocketmq delete-user": Row(
        "-u alice", _ALICE, unknown="-u none", unknown_code="", denied="no_permission"
    ),
    "rocketmq list-user": Row("", _ALICE, denied="no_permission"),
    "rocketmq create-acl": Row("-s alice -r Topic:orders -a Pub", _ALICE, denied="no_permission"),
    "rocketmq delete-acl": Row(
        "-s alice",
        "rocketmq create-acl -s alice -r Topic:orders -a Pub",
        unknown="-s none",
        unknown_code="",
        denied="no_permission",
    ),
    "rocketmq list-acl": Row(
        "", "rocketmq create-acl -s alice -r Topic:orders -a Pub", denied="no_permission"
    ),
    "bench produce": Row(_FEW, denied="access_denied"),
    "bench consume": Row(
        f"{_FEW} --fill 100",
        unknown=f"{_FEW} --topic none",
        unknown_code="unknown_topic",
        denied="access_denied",
    ),
    "bench latency": Row(_FEW, denied="access_denied"),
    "top": Row("--once"),
    "console": Row(no_json=SERVES, not_here=SERVES),
    "debug bundle": Row("--output-file HOME/bundle.tar.gz", denied=MISSING, finds_faults=True),
    "tls dev": Row("HOME/certificates"),
    "doctor": Row(denied=CHECKS, finds_faults=True),
    "context list": Row(),
    "context show": Row(
        "a",
        "context add a --server http://h:1",
        unknown="none",
        unknown_code="unknown_context",
        unknown_status=2,
    ),
    "context add": Row("a --server http://h:1"),
    "context use": Row(
        "a",
        "context add a --server http://h:1",
        unknown="none-such",
        unknown_code="unknown_context",
        unknown_status=2,
    ),
    "context remove": Row(
        "a",
        "context add a --server http://h:1",
        unknown="none",
        unknown_code="unknown_context",
        unknown_status=2,
    ),
    "completion": Row("fish", no_json="prints a script"),
    "config show": Row(),
    "config schema": Row(no_json="always prints JSON"),
    "config set": Row("log.retention.ms=86400000", unknown="no.such.key=1", unknown_code="config"),
    "config unset": Row("log.retention.ms", unknown="no.such.key", unknown_code="config"),
    "log inspect": Row("DATA", unknown="HOME/none", unknown_code="config", unknown_status=2),
    "log verify": Row("DATA", unknown="HOME/none", unknown_code="config", unknown_status=2),
    "log repair": Row("DATA", unknown="HOME/none", unknown_code="config", unknown_status=2),
    "log adopt": Row(
        "DATA",
        not_here="needs a directory without node.json",
        unknown="HOME/none",
        unknown_code="config",
        unknown_status=2,
    ),
    "import minibroker": Row(
        "HOME/minibroker --data HOME/imported",
        unknown="HOME/none --data HOME/imported",
        unknown_code="source",
        unknown_status=2,
    ),
}


def side(command: Command) -> Side:
    if command.path.startswith("rocketmq "):
        return "rocketmq"
    for each in command.app.assemble_argument_collection():
        if isinstance(each.hint, type) and issubclass(each.hint, Target | BrokerTarget):
            return "http" if issubclass(each.hint, Target) else "broker"
    return "nothing"
