"""PyPI's `rocketmq`, which is RocketMQ's client in C++ behind ctypes. See remote_client.py.

    python agent.py NAME_SERVER [ACCESS_KEY SECRET_KEY]

A program of its own: the library's threads do not end with its objects, and it writes its log to
the home directory.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.ffi import MessageModel, _CConsumeStatus

SERVERS = sys.argv[1]
#: Access key, secret key and channel; without them requests are signed with an empty key.
KEY = (*sys.argv[2:4], "ALIYUN") if len(sys.argv) > 2 else None
POLL_S = 0.2
SEND_S_MAX = 10
ROUTE_TRIES_MAX = 50
PROPERTIES = ("colour", "n")
_LATER = _CConsumeStatus.RECONSUME_LATER.value
_TAKEN = _CConsumeStatus.CONSUME_SUCCESS.value


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def _delivery(message: Any) -> list[object]:
    found = {name: message.get_property(name) for name in PROPERTIES}
    return [
        message.topic,
        message.queue_id,
        message.queue_offset,
        _text(message.body),
        _text(message.tags),
        _text(message.keys),
        {name: _text(value) for name, value in found.items() if value},
    ]


class Pushed:
    count = 0

    def __init__(self, group: str, topic: str, options: dict[str, Any]) -> None:
        Pushed.count += 1
        self._refused = options["refused"]
        self._attempts: Counter[str] = Counter()
        self._came: queue.Queue[list[object]] = queue.Queue()
        is_broadcast = options["model"] == "broadcasting"
        model = MessageModel.BROADCASTING if is_broadcast else MessageModel.CLUSTERING
        self._consumer = PushConsumer(group, options["orderly"], model)
        self._consumer.set_namesrv_addr(SERVERS)
        self._consumer.set_instance_name(f"consumer-{Pushed.count}")
        if KEY is not None:
            self._consumer.set_session_credentials(*KEY)
        self._consumer.set_thread_count(1)
        self._consumer.subscribe(topic, self._received, options["expression"])
        # What the library registers turns a refusal into an uncaught exception.
        self._consumer._unregister_callback()
        self._consumer._register_callback(self._came_in)
        self._consumer.start()

    def _came_in(self, _: object, handle: int) -> int:
        return _TAKEN if self._received(RecvMessage(handle)) else _LATER

    def _received(self, message: Any) -> bool:
        delivery = _delivery(message)
        body = str(delivery[3])
        self._came.put(delivery)
        self._attempts[body] += 1
        return not body.startswith("refuse") or self._attempts[body] > self._refused

    def poll(self) -> list[list[object]]:
        came = []
        with suppress(queue.Empty):
            came.append(self._came.get(timeout=POLL_S))
            while True:
                came.append(self._came.get_nowait())
        return came

    def close(self) -> None:
        self._consumer.shutdown()


class Pulled:
    def __init__(self, group: str, topic: str) -> None:
        self._topic = topic
        self._consumer = PullConsumer(group)
        self._consumer.set_namesrv_addr(SERVERS)
        if KEY is not None:
            self._consumer.set_session_credentials(*KEY)
        self._consumer.start()

    def poll(self) -> list[list[object]]:
        return [_delivery(each) for each in self._consumer.pull(self._topic)]

    def close(self) -> None:
        self._consumer.shutdown()


class Library:
    def __init__(self) -> None:
        self._producer = Producer("interop")
        self._producer.set_namesrv_addr(SERVERS)
        if KEY is not None:
            self._producer.set_session_credentials(*KEY)
        self._producer.start()

    def send(self, topic: str, messages: list[list[Any]], way: str) -> list[list[int]]:
        made = [_message(topic, each) for each in messages]
        if way == "batch":
            _once_routed(self._producer.send_batch, made)
            return []
        if way == "async":
            return [[-1, _once_routed(self._sent_async, message)] for message in made]
        placed = []
        for message, (*_, chosen) in zip(made, messages, strict=True):
            if way == "once":
                placed.append([-1, self._producer.send_sync(message).offset])
            elif way == "one-way":
                _once_routed(self._producer.send_oneway, message)
            elif chosen >= 0:
                sent = _once_routed(self._producer.send_orderly, message, chosen)
                placed.append([chosen, sent.offset])
            else:
                placed.append([-1, _once_routed(self._producer.send_sync, message).offset])
        return placed

    def _sent_async(self, message: Any) -> int:
        """The library loses its own record of callbacks: one at a time."""
        done = threading.Event()
        outcome: list[Any] = []

        def finished(result: Any) -> None:
            outcome.append(result)
            done.set()

        self._producer.send_async(message, finished, finished)
        if not done.wait(SEND_S_MAX) or isinstance(outcome[0], Exception):
            raise RuntimeError(f"not sent: {outcome}")
        offset: int = outcome[0].offset
        return offset

    def consumer(self, group: str, topic: str, options: dict[str, Any]) -> int:
        pulls = options["style"] == "pull"
        OBJECTS.append(Pulled(group, topic) if pulls else Pushed(group, topic, options))
        return len(OBJECTS) - 1


def _once_routed(send: Callable[..., Any], *given: Any) -> Any:
    """While another of its threads asks for routes, the library gives up and says that there is
    none. Nothing was sent then.
    """
    for _ in range(ROUTE_TRIES_MAX):
        try:
            return send(*given)
        except Exception as error:
            if "No route info" not in str(error):
                raise
            threading.Event().wait(POLL_S)
    return send(*given)


def _message(topic: str, given: list[Any]) -> Any:
    body, tags, keys, properties, delay_level, _ = given
    message = Message(topic)
    message.set_body(body)
    message.set_tags(tags)
    message.set_keys(keys)
    for name, value in properties.items():
        message.set_property(name, value)
    if delay_level:
        message.set_delay_time_level(delay_level)
    return message


OBJECTS: list[Any] = [Library()]


def main() -> None:
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(OBJECTS[question["on"]], question["call"])(*question["with"])
            print(json.dumps({"result": answer}), flush=True)
        except Exception as error:  # noqa: BLE001 - whatever the library raises is the answer
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
    # Threads of the library are still there.
    os._exit(0)
