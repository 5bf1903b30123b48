"""A client library of another language, behind a program of ours that is asked over JSON lines.

    → {"call": "create_topic", "on": 0, "with": ["t", 3]}
    ← {"result": null}      or {"error": "…"}      or {"missing": "create_topic"}

`on` is 0 for the library itself, or the number of a member or transactor that it made. Bytes travel
as strings of Latin-1, so that every byte is one character.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from client import SECONDS_MAX, Client, NotDone, Row


class RemoteError(Exception):
    """What the library raised, in its words."""


class Remote:
    """One object on the other side."""

    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = number

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name: str, *arguments: object) -> Any:
        if name == "close" and self._number in self._program.closed:
            return None
        result = self._program.ask(name, self._number, arguments)
        if name == "close":
            self._program.closed.add(self._number)
        if name == "poll":
            return [_row(each) for each in result]
        if name == "assignment":
            return {(topic, partition) for topic, partition in result}
        return result


class Program:
    """The process, and one question at a time."""

    def __init__(self, command: Sequence[str], directory: str | None = None) -> None:
        self.closed: set[int] = set()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=directory
        )

    def ask(self, call: str, number: int, arguments: Sequence[object]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"call": call, "on": number, "with": arguments}
        # An answer that never comes must not hold up the run.
        watch = threading.Timer(2 * SECONDS_MAX, self._process.kill)
        watch.start()
        try:
            print(json.dumps(question, default=_plain), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise RemoteError(f"the program ended during {call}")
        answer = json.loads(line)
        if "missing" in answer:
            raise NotDone(call)
        if "error" in answer:
            raise RemoteError(answer["error"])
        return answer["result"]

    def end(self) -> None:
        assert self._process.stdin is not None
        # It may have ended by itself, with a question unread.
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class RemoteClient(Client):
    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._program = Program(self.command(servers))

    def command(self, servers: str) -> list[str]:
        raise NotImplementedError

    def close(self) -> None:
        self._program.end()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self.lacks:
            return super().__getattr__(name)
        return partial(self._ask, name)

    def _ask(self, name: str, *arguments: object) -> Any:
        return self._program.ask(name, 0, arguments)

    def create_topic(self, topic: str, partitions: int, config: object = None) -> None:
        self._ask("create_topic", topic, partitions, config or {})

    def produce(
        self,
        topic: str,
        records: Sequence[object],
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        listed = [list(map(_text, record)) for record in records]  # type: ignore[call-overload]
        self._ask("produce", topic, listed, codec, acks, idempotent)

    def consume(self, topic: str, count: int, committed_only: bool = False) -> list[Row]:
        return [_row(each) for each in self._ask("consume", topic, count, committed_only)]

    def member(
        self,
        group: str,
        topics: Sequence[str],
        pattern: str | None = None,
        protocol: str = "classic",
        instance: str | None = None,
    ) -> Remote:
        asked = self._ask("member", group, topics, pattern, protocol, instance)
        return Remote(self._program, asked)

    def transactor(self, name: str) -> Remote:
        return Remote(self._program, self._ask("transactor", name))


def _text(value: object) -> object:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def _plain(value: object) -> object:
    """What JSON has no words for."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Remote):
        return value._number
    raise TypeError(type(value).__name__)


def _row(each: list[Any]) -> Row:
    topic, partition, offset, key, value, headers, timestamp = each
    pairs = [(name, _bytes(content)) for name, content in headers]
    return Row(topic, partition, offset, _bytes(key), _bytes(value), pairs, timestamp)
