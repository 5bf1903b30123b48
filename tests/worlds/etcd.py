"""An etcd on virtual time, as far as the metadata quorum knows it, and quorums that use it.

`ToyEtcd` keeps keys, revisions, leases and watches and speaks the gateway's JSON. Each quorum has a
`ToyGateway` to it, on which things go wrong: requests and answers are lost, answered late, carried
out after their sender has given up; watches break, or die without a word.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from dragoman import outcome
from dragoman.cluster.codec import encode_image
from dragoman.cluster.etcd.quorum import EtcdQuorum
from dragoman.cluster.etcd.session import Settings
from dragoman.cluster.events import Event, GroupConfigChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import DragomanError
from dragoman.raft.ports import Role, RoleChanged
from dragoman.testing.sim.scheduler import SimScheduler
from worlds.broker import Outcome

PREFIX = "/dragoman/test"


class Value(msgspec.Struct, frozen=True):
    value: bytes
    create: int
    mod: int
    lease: int


class Change(msgspec.Struct, frozen=True):
    revision: int
    key: bytes
    #: None: deleted.
    value: Value | None


class Refusal(Exception):
    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


def is_proposal(body: bytes) -> bool:
    """Whether a request writes entries."""
    request = msgspec.json.decode(body) if body else {}
    puts = [each["request_put"] for each in request.get("success", []) if "request_put" in each]
    return any(b"/log/" in _bytes(each["key"]) for each in puts)


def is_candidacy(body: bytes) -> bool:
    """Whether a request would make its sender the leader."""
    request = msgspec.json.decode(body) if body else {}
    puts = [each["request_put"] for each in request.get("success", []) if "request_put" in each]
    return any(_bytes(each["key"]).endswith(b"/leader") for each in puts)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _kv(key: bytes, value: Value) -> dict[str, Any]:
    return {
        "key": key,
        "create_revision": str(value.create),
        "mod_revision": str(value.mod),
        "value": value.value,
        "lease": str(value.lease),
    }


class ToyEtcd:
    def __init__(self, scheduler: SimScheduler) -> None:
        self.scheduler = scheduler
        self.revision = 1
        self.compacted = 0
        self.keys: dict[bytes, Value] = {}
        self.changes: list[Change] = []
        #: When each expires, and for how long it is renewed.
        self.leases: dict[int, tuple[float, int]] = {}
        self.streams: list[ToyStream] = []
        self.version = "3.5.17"
        self.is_down = False
        self.is_full = False
        self._next_lease = 7_587_000_000_000_000_000

    # ---- requests

    def handle(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.expire()
        request = msgspec.json.decode(body) if body else {}
        try:
            answer = self._answer(path, request)
        except Refusal as error:
            refusal = {"error": str(error), "code": error.code, "message": str(error)}
            return error.status, msgspec.json.encode(refusal)
        return 200, msgspec.json.encode(answer)

    def _answer(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        match path:
            case "/version":
                return {"etcdserver": self.version, "etcdcluster": "3.5.0"}
            case "/v3/kv/txn":
                return self._transaction(request)
            case "/v3/kv/range":
                return self._range(request)
            case "/v3/lease/grant":
                self._next_lease += 1
                ttl = int(request["TTL"])
                self.leases[self._next_lease] = (self.scheduler.time() + ttl, ttl)
                return {"ID": str(self._next_lease), "TTL": str(ttl)}
            case "/v3/lease/keepalive":
                lease = int(request["ID"])
                if lease not in self.leases:
                    return {"result": {"ID": str(lease)}}
                ttl = self.leases[lease][1]
                self.leases[lease] = (self.scheduler.time() + ttl, ttl)
                return {"result": {"ID": str(lease), "TTL": str(ttl)}}
            case "/v3/lease/revoke":
                if int(request["ID"]) not in self.leases:
                    raise Refusal(404, 5, "etcdserver: requested lease not found")
                self.revoke(int(request["ID"]))
                return {"header": self._header()}
        raise AssertionError(path)

    def _header(self) -> dict[str, str]:
        return {"revision": str(self.revision), "raft_term": "2"}

    def _transaction(self, request: dict[str, Any]) -> dict[str, Any]:
        is_true = all(self._compare(each) for each in request.get("compare", []))
        operations = request.get("success" if is_true else "failure", [])
        changes = [each for each in operations if "request_range" not in each]
        if self.is_full and any("request_put" in each for each in changes):
            raise Refusal(429, 8, "etcdserver: mvcc: database space exceeded")
        for each in changes:
            lease = int(each.get("request_put", {}).get("lease", 0))
            if lease and lease not in self.leases:
                raise Refusal(404, 5, "etcdserver: requested lease not found")
        made: list[Change] = []
        answers = [self._operate(each, self.revision + 1, made) for each in operations]
        self._commit(made)
        answer: dict[str, Any] = {"header": self._header(), "responses": answers}
        if is_true:
            answer["succeeded"] = True
        return answer

    def _compare(self, each: dict[str, Any]) -> bool:
        found = self.keys.get(_bytes(each["key"]))
        if each["target"] == "CREATE":
            return (found.create if found else 0) == int(each["create_revision"])
        assert each["target"] == "MOD"
        return (found.mod if found else 0) == int(each["mod_revision"])

    def _operate(
        self, operation: dict[str, Any], revision: int, made: list[Change]
    ) -> dict[str, Any]:
        [(name, request)] = operation.items()
        key, end = _bytes(request["key"]), _bytes(request.get("range_end", ""))
        match name:
            case "request_put":
                old = self.keys.get(key)
                value = Value(
                    _bytes(request["value"]),
                    old.create if old else revision,
                    revision,
                    int(request.get("lease", 0)),
                )
                self.keys[key] = value
                made.append(Change(revision, key, value))
                return {"response_put": {}}
            case "request_delete_range":
                for each in self._keys_in(self.keys, key, end):
                    del self.keys[each]
                    made.append(Change(revision, each, None))
                return {"response_delete_range": {}}
        return {"response_range": self._range(request)}

    def _keys_in(self, keys: dict[bytes, Value], key: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [key] if key in keys else []
        return sorted(each for each in keys if key <= each < end)

    def _range(self, request: dict[str, Any]) -> dict[str, Any]:
        revision = int(request.get("revision", 0))
        if revision and revision < self.compacted:
            raise Refusal(400, 11, "etcdserver: mvcc: required revision has been compacted")
        keys = self.keys
        if revision:
            keys = {}
            for change in self.changes:
                if change.revision <= revision:
                    if change.value is None:
                        keys.pop(change.key, None)
                    else:
                        keys[change.key] = change.value
        names = self._keys_in(keys, _bytes(request["key"]), _bytes(request.get("range_end", "")))
        limit = int(request.get("limit", 0)) or len(names)
        answer: dict[str, Any] = {"header": self._header()}
        if names:
            answer["kvs"] = [_kv(each, keys[each]) for each in names[:limit]]
        if len(names) > limit:
            answer["more"] = True
        return answer

    # ---- changes

    def _commit(self, made: list[Change]) -> None:
        if made:
            self.revision += 1
            self.changes += made
            for stream in self.streams:
                stream.news(made)

    def put(self, key: str, value: bytes) -> None:
        """As another client would."""
        request = {"success": [{"request_put": {"key": key.encode(), "value": value}}]}
        assert self.handle("/v3/kv/txn", msgspec.json.encode(request))[0] == 200

    def revoke(self, lease: int) -> None:
        self.leases.pop(lease, None)
        gone = [key for key, value in self.keys.items() if value.lease == lease]
        made = [Change(self.revision + 1, key, None) for key in sorted(gone)]
        for key in gone:
            del self.keys[key]
        self._commit(made)

    def expire(self) -> None:
        for lease, (expires_at, _) in list(self.leases.items()):
            if expires_at <= self.scheduler.time():
                self.revoke(lease)

    def compact(self) -> None:
        """Revisions before this one are forgotten: what looked at them has to look again."""
        self.compacted = self.revision

    def restart(self) -> None:
        self.is_down = False

    def stop(self) -> None:
        self.is_down = True
        for stream in list(self.streams):
            stream.break_off()


class ToyStream:
    def __init__(
        self,
        gateway: ToyGateway,
        request: dict[str, Any],
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.gateway = gateway
        self.etcd = gateway.etcd
        self._on_line, self._on_end = on_line, on_end
        self._key, self._end = _bytes(request["key"]), _bytes(request["range_end"])
        self._start = int(request["start_revision"])
        self.is_closed = False
        #: No event arrives any more, and no error either.
        self.is_dead = False
        #: What is said waits until it is released.
        self.is_held = False
        self._lines: list[dict[str, Any]] = []

    def open(self) -> None:
        if self.is_closed:
            return
        if self.etcd.is_down or self.gateway.is_cut:
            self.break_off()
            return
        self.etcd.streams.append(self)
        self._say({"created": True, "header": self.etcd._header()})
        if self._start <= self.etcd.compacted:
            self._say({"canceled": True, "compact_revision": str(self.etcd.compacted)})
            return
        self.news([each for each in self.etcd.changes if each.revision >= self._start])

    def news(self, changes: list[Change]) -> None:
        events = [
            {"type": "DELETE", "kv": {"key": each.key, "mod_revision": str(each.revision)}}
            if each.value is None
            else {"kv": _kv(each.key, each.value)}
            for each in changes
            if self._key <= each.key < self._end and each.revision >= self._start
        ]
        if events:
            self._say({"header": self.etcd._header(), "events": events})

    def progress(self) -> None:
        self._say({"header": self.etcd._header()})

    def _say(self, result: dict[str, Any]) -> None:
        self._lines.append(result)
        self.etcd.scheduler.call_later(self.gateway.delay(), self._deliver)

    def _deliver(self) -> None:
        if self.is_held:
            return
        # In order, whatever the delays were.
        line = self._lines.pop(0)
        if not self.is_closed and not self.is_dead and not self.gateway.is_cut:
            self._on_line(msgspec.json.encode({"result": line}))

    def release(self) -> None:
        self.is_held = False
        for _ in list(self._lines):
            self._deliver()

    def break_off(self) -> None:
        if not self.is_closed:
            self.close()
            self.etcd.scheduler.call_soon(self._on_end, "broken off")

    def close(self) -> None:
        self.is_closed = True
        if self in self.etcd.streams:
            self.etcd.streams.remove(self)


class ToyGateway:
    """One node's way to etcd."""

    def __init__(self, etcd: ToyEtcd, random: Random) -> None:
        self.etcd = etcd
        self._random = random
        self.delay_s = 0.002
        #: Requests that are not delivered, answers that are not, and requests that are delivered
        #: long after their sender has given up.
        self.lost_requests = 0.0
        self.lost_answers = 0.0
        self.late_requests = 0.0
        #: Whether a request that this says yes to is lost, or its answer; then it is asked no more.
        self.lose_request: Callable[[bytes], bool] | None = None
        self.lose_answer: Callable[[bytes], bool] | None = None
        #: How long a watch takes to begin.
        self.stream_delay_s = 0.0
        self.is_cut = False
        self.streams: list[ToyStream] = []
        self.requests: list[str] = []

    def delay(self) -> float:
        return self._random.uniform(0.0, self.delay_s)

    def request(
        self,
        method: str,
        path: str,
        body: bytes,
        timeout_s: float,
    ) -> outcome.Outcome[tuple[int, bytes]]:
        assert method == ("GET" if path == "/version" else "POST")
        self.requests.append(path)
        scheduler, random = self.etcd.scheduler, self._random
        told: outcome.Outcome[tuple[int, bytes]] = outcome.Outcome()

        def tell(status: int, answer: bytes) -> None:
            if not told.is_settled:
                timer.cancel()
                told.succeed((status, answer))

        def arrive() -> None:
            if self.etcd.is_down or self.is_cut:
                scheduler.call_later(self.delay(), tell, 0, b"connection refused")
                return
            if self.lose_request is not None and self.lose_request(body):
                self.lose_request = None
                return
            status, answer = self.etcd.handle(path, body)
            if self.lose_answer is not None and self.lose_answer(body):
                self.lose_answer = None
            elif random.random() >= self.lost_answers and not self.is_cut:
                scheduler.call_later(self.delay(), tell, status, answer)

        timer = scheduler.call_later(timeout_s, tell, 0, b"no answer in time")
        if random.random() < self.late_requests:
            scheduler.call_later(random.uniform(0.0, 2 * timeout_s), arrive)
        elif random.random() >= self.lost_requests:
            scheduler.call_later(self.delay(), arrive)
        return told

    def stream(
        self,
        path: str,
        body: bytes,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> ToyStream:
        assert path == "/v3/watch"
        request = msgspec.json.decode(body)["create_request"]
        stream = ToyStream(self, request, on_line, on_end)
        self.streams = [each for each in self.streams if not each.is_closed] + [stream]
        self.etcd.scheduler.call_later(self.stream_delay_s + self.delay(), stream.open)
        return stream

    def cut(self) -> None:
        """The network is gone; streams do not notice."""
        self.is_cut = True
        for stream in self.streams:
            stream.is_dead = True

    def break_streams(self) -> None:
        for stream in self.streams:
            stream.break_off()


QUICK = Settings(call_s=0.5, retry_s=0.05, look_s=1.0, outcome_s=2.0, snapshot_entries=10_000)
TTL_S = 3


class Member:
    """A quorum on one node, over its lives, and everything that it reported."""

    def __init__(self, world: EtcdWorld, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.gateway = ToyGateway(world.etcd, Random(world.random.getrandbits(32)))
        self.incarnation = 0
        self.is_up = False
        self.start()

    def start(self) -> None:
        world = self.world
        self.incarnation += 1
        self.is_up = True
        self.image = MetadataImage()
        self.history: list[tuple[int, Event]] = []
        self.roles: list[RoleChanged] = []
        self.restored: list[int] = []
        self.loaded = 0
        self.liveness: list[tuple[int, int | None]] = []
        self.failures: list[DragomanError] = []
        quorum = EtcdQuorum(
            self.node_id,
            self.image,
            world.scheduler,
            self.gateway,
            prefix=PREFIX,
            settings=world.settings,
        )
        quorum.on_applied = lambda event, _: self.applied(event)
        quorum.on_restored = lambda: self.restored.append(quorum.version)
        quorum.on_role = self.role_changed
        quorum.on_loaded = self.count_load
        quorum.on_node = lambda node, incarnation: self.liveness.append((node, incarnation))
        quorum.on_failed = self.failures.append
        self.quorum = quorum
        quorum.register(self.incarnation, TTL_S)
        quorum.replay()
        quorum.start()

    def applied(self, event: Event) -> None:
        self.history.append((self.quorum.version, event))

    def role_changed(self, changed: RoleChanged) -> None:
        self.roles.append(changed)

    def count_load(self) -> None:
        self.loaded += 1

    def crash(self) -> None:
        """Nothing is given back; the result of waiters does not count."""
        self.is_up = False
        old, self.gateway = self.gateway, ToyGateway(self.world.etcd, Random(self.node_id))
        old.cut()
        self.quorum.stop()

    def state(self) -> bytes:
        return encode_image(self.image, self.quorum.version)

    def propose(self, name: str = "g", expected_version: int | None = None) -> Outcome:
        outcome = Outcome()
        event = GroupConfigChanged(group_id=name, config={"value": name})
        self.quorum.propose([event], expected_version).then(outcome)
        return outcome


class EtcdWorld:
    def __init__(self, members: int = 3, seed: int = 1, settings: Settings = QUICK) -> None:
        self.random = Random(seed)
        self.scheduler = SimScheduler(Random(self.random.getrandbits(32)))
        self.etcd = ToyEtcd(self.scheduler)
        self.settings = settings
        self.members: dict[int, Member] = {}
        for node in range(1, members + 1):
            self.members[node] = Member(self, node)
        self._tick()
        self.advance(1.0)

    def _tick(self) -> None:
        if not self.etcd.is_down:
            self.etcd.expire()
        self.scheduler.call_later(0.1, self._tick)

    def advance(self, seconds: float = 0.5) -> None:
        self.scheduler.advance(seconds)

    @property
    def leader(self) -> Member:
        [found] = [each for each in self.members.values() if each.quorum.role is Role.LEADER]
        return found

    @property
    def followers(self) -> list[Member]:
        return [each for each in self.members.values() if each.quorum.role is not Role.LEADER]
