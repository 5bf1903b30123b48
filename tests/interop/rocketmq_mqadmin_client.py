"""RocketMQ's command line, mqadmin: what an operator types, and what must be in the answer."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import rocketmq_java_client
from client import Operations, Unsupported, wait_until
from rocketmq_client import Consumer, Message
from rocketmq_operations import collect

set_up = rocketmq_java_client.set_up
BROKER, CLUSTER = "dragoman-1", "DefaultCluster"
_BODIES = [f"m{number}" for number in range(8)]


class MqadminClient(rocketmq_java_client.RocketmqJavaClient):
    def command(self, servers: str) -> list[str]:
        # Old releases do not start without.
        folder = Path(self._home.name) / "conf"
        folder.mkdir()
        shutil.copy(rocketmq_java_client.SOURCES / "logback.xml", folder / "logback_tools.xml")
        java, *rest = super().command(servers)
        return [java, f"-Drocketmq.home.dir={self._home.name}", *rest]

    @property
    def at_broker(self) -> tuple[str, str]:
        return "-b", self.broker.address("rocketmq-broker")

    def run(self, *words: str) -> str:
        printed: str = self._program.ask("mqadmin", 0, (*words, "-n", self.servers))
        if printed.startswith("The sub command"):
            raise Unsupported(words[0])
        assert "command failed" not in printed, printed
        return printed

    def knows_producer(self, topic: str) -> bool:
        """Whether a heartbeat of the producer has arrived: it sends them beside its messages."""
        try:
            return "JAVA" in self.run("producerConnection", "-g", "interop", "-t", topic)
        except AssertionError as error:
            if "not exist" in str(error):
                return False
            raise

    def by_id(self, topic: str, number: str, *words: str) -> str:
        """Newer releases want to know the topic, older ones do not know the option."""
        place = () if self.version.startswith("4") else ("-t", topic)
        return self.run("queryMsgById", *place, "-i", number, *words)

    def prepare(self, topic: str) -> str:
        """A topic with eight messages in four queues; the group of its name is at its beginning."""
        self.run("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "4", "-w", "4")
        self.make_group(topic, topic)
        self.send(topic, [Message(body, tags="a", keys=f"key-{body}") for body in _BODIES])
        return topic

    def reader(self, topic: str) -> Consumer:
        """A member that has read everything."""
        consumer = self.consumer(topic, topic)
        collect(consumer, _BODIES)
        return consumer

    def lag(self, group: str) -> int:
        shown = self.run("consumerProgress", "-g", group)
        return int(re.search(r"Diff Total: (\d+)", shown)[1])  # type: ignore[index]


# ---- topics


def make_and_delete(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.run("updateTopic", *mqadmin.at_broker, "-t", topic, "-r", "2", "-w", "2")
    assert topic in mqadmin.run("topicList").split()
    assert CLUSTER in mqadmin.run("topicClusterList", "-t", topic)
    mqadmin.run("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert topic not in mqadmin.run("topicList").split()


def make_several(mqadmin: MqadminClient, topic: str) -> None:
    wanted = [
        {"topicName": f"{topic}-{n}", "readQueueNums": n, "writeQueueNums": n} for n in (1, 2)
    ]
    path = Path(mqadmin._home.name) / "topics.json"
    path.write_text(json.dumps(wanted))
    mqadmin.run("updateTopicList", *mqadmin.at_broker, "-f", str(path))
    assert {f"{topic}-1", f"{topic}-2"} <= set(mqadmin.run("topicList").split())


def route(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.run("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "3", "-w", "3")
    shown = re.sub(r"\s", "", mqadmin.run("topicRoute", "-t", topic))
    assert f'"brokerAddrs":{{0:"{mqadmin.at_broker[1]}"' in shown, shown
    assert '"writeQueueNums":3' in shown, shown


def permission(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.prepare(topic)
    shown = mqadmin.run("updateTopicPerm", "-t", topic, "-p", "4", "-c", CLUSTER)
    assert "from 6 to 4" in shown, shown
    assert '"perm":4' in re.sub(r"\s", "", mqadmin.run("topicRoute", "-t", topic))


def status(mqadmin: MqadminClient, topic: str) -> None:
    shown = mqadmin.run("topicStatus", "-t", mqadmin.prepare(topic))
    ends = re.findall(rf"{BROKER}\s+(\d)\s+0\s+(\d)", shown)
    assert sum(int(end) for _, end in ends) == len(_BODIES), shown


def order(mqadmin: MqadminClient, topic: str) -> None:
    asked = ("updateOrderConf", "-t", mqadmin.prepare(topic), "-m")
    mqadmin.run(*asked, "put", "-v", f"{BROKER}:4")
    assert f"{BROKER}:4" in mqadmin.run(*asked, "get")
    mqadmin.run(*asked, "delete")


def allocation(mqadmin: MqadminClient, topic: str) -> None:
    shown = mqadmin.run("allocateMQ", "-t", mqadmin.prepare(topic), "-i", "1.1.1.1,2.2.2.2")
    assert shown.count('"queueId"') == 4, shown


# ---- messages


def sent(mqadmin: MqadminClient, topic: str) -> None:
    """Sent, then found by each of its names."""
    mqadmin.prepare(topic)
    to_queue = ("-b", BROKER, "-i", "2")
    shown = mqadmin.run("sendMessage", "-t", topic, "-p", "hi", "-k", "its-key", *to_queue)
    assert "SEND_OK" in shown, shown
    unique = re.search(r"[0-9A-F]{32,}", shown)[0]  # type: ignore[index]
    assert unique in mqadmin.run("queryMsgByKey", "-t", topic, "-k", "its-key")
    assert "[its-key]" in mqadmin.run("queryMsgByUniqueKey", "-t", topic, "-i", unique)
    shown = mqadmin.run("queryMsgByOffset", "-t", topic, *to_queue, "-o", "2")
    assert "[its-key]" in shown, shown
    number = re.search(r"OffsetID:\s+(\w+)", shown)[1]  # type: ignore[index]
    assert "[its-key]" in mqadmin.by_id(topic, number)


def printed(mqadmin: MqadminClient, topic: str) -> None:
    shown = mqadmin.run("printMsg", "-t", mqadmin.prepare(topic), "-d", "true")
    assert all(f"BODY: {body}" in shown for body in _BODIES), shown
    one = ("-t", topic, "-a", BROKER, "-i", "1", "-p", "true", "-d", "true")
    assert mqadmin.run("printMsgByQueue", *one).count("BODY: m") == 2


def consumed(mqadmin: MqadminClient, topic: str) -> None:
    shown = mqadmin.run("consumeMessage", "-t", mqadmin.prepare(topic))
    assert all(f"BODY: {body}" in shown for body in _BODIES), shown


def queue_entries(mqadmin: MqadminClient, topic: str) -> None:
    asked = ("-t", mqadmin.prepare(topic), "-q", "0", "-i", "0", "-c", "5")
    shown = mqadmin.run("queryCq", *asked, *mqadmin.at_broker)
    assert "max: 2, min: 0" in shown, shown
    assert shown.count("tagsCode=97") == 2, shown


def send_times(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.prepare(topic)
    assert mqadmin.run("sendMsgStatus", "-b", BROKER, "-c", "3").count("SEND_OK") == 3
    assert "Avg RT" in mqadmin.run("checkMsgSendRT", "-t", topic, "-a", "5")


# ---- groups


def group_config(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.run("updateSubGroup", "-c", CLUSTER, "-g", topic, "-r", "3")
    assert re.search(r"retryMaxTimes += +3", mqadmin.run("getConsumerConfig", "-g", topic))
    mqadmin.run("deleteSubGroup", "-c", CLUSTER, "-g", topic)
    assert "retryMaxTimes" not in mqadmin.run("getConsumerConfig", "-g", topic)


def progress(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.reader(mqadmin.prepare(topic)).close()
    assert mqadmin.lag(topic) == 0
    mqadmin.send(topic, [Message("one more")])
    assert mqadmin.lag(topic) == 1
    assert topic in mqadmin.run("brokerConsumeStats", *mqadmin.at_broker)
    assert re.search(rf"{topic}\s+{topic}\s+1\s", mqadmin.run("statsAll", "-t", topic))


def connections(mqadmin: MqadminClient, topic: str) -> None:
    consumer = mqadmin.reader(mqadmin.prepare(topic))
    try:
        shown = mqadmin.run("consumerConnection", "-g", topic)
        assert "MessageModel: CLUSTERING" in shown, shown
        assert "Rebalance OK" in mqadmin.run("consumerStatus", "-g", topic)
        wait_until(partial(mqadmin.knows_producer, topic), "the producer's first heartbeat")
        assert "(interop)" in mqadmin.run("producer", *mqadmin.at_broker)
    finally:
        consumer.close()


def reset(mqadmin: MqadminClient, topic: str) -> None:
    """Without a member, and under a member that then reads everything again."""
    consumer = mqadmin.reader(mqadmin.prepare(topic))
    consumer.close()
    mqadmin.run("resetOffsetByTime", "-g", topic, "-t", topic, "-s", "0")
    assert mqadmin.lag(topic) == len(_BODIES)
    mqadmin.run("skipAccumulatedMessage", "-g", topic, "-t", topic)
    assert mqadmin.lag(topic) == 0
    consumer = mqadmin.consumer(topic, topic)
    try:
        mqadmin.send(topic, [Message("now it reads")])
        collect(consumer, ["now it reads"])
        mqadmin.run("resetOffsetByTime", "-g", topic, "-t", topic, "-s", "0")
        collect(consumer, _BODIES)
    finally:
        consumer.close()


def cloned(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.reader(mqadmin.prepare(topic)).close()
    other = f"other-{topic}"
    mqadmin.run("cloneGroupOffset", "-s", topic, "-d", other, "-t", topic, "-o", "true")
    consumer = mqadmin.consumer(other, topic)
    try:
        mqadmin.send(topic, [Message("only this")])
        assert [each.body for each in collect(consumer, ["only this"])] == ["only this"]
        assert mqadmin.lag(other) <= 1
    finally:
        consumer.close()


def directly(mqadmin: MqadminClient, topic: str) -> None:
    """A message is pushed to one member once more."""
    consumer = mqadmin.reader(mqadmin.prepare(topic))
    try:
        shown = mqadmin.run("consumerConnection", "-g", topic)
        member = re.search(r"\S+@consumer-\d+", shown)[0]  # type: ignore[index]
        shown = mqadmin.run("queryMsgByOffset", "-t", topic, "-b", BROKER, "-i", "0", "-o", "0")
        number = re.search(r"OffsetID:\s+(\w+)", shown)[1]  # type: ignore[index]
        assert "CR_SUCCESS" in mqadmin.by_id(topic, number, "-g", topic, "-d", member)
    finally:
        consumer.close()


def mode(mqadmin: MqadminClient, topic: str) -> None:
    asked = ("-c", CLUSTER, "-t", mqadmin.prepare(topic), "-g", topic, "-m", "PULL")
    assert "success" in mqadmin.run("setConsumeMode", *asked)


# ---- the cluster


def cluster(mqadmin: MqadminClient, _: str) -> None:
    line = rf"{CLUSTER}\s+{BROKER}\s+0\s+{mqadmin.at_broker[1]}"
    assert re.search(line, mqadmin.run("clusterList"))
    assert re.search(rf"{CLUSTER}\s+{BROKER}", mqadmin.run("clusterList", "-m"))


def broker_status(mqadmin: MqadminClient, _: str) -> None:
    assert re.search(r"bootTimestamp\s+: \d+", mqadmin.run("brokerStatus", *mqadmin.at_broker))
    assert mqadmin.at_broker[1] in mqadmin.run("brokerStatus", "-c", CLUSTER)


def configuration(mqadmin: MqadminClient, _: str) -> None:
    key = "autoCreateTopicEnable"
    for value in ("false", "true"):
        mqadmin.run("updateBrokerConfig", *mqadmin.at_broker, "-k", key, "-v", value)
        shown = mqadmin.run("getBrokerConfig", *mqadmin.at_broker)
        assert re.search(rf"{key} += +{value}", shown), shown
    assert key in mqadmin.run("getNamesrvConfig")


def write_permission(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.prepare(topic)
    assert re.search(r"OK, \d", mqadmin.run("wipeWritePerm", "-b", BROKER))
    assert '"perm":4' in re.sub(r"\s", "", mqadmin.run("topicRoute", "-t", topic))
    mqadmin.run("addWritePerm", "-b", BROKER)
    assert '"perm":6' in re.sub(r"\s", "", mqadmin.run("topicRoute", "-t", topic))


def key_values(mqadmin: MqadminClient, topic: str) -> None:
    mqadmin.run("updateKvConfig", "-s", topic, "-k", "a", "-v", "b")
    mqadmin.run("deleteKvConfig", "-s", topic, "-k", "a")


def cleaning(mqadmin: MqadminClient, _: str) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in mqadmin.run(command, *mqadmin.at_broker)


def exported(command: str, file: str) -> Callable[[MqadminClient, str], None]:
    def operation(mqadmin: MqadminClient, topic: str) -> None:
        mqadmin.reader(mqadmin.prepare(topic)).close()
        mqadmin.run(command, "-c", CLUSTER, "-f", mqadmin._home.name)
        assert json.loads((Path(mqadmin._home.name) / file).read_text())

    return operation


# ---- users and permissions


def users(mqadmin: MqadminClient, topic: str) -> None:
    broker, name = mqadmin.at_broker, topic
    mqadmin.run("createUser", *broker, "-u", name, "-p", "12345678", "-t", "Super")
    assert re.search(rf"{name} +null +Super +enable", mqadmin.run("listUser", *broker))
    mqadmin.run("updateUser", *broker, "-u", name, "-t", "Normal")
    mqadmin.run("updateUser", *broker, "-u", name, "-s", "disable")
    assert re.search(rf"{name} +null +Normal +disable", mqadmin.run("getUser", *broker, "-u", name))
    mqadmin.run("deleteUser", *broker, "-u", name)
    assert name not in mqadmin.run("listUser", *broker)


def permissions(mqadmin: MqadminClient, topic: str) -> None:
    broker, subject = mqadmin.at_broker, ("-s", f"User:{topic}")
    given = ("-r", f"Topic:{topic},Group:g*", "-a", "Sub", "-d", "Allow")
    mqadmin.run("createAcl", *broker, *subject, *given)
    changed = ("-r", f"Topic:{topic}", "-a", "Pub,Sub", "-d", "Deny", "-i", "10.0.0.1")
    mqadmin.run("updateAcl", *broker, *subject, *changed)
    shown = mqadmin.run("listAcl", *broker, *subject)
    assert re.search(rf"Topic:{topic} +\[Pub, Sub\] +\[10.0.0.1\] +Deny", shown), shown
    assert re.search(r"Group:g\* +\[Sub\] +\[\] +Allow", shown), shown
    mqadmin.run("deleteAcl", *broker, *subject, "-r", f"Topic:{topic}")
    assert f"Topic:{topic}" not in mqadmin.run("getAcl", *broker, *subject)


def accounts(mqadmin: MqadminClient, topic: str) -> None:
    broker = mqadmin.at_broker
    perms = ("-i", "DENY", "-u", "SUB", "-t", f"{topic}=PUB|SUB", "-g", "g=DENY", "-m", "false")
    mqadmin.run("updateAclConfig", *broker, "-a", topic, "-s", "12345678", *perms)
    assert "success" in mqadmin.run("clusterAclConfigVersion", *broker)
    assert "success" in mqadmin.run("deleteAclConfig", *broker, "-a", topic)


USERS: Operations = {
    "createUser, updateUser, listUser, getUser, deleteUser": users,
    "createAcl, updateAcl, listAcl, getAcl, deleteAcl": permissions,
}
ACCOUNTS: Operations = {
    "updateAclConfig, clusterAclConfigVersion, deleteAclConfig": accounts,
}
OPERATIONS: Operations = {
    "updateTopic, topicList, topicClusterList, deleteTopic": make_and_delete,
    "updateTopicList": make_several,
    "topicRoute": route,
    "updateTopicPerm": permission,
    "topicStatus": status,
    "updateOrderConf": order,
    "allocateMQ": allocation,
    "sendMessage, queryMsgByKey, …ByUniqueKey, …ByOffset, …ById": sent,
    "printMsg, printMsgByQueue": printed,
    "consumeMessage": consumed,
    "queryCq": queue_entries,
    "sendMsgStatus, checkMsgSendRT": send_times,
    "updateSubGroup, getConsumerConfig, deleteSubGroup": group_config,
    "consumerProgress, brokerConsumeStats, statsAll": progress,
    "consumerConnection, consumerStatus, producerConnection, producer": connections,
    "resetOffsetByTime, skipAccumulatedMessage": reset,
    "cloneGroupOffset": cloned,
    "queryMsgById to a member": directly,
    "setConsumeMode": mode,
    "clusterList": cluster,
    "brokerStatus": broker_status,
    "getBrokerConfig, updateBrokerConfig, getNamesrvConfig": configuration,
    "wipeWritePerm, addWritePerm": write_permission,
    "updateKvConfig, deleteKvConfig": key_values,
    "cleanExpiredCQ, cleanUnusedTopic, deleteExpiredCommitLog": cleaning,
    "exportMetadata": exported("exportMetadata", "metadata.json"),
    "exportConfigs": exported("exportConfigs", "configs.json"),
    "exportMetrics": exported("exportMetrics", "metrics.json"),
}


class Mqadmin49(MqadminClient):
    name = "mqadmin, 4.x"
    version = "4.9.8"
    sections = {"RocketMQ: mqadmin": OPERATIONS, "RocketMQ: mqadmin's accounts": ACCOUNTS}


class Mqadmin53(MqadminClient):
    name = "mqadmin, 5.x"
    version = "5.3.3"
    sections = {"RocketMQ: mqadmin": OPERATIONS, "RocketMQ: mqadmin's users": USERS}
