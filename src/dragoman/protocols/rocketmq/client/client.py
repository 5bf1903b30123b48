"""`RocketmqClient`, whose producers and consumers share connections, routes and groups, and its
blocking variant for code without an event loop.

Both also work with Apache RocketMQ's name servers and brokers. The blocking client runs the
application's functions (local transactions, checks, listeners) in separate threads, so that they
may block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property
from typing import Final, Self, TypeVar, Unpack

from dragoman.client_core.blocking_client import (
    BlockingClient,
    BlockingPart,
    LoopThread,
    making,
    waiting,
)
from dragoman.operating_system import SystemClock, system_random
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.admin import RocketmqAdmin
from dragoman.protocols.rocketmq.client.consumption import Listener, Outcome
from dragoman.protocols.rocketmq.client.membership import Membership
from dragoman.protocols.rocketmq.client.messages import Message, ReceivedMessage, Sent
from dragoman.protocols.rocketmq.client.producer import (
    Check,
    Producer,
    ProducerOptions,
    ProducerPorts,
    Replies,
    TransactionProducer,
    TransactionState,
)
from dragoman.protocols.rocketmq.client.pull import Filter, PullConsumer
from dragoman.protocols.rocketmq.client.push_consumer import ConsumerOptions, PushConsumer
from dragoman.protocols.rocketmq.client.remoting import (
    ClientSettings,
    Identity,
    Remoting,
    parse_addresses,
)
from dragoman.protocols.rocketmq.client.routes import NameServers, Routes
from dragoman.world import Clock, Random

#: The producer group in which RocketMQ's clients send internal messages.
OWN_PRODUCER: Final = "CLIENT_INNER_PRODUCER"


class RocketmqClient:
    def __init__(
        self,
        *name_servers: str,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Each address is `HOST:PORT`, or several separated by commas. Connects on first use."""
        self.settings = settings or ClientSettings()
        self.clock = clock or SystemClock()
        random = random or system_random()
        identity = Identity(self.clock, random, self.settings.instance)
        self.remoting = Remoting(self.settings, identity)
        self.routes = Routes(NameServers(parse_addresses(name_servers), self.remoting))
        self._membership = Membership(self.remoting, self.routes)
        self._producer_ports = ProducerPorts(
            remoting=self.remoting,
            routes=self.routes,
            membership=self._membership,
            replies=Replies(self.remoting, random),
            clock=self.clock,
            random=random,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close producers and consumers, which commit their offsets, and then connections."""
        await self._membership.close()
        await self.remoting.close()

    @property
    def client_id(self) -> str:
        return self.remoting.identity.client_id

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        return Producer(self._producer_ports, group, **options)

    def transaction_producer(
        self, group: str, check: Check, **options: Unpack[ProducerOptions]
    ) -> TransactionProducer:
        """`check` returns the state of a transaction when a broker requests it."""
        return TransactionProducer(self._producer_ports, group, check, **options)

    def push_consumer(
        self,
        group: str,
        subscriptions: Mapping[str, str | Filter],
        listener: Listener,
        **options: Unpack[ConsumerOptions],
    ) -> PushConsumer:
        """A member of a group. Once started, it calls `listener` with each message.

        Subscriptions by topic are tags separated by `||`, `*`, or a `Filter`.
        """
        return PushConsumer(
            group,
            subscriptions,
            listener,
            remoting=self.remoting,
            routes=self.routes,
            membership=self._membership,
            queue_offsets=self.admin,
            deliver=self.own_producer.deliver,
            clock=self.clock,
            **options,
        )

    def pull_consumer(self, group: str) -> PullConsumer:
        """A consumer that reads queues and offsets of the application's choice."""
        return PullConsumer(
            group, self.remoting, self.routes, self._membership, self.admin, self.clock
        )

    @property
    def admin(self) -> RocketmqAdmin:
        return RocketmqAdmin(self)

    @cached_property
    def own_producer(self) -> Producer:
        """The producer of the client's internal messages."""
        return Producer(self._producer_ports, OWN_PRODUCER)


Given = TypeVar("Given")
Result = TypeVar("Result")


def in_thread(
    function: Callable[[Given], Result], threads: Executor | None = None
) -> Callable[[Given], asyncio.Future[Result]]:
    """An async function that runs this one in a thread, by default of the loop's executor."""
    return lambda given: asyncio.get_running_loop().run_in_executor(threads, function, given)


class BlockingProducer(BlockingPart[Producer]):
    """A blocking `Producer`."""

    send = waiting(Producer.send)
    send_batch = waiting(Producer.send_batch)
    send_one_way = waiting(Producer.send_one_way)
    request = waiting(Producer.request)
    reply = waiting(Producer.reply)
    queues = waiting(Producer.queues)


class BlockingTransactionProducer(BlockingProducer):
    """A blocking `TransactionProducer`."""

    def __init__(self, thread: LoopThread, part: TransactionProducer) -> None:
        super().__init__(thread, part)
        self._transactional = part

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Message], TransactionState],
        *,
        queue: MessageQueue | None = None,
    ) -> tuple[Sent, TransactionState]:
        return self._thread.run(
            lambda: self._transactional.send_in_transaction(message, in_thread(local), queue=queue)
        )


class BlockingPushConsumer(BlockingPart[PushConsumer]):
    """A blocking `PushConsumer`. The listener runs in separate threads."""

    @property
    def assigned(self) -> tuple[MessageQueue, ...]:
        return self._part.assigned

    start = waiting(PushConsumer.start)
    commit = waiting(PushConsumer.commit)

    def __enter__(self) -> Self:
        self.start()
        return self


class BlockingPullConsumer(BlockingPart[PullConsumer]):
    """A blocking `PullConsumer`."""

    queues = waiting(PullConsumer.queues)
    first_offset = waiting(PullConsumer.first_offset)
    end_offset = waiting(PullConsumer.end_offset)
    offset_at = waiting(PullConsumer.offset_at)
    position = waiting(PullConsumer.position)
    pull = waiting(PullConsumer.pull)
    committed = waiting(PullConsumer.committed)
    commit = waiting(PullConsumer.commit)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading a queue at an offset."""
        self._thread.make(lambda: self._part.seek(queue, offset))


class BlockingRocketmqAdmin(BlockingClient[RocketmqAdmin]):
    """A blocking `RocketmqAdmin`. Calls may be made from any thread."""

    def __init__(self, *name_servers: str, settings: ClientSettings | None = None) -> None:
        super().__init__(
            "dragoman-rocketmq-admin",
            lambda: RocketmqAdmin(RocketmqClient(*name_servers, settings=settings)),
        )

    add_broker_to_container = waiting(RocketmqAdmin.add_broker_to_container)
    add_write_perm_of_broker = waiting(RocketmqAdmin.add_write_perm_of_broker)
    check_rocksdb_write_progress = waiting(RocketmqAdmin.check_rocksdb_write_progress)
    clean_controller_broker_data = waiting(RocketmqAdmin.clean_controller_broker_data)
    clean_expired_consumer_queue = waiting(RocketmqAdmin.clean_expired_consumer_queue)
    clean_unused_topic = waiting(RocketmqAdmin.clean_unused_topic)
    clone_group_offset = waiting(RocketmqAdmin.clone_group_offset)
    consume_message_directly = waiting(RocketmqAdmin.consume_message_directly)
    create_acl = waiting(RocketmqAdmin.create_acl)
    create_and_update_plain_access = waiting(RocketmqAdmin.create_and_update_plain_access)
    create_and_update_topic_config_list = waiting(RocketmqAdmin.create_and_update_topic_config_list)
    create_or_update_order_conf = waiting(RocketmqAdmin.create_or_update_order_conf)
    create_static_topic = waiting(RocketmqAdmin.create_static_topic)
    create_subscription_group = waiting(RocketmqAdmin.create_subscription_group)
    create_topic = waiting(RocketmqAdmin.create_topic)
    create_user = waiting(RocketmqAdmin.create_user)
    delete_acl = waiting(RocketmqAdmin.delete_acl)
    delete_expired_commit_log = waiting(RocketmqAdmin.delete_expired_commit_log)
    delete_kv_config = waiting(RocketmqAdmin.delete_kv_config)
    delete_plain_access = waiting(RocketmqAdmin.delete_plain_access)
    delete_subscription_group = waiting(RocketmqAdmin.delete_subscription_group)
    delete_topic = waiting(RocketmqAdmin.delete_topic)
    delete_topic_in_broker = waiting(RocketmqAdmin.delete_topic_in_broker)
    delete_topic_in_name_server = waiting(RocketmqAdmin.delete_topic_in_name_server)
    delete_user = waiting(RocketmqAdmin.delete_user)
    earliest_message_store_time = waiting(RocketmqAdmin.earliest_message_store_time)
    elect_master = waiting(RocketmqAdmin.elect_master)
    examine_broker_cluster_info = waiting(RocketmqAdmin.examine_broker_cluster_info)
    examine_consume_stats = waiting(RocketmqAdmin.examine_consume_stats)
    examine_consume_stats_by_topic = waiting(RocketmqAdmin.examine_consume_stats_by_topic)
    examine_consume_stats_concurrent = waiting(RocketmqAdmin.examine_consume_stats_concurrent)
    examine_consumer_connection_info = waiting(RocketmqAdmin.examine_consumer_connection_info)
    examine_plain_access_version = waiting(RocketmqAdmin.examine_plain_access_version)
    examine_producer_connection_info = waiting(RocketmqAdmin.examine_producer_connection_info)
    examine_subscription_group_config = waiting(RocketmqAdmin.examine_subscription_group_config)
    examine_topic_config = waiting(RocketmqAdmin.examine_topic_config)
    examine_topic_route_info = waiting(RocketmqAdmin.examine_topic_route_info)
    examine_topic_stats = waiting(RocketmqAdmin.examine_topic_stats)
    examine_topic_stats_concurrent = waiting(RocketmqAdmin.examine_topic_stats_concurrent)
    export_rocksdb_config = waiting(RocketmqAdmin.export_rocksdb_config)
    fetch_all_topic_list = waiting(RocketmqAdmin.fetch_all_topic_list)
    fetch_broker_runtime_stats = waiting(RocketmqAdmin.fetch_broker_runtime_stats)
    fetch_consume_stats_in_broker = waiting(RocketmqAdmin.fetch_consume_stats_in_broker)
    fetch_system_topic_list = waiting(RocketmqAdmin.fetch_system_topic_list)
    fetch_topics_by_cluster = waiting(RocketmqAdmin.fetch_topics_by_cluster)
    get_acl = waiting(RocketmqAdmin.get_acl)
    get_all_producer_info = waiting(RocketmqAdmin.get_all_producer_info)
    get_all_subscription_group = waiting(RocketmqAdmin.get_all_subscription_group)
    get_all_topic_config = waiting(RocketmqAdmin.get_all_topic_config)
    get_broker_config = waiting(RocketmqAdmin.get_broker_config)
    get_broker_epoch_cache = waiting(RocketmqAdmin.get_broker_epoch_cache)
    get_broker_ha_status = waiting(RocketmqAdmin.get_broker_ha_status)
    get_cold_data_flow_control = waiting(RocketmqAdmin.get_cold_data_flow_control)
    get_consume_status = waiting(RocketmqAdmin.get_consume_status)
    get_consumer_running_info = waiting(RocketmqAdmin.get_consumer_running_info)
    get_controller_config = waiting(RocketmqAdmin.get_controller_config)
    get_controller_metadata = waiting(RocketmqAdmin.get_controller_metadata)
    get_in_sync_state_data = waiting(RocketmqAdmin.get_in_sync_state_data)
    get_kv_config = waiting(RocketmqAdmin.get_kv_config)
    get_kv_list_by_namespace = waiting(RocketmqAdmin.get_kv_list_by_namespace)
    get_name_server_config = waiting(RocketmqAdmin.get_name_server_config)
    get_system_topic_list_from_broker = waiting(RocketmqAdmin.get_system_topic_list_from_broker)
    get_topic_cluster_list = waiting(RocketmqAdmin.get_topic_cluster_list)
    get_user = waiting(RocketmqAdmin.get_user)
    get_user_subscription_group = waiting(RocketmqAdmin.get_user_subscription_group)
    list_acls = waiting(RocketmqAdmin.list_acls)
    list_dead_letters = waiting(RocketmqAdmin.list_dead_letters)
    list_groups = waiting(RocketmqAdmin.list_groups)
    list_users = waiting(RocketmqAdmin.list_users)
    max_offset = waiting(RocketmqAdmin.max_offset)
    message_track_detail = waiting(RocketmqAdmin.message_track_detail)
    min_offset = waiting(RocketmqAdmin.min_offset)
    pull_message = waiting(RocketmqAdmin.pull_message)
    put_kv_config = waiting(RocketmqAdmin.put_kv_config)
    query_consume_offset = waiting(RocketmqAdmin.query_consume_offset)
    query_consume_queue = waiting(RocketmqAdmin.query_consume_queue)
    query_consume_time_span = waiting(RocketmqAdmin.query_consume_time_span)
    query_message = waiting(RocketmqAdmin.query_message)
    query_message_by_id = waiting(RocketmqAdmin.query_message_by_id)
    query_message_by_offset = waiting(RocketmqAdmin.query_message_by_offset)
    query_message_by_time = waiting(RocketmqAdmin.query_message_by_time)
    query_message_by_unique_key = waiting(RocketmqAdmin.query_message_by_unique_key)
    query_subscription = waiting(RocketmqAdmin.query_subscription)
    query_topic_consume_by_who = waiting(RocketmqAdmin.query_topic_consume_by_who)
    query_topics_by_consumer = waiting(RocketmqAdmin.query_topics_by_consumer)
    remove_broker_from_container = waiting(RocketmqAdmin.remove_broker_from_container)
    remove_cold_data_flow_control = waiting(RocketmqAdmin.remove_cold_data_flow_control)
    resend_dead_letters = waiting(RocketmqAdmin.resend_dead_letters)
    reset_offset_by_timestamp = waiting(RocketmqAdmin.reset_offset_by_timestamp)
    resume_check_half_message = waiting(RocketmqAdmin.resume_check_half_message)
    search_offset = waiting(RocketmqAdmin.search_offset)
    set_commit_log_read_ahead_mode = waiting(RocketmqAdmin.set_commit_log_read_ahead_mode)
    set_message_request_mode = waiting(RocketmqAdmin.set_message_request_mode)
    update_acl = waiting(RocketmqAdmin.update_acl)
    update_and_get_group_read_forbidden = waiting(RocketmqAdmin.update_and_get_group_read_forbidden)
    update_broker_config = waiting(RocketmqAdmin.update_broker_config)
    update_cold_data_flow_control = waiting(RocketmqAdmin.update_cold_data_flow_control)
    update_consume_offset = waiting(RocketmqAdmin.update_consume_offset)
    update_controller_config = waiting(RocketmqAdmin.update_controller_config)
    update_global_white_addresses = waiting(RocketmqAdmin.update_global_white_addresses)
    update_name_server_config = waiting(RocketmqAdmin.update_name_server_config)
    update_user = waiting(RocketmqAdmin.update_user)
    view_broker_stats_data = waiting(RocketmqAdmin.view_broker_stats_data)
    view_message = waiting(RocketmqAdmin.view_message)
    wipe_write_perm_of_broker = waiting(RocketmqAdmin.wipe_write_perm_of_broker)


class BlockingRocketmqClient(BlockingClient[RocketmqClient]):
    """A blocking `RocketmqClient`. Calls may be made from any thread."""

    def __init__(self, *name_servers: str, settings: ClientSettings | None = None) -> None:
        super().__init__(
            "dragoman-rocketmq-client", lambda: RocketmqClient(*name_servers, settings=settings)
        )

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> BlockingProducer:
        made = self._thread.make(lambda: self._client.producer(group, **options))
        return BlockingProducer(self._thread, made)

    def transaction_producer(
        self,
        group: str,
        check: Callable[[ReceivedMessage], TransactionState],
        **options: Unpack[ProducerOptions],
    ) -> BlockingTransactionProducer:
        made = self._thread.make(
            lambda: self._client.transaction_producer(group, in_thread(check), **options)
        )
        return BlockingTransactionProducer(self._thread, made)

    def push_consumer(
        self,
        group: str,
        subscriptions: Mapping[str, str | Filter],
        listener: Callable[[ReceivedMessage], Outcome],
        **options: Unpack[ConsumerOptions],
    ) -> BlockingPushConsumer:
        # A separate pool: the client resolves host names in the loop's executor, which is small on
        # a small machine, so listeners that wait for the client could block it.
        threads = ThreadPoolExecutor(options.get("concurrency", 20), "dragoman-rocketmq-listener")
        in_threads = in_thread(listener, threads)
        made = self._thread.make(
            lambda: self._client.push_consumer(group, subscriptions, in_threads, **options)
        )
        return BlockingPushConsumer(self._thread, made)

    pull_consumer = making(RocketmqClient.pull_consumer, BlockingPullConsumer)
