"""A name server and broker in one, on a real loopback socket, whose answers a test scripts.

It knows routes, heartbeats, queues in memory with pulls that wait, members, offsets and locks; a
test sets a function for every other request, and may replace these too. What was asked is kept in
order. `ask_client` sends a request of the broker to the client that connected last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Self

from dragoman.framing import Scratch
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    BrokerData,
    ConsumerIds,
    HeartbeatData,
    LockBatch,
    LockedBatch,
    QueueData,
    TopicRouteData,
)
from dragoman.protocols.rocketmq.codec import Command, Connection, encode
from dragoman.protocols.rocketmq.constants import (
    IS_ONE_WAY,
    IS_RESPONSE,
    PullFlag,
    Request,
    Response,
)
from dragoman.protocols.rocketmq.messages import (
    Message,
    decode_properties,
    encode_message,
    host_bytes,
)

#: None: no answer. `CLOSE`: the connection is cut. `LATER`: asked again when a message has come.
Answer = Callable[[Command], "Command | None"]
CLOSE = Command(code=-1)
LATER = Command(code=-2)


def ok(body: bytes = b"", **fields: object) -> Command:
    return Command(
        code=Response.SUCCESS, body=body, fields={name: str(each) for name, each in fields.items()}
    )


def refused(code: int, remark: str = "no") -> Command:
    return Command(code=code, remark=remark)


class _Served(asyncio.Protocol):
    def __init__(self, server: ScriptedRocketmq) -> None:
        self.server = server
        self.connection = Connection(Scratch())
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.served.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.served.remove(self)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        for command in self.connection.receive_data(data):
            command.body = bytes(command.body)
            if command.is_response:
                self.server.responded(command)
                continue
            answer = self.server.answer(command)
            if answer is CLOSE:
                self.transport.abort()
                return
            if answer is LATER:
                self.server.parked.append((self, command))
            elif answer is not None:
                self.reply(command, answer)

    def reply(self, command: Command, answer: Command) -> None:
        assert self.transport is not None
        if not command.is_one_way:
            answer.opaque, answer.flag = command.opaque, IS_RESPONSE
            answer.serialization = command.serialization
            self.transport.write(encode(answer))


class ScriptedRocketmq:
    def __init__(self, name: str = "b") -> None:
        self.name = name
        self.seen: list[Command] = []
        self.answers: dict[int, Answer] = {
            Request.GET_ROUTEINFO_BY_TOPIC: self._route,
            Request.HEART_BEAT: self._beat,
            Request.UNREGISTER_CLIENT: lambda _: ok(),
            Request.SEND_MESSAGE_V2: self._append,
            Request.PULL_MESSAGE: self._pull,
            Request.GET_CONSUMER_LIST_BY_GROUP: lambda _: ok(
                bodies.encode(ConsumerIds(consumer_id_list=self.members))
            ),
            Request.QUERY_CONSUMER_OFFSET: self._committed,
            Request.UPDATE_CONSUMER_OFFSET: self._commit,
            Request.GET_MAX_OFFSET: lambda asked: ok(offset=len(self._queue(asked))),
            Request.GET_MIN_OFFSET: lambda _: ok(offset=0),
            Request.LOCK_BATCH_MQ: self._lock,
            Request.UNLOCK_BATCH_MQ: lambda _: ok(),
        }
        #: Client ids, which the first heartbeat adds to.
        self.members: list[str] = []
        #: Committed, by topic and queue.
        self.offsets: dict[tuple[str, int], int] = {}
        #: Queues that another member has locked.
        self.locked: set[int] = set()
        self.parked: list[tuple[_Served, Command]] = []
        #: Queues by topic.
        self.topics: dict[str, int] = {}
        #: Messages by topic and queue.
        self.stored: dict[tuple[str, int], list[Message]] = {}
        #: Other brokers that are in the routes, by name.
        self.brokers: dict[str, str] = {}
        self.served: list[_Served] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._opaque = 1 << 20
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._changed = asyncio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Served(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.brokers.setdefault(self.name, self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for each in list(self.served):
            assert each.transport is not None
            each.transport.abort()
        await self._server.wait_closed()

    # ---- for tests

    def asked(self, code: int) -> list[Command]:
        return [each for each in self.seen if each.code == code]

    async def until_asked(self, code: int, count: int = 1) -> list[Command]:
        """The requests with this code, once there are as many."""
        while len(self.asked(code)) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.asked(code)

    async def ask_client(
        self, code: int, fields: Mapping[str, str], body: bytes = b"", *, is_one_way: bool = False
    ) -> Command | None:
        """Ask the client that connected last; its answer."""
        self._opaque += 1
        flag = IS_ONE_WAY if is_one_way else 0
        command = Command(code=code, opaque=self._opaque, flag=flag, fields=dict(fields), body=body)
        transport = self.served[-1].transport
        assert transport is not None
        transport.write(encode(command))
        if is_one_way:
            return None
        future = self._waiting[self._opaque] = asyncio.get_running_loop().create_future()
        return await future

    # ---- answers

    def answer(self, command: Command) -> Command | None:
        self.seen.append(command)
        self._changed.set()
        handler = self.answers.get(command.code)
        if handler is None:
            return refused(Response.REQUEST_CODE_NOT_SUPPORTED)
        return handler(command)

    def responded(self, command: Command) -> None:
        waiting = self._waiting.pop(command.opaque, None)
        if waiting is not None:
            waiting.set_result(command)

    def _route(self, command: Command) -> Command:
        count = self.topics.get(command.fields["topic"])
        if count is None:
            return refused(Response.TOPIC_NOT_EXIST, "no route")
        route = TopicRouteData(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=count, write_queue_nums=count)
                for name in self.brokers
            ],
            broker_datas=[
                BrokerData(broker_name=name, cluster="c", broker_addrs={"0": address})
                for name, address in self.brokers.items()
            ],
        )
        return ok(bodies.encode(route))

    def _beat(self, command: Command) -> Command:
        client_id = bodies.decode(command.body, HeartbeatData).client_id
        if client_id not in self.members:
            self.members.append(client_id)
        return ok()

    def _append(self, command: Command) -> Command:
        fields = command.fields
        stored = self.put(
            fields["b"],
            int(fields["e"]),
            bytes(command.body),
            properties=decode_properties(fields["i"]),
            sys_flag=int(fields["f"]),
            flag=int(fields["h"]),
            born_ms=int(fields["g"]),
            reconsume_times=int(fields["j"]),
        )
        return ok(msgId=stored.message_id, queueId=stored.queue_id, queueOffset=stored.queue_offset)

    def put(self, topic: str, queue_id: int, body: bytes, **fields: object) -> Message:
        """Store a message, and let those who wait for one look again."""
        queue = self.stored.setdefault((topic, queue_id), [])
        message = Message(
            topic=topic,
            queue_id=queue_id,
            body=body,
            queue_offset=len(queue),
            physical_offset=1000 * len(self.stored) + len(queue),
            store_host=host_bytes("127.0.0.1", self.port),
            **fields,  # type: ignore[arg-type]
        )
        queue.append(message)
        parked, self.parked = self.parked, []
        for served, command in parked:
            answer = self._pull(command)
            if answer is LATER:
                self.parked.append((served, command))
            elif served in self.served:
                served.reply(command, answer)
        return message

    def _queue(self, command: Command) -> list[Message]:
        fields = command.fields
        return self.stored.get((fields["topic"], int(fields["queueId"])), [])

    def _pull(self, command: Command) -> Command:
        fields, queue = command.fields, self._queue(command)
        start = int(fields["queueOffset"])
        found = queue[start : start + int(fields["maxMsgNums"])]
        if not found and start <= len(queue) and int(fields["sysFlag"]) & PullFlag.SUSPEND:
            return LATER
        answer = ok(
            b"".join(encode_message(each) for each in found),
            nextBeginOffset=min(start, len(queue)) + len(found),
            minOffset=0,
            maxOffset=len(queue),
            suggestWhichBrokerId=0,
        )
        if not found:
            is_moved = start > len(queue)
            answer.code = Response.PULL_OFFSET_MOVED if is_moved else Response.PULL_NOT_FOUND
        return answer

    def _committed(self, command: Command) -> Command:
        found = self.offsets.get((command.fields["topic"], int(command.fields["queueId"])))
        return refused(Response.QUERY_NOT_FOUND) if found is None else ok(offset=found)

    def _commit(self, command: Command) -> Command:
        fields = command.fields
        self.offsets[fields["topic"], int(fields["queueId"])] = int(fields["commitOffset"])
        return ok()

    def _lock(self, command: Command) -> Command:
        asked = bodies.decode(command.body, LockBatch)
        held = [each for each in asked.mq_set if each.queue_id not in self.locked]
        return ok(bodies.encode(LockedBatch(lock_ok_mq_set=held)))
