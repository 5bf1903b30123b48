"""Goal: a connection is its user's after AUTH or credentials in a command, and nobody's before.

Method: connections to a broker on virtual time, whose listener demands a login. Password hashes are
held back where the order of commands matters.
"""

from __future__ import annotations

import pytest

from dragoman import limits
from dragoman.config.settings import Settings
from dragoman.outcome import Outcome
from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.constants import COMMANDS
from dragoman.security.access import ANONYMOUS, Operation, Principal, Resource
from dragoman.security.audit import AuditEvent
from dragoman.security.passwords import InlineHasher
from worlds.access import Denies
from worlds.broker import World
from worlds.cursus import CursusPipe, batch, framed
from worlds.users import add_user, demand, remove_user

AUTH = "AUTH principal=alice token=of-alice"
OK = "OK principal=alice authenticated=true"
FAILED = "ERROR: authentication_failed mechanism=PLAIN"
INLINE = "principal=alice auth_token=of-alice"
PUBLISH = "PUBLISH topic=orders producerId=p {} message={}"
OPEN = ("AUTH", "HELP", "NEGOTIATE", "PROTOCOL_INFO")


class HeldHasher(InlineHasher):
    """Holds results back while `held` is a list."""

    def __init__(self) -> None:
        self.held: list[tuple[Outcome[bytes], bytes]] | None = None

    def derive(self, digest: str, password: bytes, salt: bytes, iterations: int) -> Outcome[bytes]:
        found = super().derive(digest, password, salt, iterations)
        if self.held is None:
            return found
        outcome: Outcome[bytes] = Outcome()
        self.held.append((outcome, found.result()))
        return outcome

    def release(self) -> None:
        held, self.held = self.held or [], None
        for outcome, value in held:
            outcome.succeed(value)


@pytest.fixture
def authorizer() -> Denies:
    return Denies()


@pytest.fixture
def world(authorizer: Denies) -> World:
    # Connections of worlds come from another machine, without TLS.
    world = World(Settings(sasl_insecure_clear_text=True), authorizer=authorizer)
    world.create("orders")
    add_user(world, "alice", password="of-alice")
    add_user(world, "bob", password="of-bob")
    demand(world)
    return world


@pytest.fixture
def pipe(world: World) -> CursusPipe:
    return CursusPipe(world)


def hold_hashes(world: World) -> HeldHasher:
    hasher = HeldHasher()
    hasher.held = []
    world.broker.logins.hasher = hasher
    world.broker.logins._cache._hasher = hasher
    return hasher


# ---- AUTH


def test_auth_logs_the_connection_in(pipe: CursusPipe, authorizer: Denies) -> None:
    assert pipe.ask(AUTH) == OK
    assert pipe.ask("LIST") == "OK count=1 topics=orders"
    assert pipe.publish(batch("a")).last_offset == 0
    assert {each.principal for each in authorizer.callers} == {Principal("User", "alice")}


@pytest.mark.parametrize("command", ["AUTH", "AUTH principal=alice", "AUTH token=x"])
def test_auth_needs_both_arguments(pipe: CursusPipe, command: str) -> None:
    assert pipe.ask(command) == "ERROR: invalid_auth command=AUTH"


@pytest.mark.parametrize(
    "command",
    [
        "AUTH principal=alice token=wrong",
        "AUTH principal=nobody token=of-alice",
        "AUTH principal=bob token=of-alice",
        "AUTH principal=alice token=OF-ALICE",
        f"AUTH principal=alice token={'x' * 2000}",
        "AUTH principal=alice token=of-alicé",
    ],
)
def test_wrong_credentials_are_refused_alike(pipe: CursusPipe, command: str) -> None:
    assert pipe.ask(command) == FAILED
    assert pipe.ask("LIST") == "ERROR: authentication_required command=LIST"


def test_auth_fails_where_there_is_no_authentication(world: World) -> None:
    demand(world, "off")
    pipe = CursusPipe(world)
    assert pipe.ask(AUTH) == FAILED
    assert pipe.ask("LIST").startswith("OK")


def test_passwords_need_tls(world: World) -> None:
    world.broker.context.settings = Settings()
    pipe = CursusPipe(world)
    refused = f'{FAILED} reason="passwords need TLS"'
    assert pipe.ask(AUTH) == refused
    assert pipe.ask(f"LIST {INLINE}") == refused


def test_structured_errors_have_the_class(pipe: CursusPipe) -> None:
    pipe.ask("NEGOTIATE version=1 features=structured_errors_v1")
    failed = "ERROR: authentication_failed class=authorization retryable=false mechanism=PLAIN"
    assert pipe.ask("AUTH principal=alice token=no") == failed
    required = "ERROR: authentication_required class=authorization retryable=false command=LIST"
    assert pipe.ask("LIST") == required


# ---- before a login


@pytest.mark.parametrize("word", [each for each in COMMANDS if each not in OPEN])
def test_every_command_needs_a_login(pipe: CursusPipe, authorizer: Denies, word: str) -> None:
    command = f"{word} topic=orders group=g producerId=p message=m"
    refused = f"authentication_required command={word}"
    reply = pipe.ask(command)
    assert reply in (f"ERROR: {refused}", f'{{"error":"{refused}","status":"ERROR"}}')
    assert authorizer.asked == []


def test_some_commands_need_no_login(pipe: CursusPipe) -> None:
    assert pipe.ask("HELP").startswith("OK")
    assert pipe.ask("PROTOCOL_INFO").startswith("OK")
    assert pipe.ask("NEGOTIATE version=1 features=*").startswith("OK")


def test_a_batch_needs_a_login(pipe: CursusPipe, authorizer: Denies) -> None:
    reply = pipe.ask_raw(codec.encode_batch(batch("a")))
    assert reply == b"ERROR: authentication_required command=PUBLISH"
    assert authorizer.asked == []


def test_frames_before_a_login_are_small(world: World, pipe: CursusPipe) -> None:
    pipe.feed((limits.LOGIN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    world.settle()
    assert pipe.is_closed
    other = CursusPipe(world)
    assert other.ask(AUTH) == OK
    large = "m" * (2 * limits.LOGIN_FRAME_BYTES_MAX)
    assert other.ask(PUBLISH.format("", large)).startswith("{")


def test_a_connection_without_a_login_is_closed_in_time(world: World, pipe: CursusPipe) -> None:
    other = CursusPipe(world)
    other.ask(AUTH)
    world.advance(world.settings.connections_max_login_ms / 1000)
    assert pipe.is_closed
    assert not other.is_closed


def test_connections_before_their_login_are_counted(world: World, pipe: CursusPipe) -> None:
    admission = world.broker.logins.admission
    assert admission.in_all == 1
    pipe.ask(AUTH)
    assert admission.in_all == 0
    other = CursusPipe(world)
    other.lose()
    assert admission.in_all == 0


def test_optional_logins(world: World, authorizer: Denies) -> None:
    demand(world, "optional")
    pipe = CursusPipe(world)
    assert pipe.ask("LIST").startswith("OK")
    assert pipe.ask(AUTH) == OK
    assert pipe.ask("LIST").startswith("OK")
    principals = {each.principal for each in authorizer.callers}
    assert principals == {ANONYMOUS, Principal("User", "alice")}


def test_addresses_may_have_a_principal(world: World, authorizer: Denies) -> None:
    demand(world, principals=(("10.0.0.0/8", "batch"),))
    pipe = CursusPipe(world)
    assert pipe.publish(batch("a")).last_offset == 0
    assert {each.name for each in authorizer.callers} == {"batch"}


# ---- credentials in commands


def test_credentials_in_a_command_log_the_connection_in(
    pipe: CursusPipe, authorizer: Denies
) -> None:
    assert pipe.ask(f"LIST {INLINE}").startswith("OK")
    assert pipe.publish(batch("a")).last_offset == 0
    assert {each.name for each in authorizer.callers} == {"alice"}


@pytest.mark.parametrize("given", ["principal=alice", "auth_token=of-alice"])
def test_half_of_the_credentials_is_refused(pipe: CursusPipe, given: str) -> None:
    reason = "ERROR: invalid_auth reason=principal_and_auth_token_required"
    assert pipe.ask(f"LIST_OFFSETS topic=orders {given}") == reason


def test_wrong_credentials_in_a_command_are_refused(pipe: CursusPipe, authorizer: Denies) -> None:
    command = PUBLISH.format("principal=alice auth_token=no", "m")
    assert pipe.ask(command) == FAILED
    assert authorizer.asked == []


def test_credentials_after_the_message_belong_to_the_message(pipe: CursusPipe) -> None:
    assert pipe.ask(AUTH) == OK
    pipe.ask(PUBLISH.format("", f"m {INLINE}"))
    found = pipe.ask_batch("CONSUME topic=orders partition=0 offset=0 member=m")
    assert [each.payload for each in found.messages] == [f"m {INLINE}".encode()]


def test_a_failed_login_after_a_good_one_changes_nothing(
    pipe: CursusPipe, authorizer: Denies
) -> None:
    assert pipe.ask(AUTH) == OK
    assert pipe.ask("AUTH principal=bob token=no") == FAILED
    assert pipe.ask("LIST principal=bob auth_token=no") == FAILED
    assert pipe.ask("LIST").startswith("OK")
    assert {each.name for each in authorizer.callers} == {"alice"}


def test_a_second_login_replaces_the_first(pipe: CursusPipe, authorizer: Denies) -> None:
    assert pipe.ask(AUTH) == OK
    assert pipe.ask("AUTH principal=bob token=of-bob") == "OK principal=bob authenticated=true"
    assert pipe.ask("LIST").startswith("OK")
    assert {each.name for each in authorizer.callers} == {"bob"}


def test_other_nodes_do_not_get_the_password() -> None:
    from dragoman.protocols.cursus.handlers.logins import without_credentials

    command = codec.parse_command(f"LIST_OFFSETS topic=t {INLINE} P0:1".encode())
    assert command is not None
    kept = without_credentials(command)
    assert dict(kept.arguments) == {"topic": "t"}
    assert (kept.word, kept.last) == (command.word, command.last)


# ---- order


@pytest.mark.parametrize("login", [AUTH, f"LIST {INLINE}", PUBLISH.format(INLINE, "0")])
def test_nothing_overtakes_a_login(
    world: World, pipe: CursusPipe, authorizer: Denies, login: str
) -> None:
    hasher = hold_hashes(world)
    pipe.feed(framed(login) + b"".join(framed(PUBLISH.format("", str(each))) for each in (1, 2)))
    pipe.feed(framed(codec.encode_batch(batch("3"))) + framed("LIST"))
    world.settle()
    assert pipe.frames() == []
    assert authorizer.asked == []
    hasher.release()
    world.settle()
    assert not any(each.startswith(b"ERROR") for each in pipe.frames())
    assert {each.name for each in authorizer.callers} == {"alice"}


def test_commands_behind_a_failed_login_are_refused(world: World, pipe: CursusPipe) -> None:
    pipe.feed(framed("AUTH principal=alice token=no") + framed(PUBLISH.format("", "m")))
    world.settle()
    required = b"ERROR: authentication_required command=PUBLISH"
    assert pipe.frames() == [FAILED.encode(), required]


def test_publishes_before_a_login_are_the_earlier_users(
    world: World, pipe: CursusPipe, authorizer: Denies
) -> None:
    demand(world, "optional")
    hasher = hold_hashes(world)
    pipe.feed(framed(PUBLISH.format("", "1")) + framed(PUBLISH.format(INLINE, "2")))
    world.settle()
    assert {each.principal for each in authorizer.callers} == {ANONYMOUS}
    hasher.release()
    world.settle()
    assert len(pipe.frames()) == 2


def test_a_login_may_outlive_its_connection(world: World, pipe: CursusPipe) -> None:
    hasher = hold_hashes(world)
    pipe.feed(framed(AUTH))
    world.settle()
    pipe.lose()
    hasher.release()
    world.settle()
    assert world.broker.logins._sessions == {}


def test_a_command_of_a_lost_connection_does_not_run_as_an_earlier_caller(
    world: World, pipe: CursusPipe, authorizer: Denies
) -> None:
    demand(world, "optional")
    hasher = hold_hashes(world)
    pipe.feed(framed(PUBLISH.format(INLINE, "m")))
    world.settle()
    pipe.lose()
    hasher.release()
    world.settle()
    assert authorizer.asked == []


def test_huge_credentials_cost_no_more_than_others(world: World) -> None:
    demand(world, "optional")
    pipe = CursusPipe(world)
    huge = "n" * (limits.CURSUS_COMMAND_BYTES_MAX // 3)
    assert pipe.ask(f"AUTH principal={huge} token={huge}") == FAILED
    counted = world.broker.logins._failures._by_user._counts
    assert all(len(each) <= limits.USER_NAME_BYTES_MAX for each in counted)


def test_refusals_are_recorded(world: World, pipe: CursusPipe) -> None:
    events: list[AuditEvent] = []
    world.broker.logins.record = events.append
    pipe.ask("LIST")
    pipe.ask("AUTH principal=alice token=no")
    pipe.ask(AUTH)
    assert [(each.action, each.result, each.caller.name) for each in events] == [
        ("none", "failed", "ANONYMOUS"),
        ("plain", "failed", "alice"),
        ("plain", "succeeded", "alice"),
    ]


# ---- rights


@pytest.mark.parametrize(
    ("denied", "command", "refused"),
    [
        (
            (Operation.WRITE, Resource.TOPIC, "orders"),
            PUBLISH.format("", "m"),
            "NOT_AUTHORIZED_FOR_TOPIC operation=write topic=orders",
        ),
        (
            (Operation.READ, Resource.TOPIC, "orders"),
            "CONSUME topic=orders partition=0 offset=0 member=m",
            "NOT_AUTHORIZED_FOR_TOPIC operation=read topic=orders",
        ),
        (
            (Operation.READ, Resource.GROUP, "default-group"),
            "CONSUME topic=orders partition=0 offset=0 member=m",
            "NOT_AUTHORIZED_FOR_OPERATION command=CONSUME permission=group",
        ),
        (
            (Operation.READ, Resource.GROUP, "g"),
            "STREAM topic=orders partition=0 group=g",
            "NOT_AUTHORIZED_FOR_OPERATION command=STREAM permission=group",
        ),
        (
            (Operation.READ, Resource.GROUP, "g"),
            "JOIN_GROUP topic=orders group=g member=m",
            "NOT_AUTHORIZED_FOR_OPERATION command=JOIN_GROUP permission=group",
        ),
        (
            (Operation.WRITE, Resource.TRANSACTIONAL_ID, "x"),
            "INIT_PRODUCER_ID transactional_id=x",
            "NOT_AUTHORIZED_FOR_OPERATION command=INIT_PRODUCER_ID permission=transaction",
        ),
        (
            (Operation.DELETE, Resource.TOPIC, "orders"),
            "DELETE topic=orders",
            "NOT_AUTHORIZED_FOR_OPERATION command=DELETE permission=admin",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_refusals_have_the_originals_texts(
    pipe: CursusPipe,
    authorizer: Denies,
    denied: tuple[Operation, Resource, str],
    command: str,
    refused: str,
) -> None:
    assert pipe.ask(AUTH) == OK
    authorizer.denied.add(denied)
    assert pipe.ask(command) == f"ERROR: {refused}"


def test_policies_of_topics_apply_in_addition(pipe: CursusPipe) -> None:
    assert pipe.ask(AUTH) == OK
    assert pipe.ask(
        "CREATE topic=of-bob auth_policy=acl write_acl=bob read_acl=bob,alice"
    ).startswith("OK")
    publish = "PUBLISH topic=of-bob producerId=p message=m"
    assert pipe.ask(publish) == "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=write topic=of-bob"
    assert pipe.ask("AUTH principal=bob token=of-bob").startswith("OK")
    assert pipe.ask(publish).startswith("{")


# ---- the end of a user


@pytest.mark.parametrize("change", ["removed", "disabled", "replaced"])
def test_connections_of_the_user_end(world: World, pipe: CursusPipe, change: str) -> None:
    other = CursusPipe(world)
    assert pipe.ask(AUTH) == OK
    other.ask("AUTH principal=bob token=of-bob")
    pipe.feed(framed("STREAM topic=orders partition=0 group=g"))
    world.settle()
    match change:
        case "removed":
            remove_user(world, "alice")
        case "disabled":
            add_user(world, "alice", password="of-alice", is_enabled=False)
        case _:
            add_user(world, "alice", password="of-alice", incarnation="2")
    assert pipe.is_closed
    assert not other.is_closed


# ---- guessing


def test_guesses_wait(world: World, pipe: CursusPipe) -> None:
    for _ in range(limits.LOGIN_FAILURES_FREE + 1):
        assert pipe.ask("AUTH principal=alice token=no") == FAILED
    pipe.feed(framed("AUTH principal=alice token=another") + framed("HELP"))
    world.settle()
    assert pipe.frames() == []
    world.advance(limits.LOGIN_WAIT_ADDRESS_S_MAX)
    assert len(pipe.frames()) == 2


# ---- before the login


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_nothing_large_is_decompressed_before_the_login(pipe: CursusPipe, name: str) -> None:
    sent = compression.compress(name, codec.encode_batch(batch("a" * limits.LOGIN_FRAME_BYTES_MAX)))
    refused = f'ERROR: decode_failed reason="batch decompresses to more than {1 << 16}'
    assert pipe.ask_raw(sent).decode().startswith(refused)
    assert pipe.ask(AUTH) == OK
    assert pipe.ask_raw(sent).startswith(b'{"status":"OK"')


def test_large_batch_may_follow_a_login_at_once(pipe: CursusPipe) -> None:
    large = codec.encode_batch(batch("a" * limits.LOGIN_FRAME_BYTES_MAX))
    pipe.feed(framed(AUTH) + framed(compression.compress("zstd", large)))
    pipe.world.settle()
    answers = pipe.frames()
    assert answers[0].decode() == OK
    assert answers[1].startswith(b'{"status":"OK"')
