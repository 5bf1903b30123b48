"""Named contexts: which layer decides, logins that stay with their cluster, and broken files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dragoman.cli.client_security import BrokerTarget
from dragoman.cli.contexts import (
    VARIABLE,
    VARIABLE_OF_FILE,
    Context,
    Contexts,
    changed,
    read,
    write,
)
from dragoman.cli.main import main
from dragoman.cli.status import USAGE, CommandError
from dragoman.cli.target import DEFAULT_URL, Target
from dragoman.config.layers import Flags, load

FILE = """
current = "home"

[context.home]
server = "http://home:8080"
bootstrap = "home:9092"
token_file = "home.token"
user = "homer"
password_file = "~/home.password"

[context.work]
server = "https://work:8443"
bootstrap = "work:9093"
user = "alice"
password_file = "/secrets/alice"
mechanism = "SCRAM-SHA-512"

[context.wire]
bootstrap = "wire:9092"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "user" / "contexts.toml"
    for name in list(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv(VARIABLE_OF_FILE, str(path))
    return path


@pytest.fixture
def environment(file: Path) -> dict[str, str]:
    file.parent.mkdir()
    file.write_text(FILE)
    file.chmod(0o600)
    return {VARIABLE_OF_FILE: str(file), "HOME": os.environ["HOME"]}


# ---- layers


def test_current_context_gives_address_and_login(environment: dict[str, str], file: Path) -> None:
    found = Target().resolved(environment)
    assert found.server == "http://home:8080"
    # Paths are relative to the file. HTTP prefers a token, which other protocols lack.
    assert (found.token_file, found.user) == (str(file.parent / "home.token"), "")
    broker = BrokerTarget().resolved("default:1", environment)
    assert broker.bootstrap == "home:9092"
    assert broker.credentials.user == "homer"
    assert broker.credentials.password_file == os.path.expanduser("~/home.password")


def test_without_any_layer_the_default_counts(file: Path) -> None:
    assert Target().resolved({VARIABLE_OF_FILE: str(file)}).server == DEFAULT_URL
    assert BrokerTarget().resolved("d:1", {VARIABLE_OF_FILE: str(file)}).bootstrap == "d:1"


def test_variable_names_the_current_context(environment: dict[str, str]) -> None:
    environment[VARIABLE] = "work"
    found = Target().resolved(environment)
    assert (found.server, found.user) == ("https://work:8443", "alice")
    assert BrokerTarget().resolved("d:1", environment).credentials.mechanism == "SCRAM-SHA-512"


def test_login_of_a_context_is_not_sent_to_another_address(environment: dict[str, str]) -> None:
    by_option = Target(server="http://other:1").resolved(environment)
    environment |= {"DRAGOMAN_SERVER": "http://other:1", "DRAGOMAN_BOOTSTRAP": "other:1"}
    for found in (by_option, Target().resolved(environment)):
        assert (found.server, found.token_file, found.user, found.password_file) == (
            "http://other:1",
            "",
            "",
            "",
        )
    broker = BrokerTarget().resolved("d:1", environment)
    assert (broker.bootstrap, broker.credentials.user) == ("other:1", "")


def test_option_context_is_preferred_to_variables_and_takes_other_options(
    environment: dict[str, str],
) -> None:
    environment |= {
        "DRAGOMAN_SERVER": "http://other:1",
        "DRAGOMAN_TOKEN_FILE": "/other.token",
        VARIABLE: "home",
    }
    found = Target(context="work").resolved(environment)
    assert (found.server, found.token_file, found.user) == ("https://work:8443", "", "alice")
    near = Target(context="work", server="https://work2:8443", user="bob").resolved(environment)
    assert (near.server, near.user) == ("https://work2:8443", "bob")


def test_option_with_a_token_replaces_the_user_of_a_context(environment: dict[str, str]) -> None:
    found = Target(context="work", token_file="/t").resolved(environment)
    assert (found.token_file, found.user) == ("/t", "")
    found = Target(context="home", user="alice").resolved(environment)
    assert (found.token_file, found.user) == ("", "alice")


def test_context_without_the_address_is_not_replaced_by_the_default(
    environment: dict[str, str],
) -> None:
    with pytest.raises(CommandError, match="context 'wire' has no server") as caught:
        Target(context="wire").resolved(environment)
    assert caught.value.status == USAGE
    assert "dragoman context add wire --server" in caught.value.hint


def test_authorities_of_a_context_do_not_imply_tls_of_brokers(
    environment: dict[str, str], file: Path, tmp_path: Path
) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("no certificate")
    contexts = read(file)
    contexts.context["ca"] = Context(bootstrap="h:1", ca_file=str(authorities))
    contexts.context["tls"] = Context(bootstrap="h:1", ca_file=str(authorities), tls=True)
    write(file, contexts)
    assert BrokerTarget(context="ca").resolved("d:1", environment).tls is None
    with pytest.raises(Exception, match=r"ca\.pem"):
        BrokerTarget(context="tls").resolved("d:1", environment)


def test_unknown_context_names_the_known_ones(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "list", "--context", "wrk"]) == USAGE
    assert "there is no context 'wrk' in " in (err := capsys.readouterr().err)
    assert err.endswith("; known: home, wire, work\n")


def test_node_starts_in_an_environment_of_commands() -> None:
    names = ("SERVER", "BOOTSTRAP", "TOKEN_FILE", "USER", "PASSWORD_FILE", "CA_FILE")
    others = ("CONTEXT", "CONTEXTS", "CDC_DSN", "SPARK_RECORDS")
    environment = {f"DRAGOMAN_{name}": "x" for name in (*names, *others)}
    load(file=None, environment=environment, flags=Flags())


# ---- broken files


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"current = ", "not TOML"),
        (b"\xff", "not TOML"),
        (b'current = "x"\nmore = 1', "unknown field `more`"),
        (b'[context.x]\nserver = "http://h"\npassword = "secret"', "secrets are in files"),
        (b'[context.x]\ntoken = "secret"', "secrets are in files"),
        (b"[context.x]\nserver = 1", "Expected `str`, got `int`"),
        (b'[context.x]\nmechanism = "MD5"', "Invalid enum value"),
        (b'[context."a b"]\nserver = "http://h"', "expected a name of 1 to 64"),
        (b"#" * (1 << 20) + b"#", "larger than"),
    ],
)
def test_broken_file_is_one_line_and_names_itself(
    file: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    file.chmod(0o600)
    assert main(["topic", "list"]) == USAGE
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert "secret" not in err.replace("secrets are in files", "")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_that_others_may_write_to_is_refused(
    environment: dict[str, str], file: Path, mode: int
) -> None:
    file.chmod(mode)
    with pytest.raises(CommandError, match="other users may write to it; chmod go-w"):
        Target().resolved(environment)


def test_directory_in_place_of_the_file_is_refused(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(CommandError, match=r"contexts\.toml: "):
        read(file)


# ---- commands


Run = Callable[..., object]


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command with JSON, and returns its data."""

    def _run(*arguments: str) -> object:
        assert main(["context", *arguments, "--output", "json"]) == 0
        return msgspec.json.decode(capsys.readouterr().out)

    return _run


def test_context_is_added_used_changed_and_removed(run: Run, file: Path) -> None:
    token = file.parent / "a.token"
    run("add", "a", "--server", "http://a:1", "--token-file", str(token))
    run("add", "b.eu-1", "--bootstrap", "b:9092", "--tls", "--use")
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert read(file) == Contexts(
        current="b.eu-1",
        context={
            "a": Context(server="http://a:1", token_file=str(token)),
            "b.eu-1": Context(bootstrap="b:9092", tls=True),
        },
    )
    run("use", "a")
    changed = run("add", "a", "--bootstrap", "a:9092")
    assert isinstance(changed, dict)
    assert (changed["server"], changed["bootstrap"]) == ("http://a:1", "a:9092")
    assert run("show") == changed | {"is_current": True}
    listed = run("list")
    assert isinstance(listed, list)
    assert [(each["name"], each["is_current"]) for each in listed] == [
        ("a", True),
        ("b.eu-1", False),
    ]
    run("remove", "a")
    assert read(file) == Contexts(context={"b.eu-1": Context(bootstrap="b:9092", tls=True)})
    run("use", "b.eu-1")
    run("use", "none")
    assert read(file).current == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "a"), "needs --server or --bootstrap"),
        (("add", "a b", "--server", "http://h"), "expected a name"),
        (("add", "a", "--server", "nonsense"), "expected a URL"),
        (("add", "a", "--server", "http://alice:secret@h"), "no credentials in the URL"),
        (("use", "a"), "there is no context 'a'"),
        (("remove",), "at least one context"),
        (("remove", "a"), "there is no context 'a'"),
        (("show", "a"), "there is no context 'a'"),
    ],
)
def test_wrong_usage_changes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert main(["context", *arguments]) == USAGE
    assert words in capsys.readouterr().err
    assert not file.exists()


def test_broken_file_is_not_overwritten(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("current =")
    assert main(["context", "add", "a", "--server", "http://h:1"]) == USAGE
    assert file.read_text() == "current ="


def test_variable_over_the_used_context_is_mentioned(
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, "home")
    assert main(["context", "use", "work"]) == 0
    assert "DRAGOMAN_CONTEXT names 'home'" in capsys.readouterr().err


def test_a_pipe_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "contexts.toml")
    with pytest.raises(CommandError, match="not a regular file"):
        read(tmp_path / "contexts.toml")


def test_changes_at_the_same_time_take_turns(tmp_path: Path) -> None:
    file = tmp_path / "contexts.toml"
    is_done = threading.Event()

    def add() -> None:
        with changed(file) as contexts:
            contexts.context["second"] = Context(server="http://b:1")
        is_done.set()

    other = threading.Thread(target=add)
    with changed(file) as contexts:
        contexts.context["first"] = Context(server="http://a:1")
        other.start()
        assert not is_done.wait(0.2)
    other.join()
    assert set(read(file).context) == {"first", "second"}


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    link = tmp_path / "contexts.toml"
    link.symlink_to("dotfiles.toml")
    with changed(link) as contexts:
        contexts.context["a"] = Context(server="http://a:1")
    assert link.is_symlink()
    assert set(read(tmp_path / "dotfiles.toml").context) == {"a"}
