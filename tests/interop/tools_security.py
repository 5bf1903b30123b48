"""Users, quotas and access rules by Kafka's command line, on a broker that enforces its rules.

The administrator has every right on the cluster by a rule; a user without rights types the same.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import java_client
from client import SECONDS_MAX, Client, Operations

from dragoman.security.access import Operation, Resource
from dragoman.testing import EphemeralBroker
from nodes.users import allow, enforce

CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
NO_RIGHT = "ClusterAuthorizationException"
NO_LOGIN = "SaslAuthenticationException"
PASSWORD = "a-password-for-tests"


class Refused(Exception):
    """What a tool printed when it failed."""


class Terminal:
    """A user at a command line."""

    def __init__(
        self, servers: str, directory: Path, name: str, password: str, mechanism: str
    ) -> None:
        self._servers = servers
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        self._config = directory / f"{name}-{mechanism}.properties"
        self._config.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module} required"
            f' username="{name}" password="{password}";\n'
        )

    def run(self, tool: str, *arguments: str, given: str = "") -> str:
        program = ("java", *java_client.OPTIONS, "-cp", java_client.CLASS_PATH, tool)
        login = ("--bootstrap-server", self._servers, "--command-config", str(self._config))
        done = subprocess.run(
            [*program, *login, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        printed = done.stdout + done.stderr
        # Some tools print an error and end well.
        if done.returncode or re.search(r"\b\w+Exception\b", printed):
            raise Refused(printed)
        return done.stdout

    def is_refused(self, error: str, tool: str, *arguments: str, given: str = "") -> None:
        reason = ""
        try:
            self.run(tool, *arguments, given=given)
        except Refused as refused:
            reason = str(refused)
        assert error in reason, f"{tool} {' '.join(arguments)}: {reason or 'not refused'}"


class Scene:
    def __init__(self, servers: str, directory: Path) -> None:
        self._servers, self._directory = servers, directory
        self.admin = self.terminal("admin", PASSWORD)
        self.poor = self.terminal("poor", PASSWORD)

    def terminal(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> Terminal:
        return Terminal(self._servers, self._directory, name, password, mechanism)


@contextmanager
def _scene() -> Iterator[Scene]:
    users = {"admin": PASSWORD, "poor": PASSWORD}
    settings = {"super.users": "User:root"}
    with (
        EphemeralBroker(users=users, settings=settings, listeners=("kafka",)) as broker,
        tempfile.TemporaryDirectory() as directory,
    ):
        enforce(
            broker,
            allow("User:admin", Operation.ALL, Resource.CLUSTER, "kafka-cluster"),
            allow("User:admin", Operation.ALL, Resource.TOPIC),
        )
        yield Scene(broker.bootstrap_servers, Path(directory))


# ---- users


def scram_users(_client: Client, _topic: str) -> None:
    with _scene() as scene:
        admin, poor = scene.admin, scene.poor
        shop = ("--entity-type", "users", "--entity-name", "shop")
        own = (CONFIGS, "--describe", *shop)
        created = "SCRAM-SHA-256=[iterations=8192,password=first],SCRAM-SHA-512=[password=first]"
        poor.is_refused(NO_RIGHT, CONFIGS, "--alter", "--add-config", created, *shop)
        admin.run(CONFIGS, "--alter", "--add-config", created, *shop)
        printed = admin.run(CONFIGS, "--describe", *shop)
        assert "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096" in printed, printed
        assert "'shop'" in admin.run(CONFIGS, "--describe", "--entity-type", "users")
        poor.is_refused(NO_RIGHT, CONFIGS, "--describe", *shop)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            scene.terminal("shop", "first", mechanism).run(TOPICS, "--list")
            scene.terminal("shop", "other", mechanism).is_refused(NO_LOGIN, *own)

        changed = "SCRAM-SHA-512=[iterations=16384,password=second]"
        poor.is_refused(NO_RIGHT, CONFIGS, "--alter", "--add-config", changed, *shop)
        admin.run(CONFIGS, "--alter", "--add-config", changed, *shop)
        printed = admin.run(CONFIGS, "--describe", *shop)
        assert "SCRAM-SHA-512=iterations=16384" in printed, printed
        scene.terminal("shop", "first").is_refused(NO_LOGIN, *own)
        scene.terminal("shop", "second").run(TOPICS, "--list")

        gone = ("--alter", "--delete-config")
        poor.is_refused(NO_RIGHT, CONFIGS, *gone, "SCRAM-SHA-512", *shop)
        admin.run(CONFIGS, *gone, "SCRAM-SHA-512", *shop)
        scene.terminal("shop", "second").is_refused(NO_LOGIN, *own)
        scene.terminal("shop", "first", "SCRAM-SHA-256").run(TOPICS, "--list")
        admin.run(CONFIGS, *gone, "SCRAM-SHA-256", *shop)
        scene.terminal("shop", "first", "SCRAM-SHA-256").is_refused(NO_LOGIN, *own)
        printed = admin.run(CONFIGS, "--describe", "--entity-type", "users")
        assert "shop" not in printed, printed
        too_few = "SCRAM-SHA-512=[iterations=1024,password=first]"
        refusal = "less than the minimum 4096"
        admin.is_refused(refusal, CONFIGS, "--alter", "--add-config", too_few, *shop)


# ---- quotas

USER, CLIENT, IP = (("--entity-type", kind) for kind in ("users", "clients", "ips"))
QUOTAS = {
    "user": ((*USER, "--entity-name", "shop"), "producer_byte_rate"),
    "client id": ((*CLIENT, "--entity-name", "till"), "consumer_byte_rate"),
    "user and client id": (
        (*USER, "--entity-name", "shop", *CLIENT, "--entity-name", "till"),
        "request_percentage",
    ),
    "address": ((*IP, "--entity-name", "127.0.0.9"), "connection_creation_rate"),
    "default of users": ((*USER, "--entity-default"), "producer_byte_rate"),
    "default of client ids": ((*CLIENT, "--entity-default"), "consumer_byte_rate"),
    "default of client ids of a user": (
        (*USER, "--entity-name", "shop", *CLIENT, "--entity-default"),
        "producer_byte_rate",
    ),
    "default of users and client ids": (
        (*USER, "--entity-default", *CLIENT, "--entity-default"),
        "consumer_byte_rate",
    ),
    "default of addresses": ((*IP, "--entity-default"), "connection_creation_rate"),
}
#: Those that the user without rights is tried with.
REFUSED = ("user", "address")


def quotas(_client: Client, _topic: str) -> None:
    with _scene() as scene:
        admin, poor = scene.admin, scene.poor
        for title, (entity, name) in QUOTAS.items():
            if title in REFUSED:
                added = ("--alter", "--add-config", f"{name}=1000")
                poor.is_refused(NO_RIGHT, CONFIGS, *added, *entity)
            admin.run(CONFIGS, "--alter", "--add-config", f"{name}=1000", *entity)
        for title, (entity, name) in QUOTAS.items():
            printed = admin.run(CONFIGS, "--describe", *entity)
            assert f"{name}=1000" in printed, (entity, printed)
            if title in REFUSED:
                poor.is_refused(NO_RIGHT, CONFIGS, "--describe", *entity)
        entity, name = QUOTAS["user"]
        admin.run(CONFIGS, "--alter", "--add-config", f"{name}=2000,request_percentage=50", *entity)
        printed = admin.run(CONFIGS, "--describe", *entity)
        assert f"{name}=2000" in printed, printed
        assert "request_percentage=50" in printed, printed
        admin.run(CONFIGS, "--alter", "--delete-config", "request_percentage", *entity)
        for title, (entity, name) in QUOTAS.items():
            if title in REFUSED:
                poor.is_refused(NO_RIGHT, CONFIGS, "--alter", "--delete-config", name, *entity)
            admin.run(CONFIGS, "--alter", "--delete-config", name, *entity)
            printed = admin.run(CONFIGS, "--describe", *entity)
            assert name not in printed, (entity, printed)


# ---- access rules


#: What is typed behind `--add` and `--remove`, and what is listed.
RULES = (
    (
        "--allow-principal User:shop --operation Read --topic {topic}",
        "patternType=LITERAL",
    ),
    (
        "--allow-principal User:shop --operation All --topic a- --resource-pattern-type prefixed",
        "name=a-, patternType=PREFIXED",
    ),
    (
        "--deny-principal User:shop --deny-host 10.0.0.9 --operation Write --topic *",
        "host=10.0.0.9, operation=WRITE, permissionType=DENY",
    ),
    (
        "--allow-principal User:shop --operation DescribeConfigs --cluster",
        "resourceType=CLUSTER",
    ),
    (
        "--allow-principal User:shop --allow-host 127.0.0.1 --operation Read --group g",
        "host=127.0.0.1, operation=READ",
    ),
    (
        "--allow-principal User:shop --operation Write --transactional-id x",
        "resourceType=TRANSACTIONAL_ID",
    ),
)


def rules(_client: Client, topic: str) -> None:
    """Listed as they were added, and gone after they are removed."""
    with _scene() as scene:
        admin, poor = scene.admin, scene.poor
        for line, wanted in RULES:
            rule = line.format(topic=topic).split()
            poor.is_refused(NO_RIGHT, ACLS, "--add", *rule)
            admin.run(ACLS, "--add", *rule)
            printed = admin.run(ACLS, "--list")
            assert wanted in printed, (rule, printed)
            poor.is_refused(NO_RIGHT, ACLS, "--list")
            poor.is_refused(NO_RIGHT, ACLS, "--remove", "--force", *rule)
            admin.run(ACLS, "--remove", "--force", *rule)
            printed = admin.run(ACLS, "--list")
            assert "User:shop" not in printed, (rule, printed)
        # Delegation tokens are not supported, nor are rules for them.
        owner = ("--operation", "DescribeTokens", "--user-principal", "User:till")
        add = ("--add", "--allow-principal", "User:shop", *owner)
        admin.is_refused("InvalidRequestException", ACLS, *add)


def shortcuts(_client: Client, topic: str) -> None:
    """`--producer` and `--consumer` are enough to write and to read, and a rule that denies
    is more than those that allow.
    """
    with _scene() as scene:
        admin, poor = scene.admin, scene.poor
        login = "SCRAM-SHA-512=[password=first]"
        entity = ("--entity-type", "users", "--entity-name", "shop")
        admin.run(CONFIGS, "--alter", "--add-config", login, *entity)
        shop = scene.terminal("shop", "first")
        admin.run(TOPICS, "--create", "--topic", topic, "--partitions", "1")
        write = (PRODUCER, "--topic", topic)
        read = (CONSUMER, "--topic", topic, "--group", "g", "--from-beginning")
        read += ("--max-messages", "1", "--timeout-ms", "20000")
        writes = ("--producer", "--topic", topic, "--allow-principal", "User:shop")
        reads = ("--consumer", "--topic", topic, "--group", "g", "--allow-principal", "User:shop")

        def written() -> str:
            """The end of the topic: without a logger, the console's tools print no error."""
            shown = admin.run(OFFSETS, "--topic", topic)
            return shown.strip().rpartition(":")[2]

        shop.run(*write, given="none\n")
        assert written() == "0"
        poor.is_refused(NO_RIGHT, ACLS, "--add", *writes)
        admin.run(ACLS, "--add", *writes)
        shop.run(*write, given="one\n")
        assert "one" not in shop.run(*read)
        poor.is_refused(NO_RIGHT, ACLS, "--add", *reads)
        admin.run(ACLS, "--add", *reads)
        assert "one" in shop.run(*read)

        denied = ("--deny-principal", "User:shop", "--operation", "Write", "--topic", topic[:3])
        denied += ("--resource-pattern-type", "prefixed")
        admin.run(ACLS, "--add", *denied)
        shop.run(*write, given="none\n")
        assert written() == "1"
        matches = ("--topic", topic, "--resource-pattern-type", "match")
        printed = admin.run(ACLS, "--list", *matches)
        assert "patternType=PREFIXED" in printed, printed
        assert "patternType=LITERAL" in printed, printed
        admin.run(ACLS, "--remove", "--force", *denied)
        shop.run(*write, given="two\n")
        assert written() == "2"
        for rule in (writes, reads):
            poor.is_refused(NO_RIGHT, ACLS, "--remove", "--force", *rule)
            admin.run(ACLS, "--remove", "--force", *rule)
        assert "User:shop" not in admin.run(ACLS, "--list")
        shop.run(*write, given="none\n")
        assert written() == "2"


OPERATIONS: Operations = {
    "SCRAM users: create, describe, alter, delete": scram_users,
    "quotas of users, client ids, addresses and defaults: set, describe, remove": quotas,
    "rules, prefixed and denying ones: add, list, remove": rules,
    "rules by --producer and --consumer, and their effect": shortcuts,
}
SECTION = {"Kafka command line: users, quotas and rules": OPERATIONS}
