"""State shared by a listener's RocketMQ connections, and the table of request handlers.

Every listener serves the requests of both name servers and brokers, because their codes differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.errors import SecretError
from dragoman.limits import HOST_NAMES_MAX
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.net.requests import Requests
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.node import node_of
from dragoman.protocols.rocketmq.messages import host_bytes
from dragoman.protocols.service import Address, Service

#: By module, the requests that it handles, in functions named after them.
_MODULES: Final = {
    "topics": (
        "GET_ROUTEINFO_BY_TOPIC GET_BROKER_CLUSTER_INFO "
        "UPDATE_AND_CREATE_TOPIC UPDATE_AND_CREATE_TOPIC_LIST DELETE_TOPIC_IN_BROKER "
        "GET_ALL_TOPIC_CONFIG GET_TOPIC_CONFIG GET_SYSTEM_TOPIC_LIST_FROM_BROKER "
        "GET_TOPIC_STATS_INFO"
    ),
    "members": (
        "HEART_BEAT UNREGISTER_CLIENT GET_CONSUMER_LIST_BY_GROUP CHECK_CLIENT_CONFIG "
        "LOCK_BATCH_MQ UNLOCK_BATCH_MQ QUERY_ASSIGNMENT SET_MESSAGE_REQUEST_MODE"
    ),
    "send": (
        "SEND_MESSAGE SEND_MESSAGE_V2 SEND_BATCH_MESSAGE SEND_REPLY_MESSAGE SEND_REPLY_MESSAGE_V2"
    ),
    "retries": "CONSUMER_SEND_MSG_BACK",
    "transactions": "END_TRANSACTION RESUME_CHECK_HALF_MESSAGE",
    "pull": "PULL_MESSAGE LITE_PULL_MESSAGE",
    "offsets": (
        "QUERY_CONSUMER_OFFSET UPDATE_CONSUMER_OFFSET SEARCH_OFFSET_BY_TIMESTAMP GET_MAX_OFFSET "
        "GET_MIN_OFFSET GET_EARLIEST_MSG_STORETIME"
    ),
    "nameserver": (
        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER GET_TOPICS_BY_CLUSTER GET_SYSTEM_TOPIC_LIST_FROM_NS "
        "GET_UNIT_TOPIC_LIST GET_HAS_UNIT_SUB_TOPIC_LIST GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST "
        "DELETE_TOPIC_IN_NAMESRV REGISTER_TOPIC_IN_NAMESRV PUT_KV_CONFIG GET_KV_CONFIG "
        "DELETE_KV_CONFIG GET_KVLIST_BY_NAMESPACE WIPE_WRITE_PERM_OF_BROKER "
        "ADD_WRITE_PERM_OF_BROKER GET_NAMESRV_CONFIG UPDATE_NAMESRV_CONFIG "
        "GET_BROKER_MEMBER_GROUP REGISTER_BROKER UNREGISTER_BROKER QUERY_DATA_VERSION "
        "BROKER_HEARTBEAT"
    ),
    "group_admin": (
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST "
        "GET_ALL_SUBSCRIPTIONGROUP_CONFIG GET_SUBSCRIPTIONGROUP_CONFIG DELETE_SUBSCRIPTIONGROUP "
        "UPDATE_AND_GET_GROUP_FORBIDDEN QUERY_TOPIC_CONSUME_BY_WHO QUERY_TOPICS_BY_CONSUMER "
        "QUERY_SUBSCRIPTION_BY_CONSUMER "
        "GET_CONSUMER_CONNECTION_LIST GET_PRODUCER_CONNECTION_LIST GET_ALL_PRODUCER_INFO "
        "GET_CONSUMER_RUNNING_INFO CONSUME_MESSAGE_DIRECTLY INVOKE_BROKER_TO_GET_CONSUMER_STATUS"
    ),
    "progress": (
        "GET_CONSUME_STATS GET_BROKER_CONSUME_STATS QUERY_CONSUME_TIME_SPAN "
        "GET_ALL_CONSUMER_OFFSET GET_ALL_DELAY_OFFSET QUERY_CORRECTION_OFFSET "
        "INVOKE_BROKER_TO_RESET_OFFSET CLONE_GROUP_OFFSET"
    ),
    "queries": "QUERY_MESSAGE VIEW_MESSAGE_BY_ID QUERY_CONSUME_QUEUE",
    "broker_admin": (
        "GET_BROKER_CONFIG UPDATE_BROKER_CONFIG "
        "GET_BROKER_RUNTIME_INFO VIEW_BROKER_STATS_DATA CLEAN_EXPIRED_CONSUMEQUEUE "
        "DELETE_EXPIRED_COMMITLOG CLEAN_UNUSED_TOPIC"
    ),
    "access_admin": (
        "UPDATE_AND_CREATE_ACL_CONFIG DELETE_ACL_CONFIG GET_BROKER_CLUSTER_ACL_INFO "
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG AUTH_CREATE_USER AUTH_UPDATE_USER AUTH_DELETE_USER "
        "AUTH_GET_USER AUTH_LIST_USER AUTH_CREATE_ACL AUTH_UPDATE_ACL AUTH_DELETE_ACL "
        "AUTH_GET_ACL AUTH_LIST_ACL"
    ),
}
#: Module and function of the handler of each request.
REQUESTS: Final[dict[int, str]] = {
    int(Request[name]): f"{module}.handle_{name.lower()}"
    for module, names in _MODULES.items()
    for name in names.split()
}


def _request_name(code: int) -> str | None:
    return Request(code).name if code in REQUESTS else None


#: Names of the codes of answers.
_CODES: Final = {int(code): code.name for code in Response}


def _code_name(code: int | str) -> str:
    return _CODES.get(code, str(code)) if isinstance(code, int) else code


class RocketmqService(Service[Core]):
    #: The listener that routes advertise to clients.
    advertised_listener = "rocketmq-broker"
    requests: Requests[int]

    @classmethod
    def counted_requests(cls) -> Requests[int]:
        return Requests("rocketmq", _request_name, _code_name)

    def __init__(
        self, broker: Core, budget: MemoryBudget, advertised: Callable[[Channel], Address]
    ) -> None:
        super().__init__(broker, budget, advertised)
        self.node = node_of(broker)
        #: Encoded store hosts by address and port. There are as many as advertised addresses.
        self._store_hosts: dict[Address, bytes] = {}
        #: Secrets by access key, as of this revision of the metadata's users.
        self._secrets: dict[str, bytes] = {}
        self._secrets_revision = -1
        #: In place of the secret of an unknown access key, so that it costs as much to refuse one.
        self.no_secret = broker.random.getrandbits(256).to_bytes(32, "big")

    def signing_secret(self, access_key: str) -> bytes | None:
        """The secret of an access key; None if it is unknown."""
        revision = self.broker.image.security_revision
        if revision != self._secrets_revision:
            self._secrets_revision = revision
            self._secrets.clear()
        secret = self._secrets.get(access_key)
        if secret is None:
            secret = self._unsealed(access_key)
            if secret is not None:
                self._secrets[access_key] = secret
        return secret

    def _unsealed(self, access_key: str) -> bytes | None:
        try:
            return self.broker.logins.signing_secret(access_key)
        except SecretError as error:
            # To the client, this is a wrong signature.
            self.node.log.warning("secret of %s: %s", access_key, error)
            return None

    def store_host(self, channel: Channel) -> bytes:
        """This node's address, encoded as in message ids."""
        host, port = self.advertised(channel)
        address = (self.broker.host_names.ipv4(host), port)
        found = self._store_hosts.get(address)
        if found is None:
            if len(self._store_hosts) >= HOST_NAMES_MAX:
                self._store_hosts.clear()
            found = self._store_hosts[address] = host_bytes(*address)
        return found
