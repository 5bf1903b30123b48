"""Commands of `dragoman rocketmq`: their names, options, session and output.

A command is a function of a session. Rows that it returns are printed in the form of `--output`;
text says what it has changed. A command that returns None has printed its result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property, wraps
from typing import Annotated, Final, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
from cyclopts import App, Parameter
from msgspec import structs

from dragoman.cli.output import Change, Output, show, show_change
from dragoman.cli.status import USAGE, CommandError, one_line_failures
from dragoman.client.rocketmq import (
    BlockingProducer,
    BlockingRocketmqAdmin,
    BlockingRocketmqClient,
    ClientSettings,
)
from dragoman.client_core.credentials import AccessKey
from dragoman.errors import ConfigError
from dragoman.limits import CLI_TIMEOUT_SECONDS

Opened = TypeVar("Opened", BlockingRocketmqAdmin, BlockingRocketmqClient)

_DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
_SETTINGS: Final = ClientSettings(
    operation_timeout_s=1.0, request_timeout_s=float(CLI_TIMEOUT_SECONDS)
)

NameServers: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--namesrv", "-n", "--namesrvAddr"],
        env_var="NAMESRV_ADDR",
        help="Addresses of name servers, HOST:PORT, separated by commas.",
    ),
]
AccessKeyName: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--access-key"],
        env_var="ROCKETMQ_ACCESS_KEY",
        help="User to sign requests as; none by default.",
    ),
]
SecretFile: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--secret-key-file"],
        env_var="ROCKETMQ_SECRET_KEY_FILE",
        help="File with the secret key of --access-key.",
    ),
]
#: Parameters that name what a command changes; the first one given counts.
_SUBJECTS: Final = ("group", "topic", "username", "subject")

Topic: TypeAlias = Annotated[str, Parameter(name=["--topic", "-t"], help="Topic.")]
Group: TypeAlias = Annotated[
    str, Parameter(name=["--group", "-g", "--groupName"], help="Consumer group.")
]
Cluster: TypeAlias = Annotated[
    str | None,
    Parameter(name=["--cluster", "-c", "--clusterName"], help="Cluster; all by default."),
]
Broker: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--broker", "-b", "--brokerAddr"],
        help="Address of a broker; all masters by default.",
    ),
]


class Session:
    """The clients that a command uses, created on first use."""

    def __init__(self, namesrv: str, signer: AccessKey | None, stack: ExitStack) -> None:
        self._namesrv = namesrv
        self._settings = structs.replace(_SETTINGS, credentials=signer)
        self._stack = stack

    @cached_property
    def admin(self) -> BlockingRocketmqAdmin:
        return self._opened(BlockingRocketmqAdmin)

    @cached_property
    def producer(self) -> BlockingProducer:
        client = self._opened(BlockingRocketmqClient)
        return self._stack.enter_context(client.producer("dragoman-cli"))

    def _opened(self, kind: type[Opened]) -> Opened:
        try:
            client = kind(self._namesrv, settings=self._settings)
        except ConfigError as error:
            what = "--secret-key-file" if str(error).startswith("secret") else "--namesrv"
            raise CommandError(f"{what}: {error}", USAGE) from None
        return self._stack.enter_context(client)


@contextmanager
def _session(namesrv: str, signer: AccessKey | None) -> Iterator[Session]:
    """A session whose errors become a `CommandError` with one line of text."""
    with one_line_failures("RocketMQ"), ExitStack() as stack:
        yield Session(namesrv, signer, stack)


def _signer(access_key: str, secret_key_file: str) -> AccessKey | None:
    if bool(access_key) != bool(secret_key_file):
        raise CommandError("--access-key and --secret-key-file: expected both or none", USAGE)
    return AccessKey(access_key, f"file:{secret_key_file}") if access_key else None


def masters(session: Session, broker: str | None, cluster: str | None) -> list[str]:
    """The given broker, or the masters of a cluster or of all."""
    if broker is not None:
        return [broker]
    info = session.admin.examine_broker_cluster_info()
    return [
        each.broker_addrs["0"]
        for _, each in sorted(info.broker_addr_table.items())
        if "0" in each.broker_addrs and cluster in (None, each.cluster)
    ]


def add(app: App, function: Callable[..., object]) -> None:
    """Add a command with the name of its function, in both naming styles.

    The options are those of the function, `--namesrv`, those of the credentials, and `--output`.
    """
    hints = get_type_hints(function, include_extras=True)
    row: type[msgspec.Struct] | None = next(iter(get_args(hints.pop("return"))), None)
    _, *own = inspect.signature(function).parameters.values()
    shows = any(each.name == "output" for each in own)
    options = [each for each in own if each.name != "output"]
    options.append(_option("namesrv", _DEFAULT_NAMESRV))
    options += (_option("access_key", ""), _option("secret_key_file", ""))
    options.append(_option("output", "table"))

    @wraps(function)
    def run(
        *,
        namesrv: str = _DEFAULT_NAMESRV,
        access_key: str = "",
        secret_key_file: str = "",
        output: Output = "table",
        **given: object,
    ) -> None:
        if shows:
            given["output"] = output
        with _session(namesrv, _signer(access_key, secret_key_file)) as session:
            result = function(session, **given)
        if isinstance(result, str):
            name = next(str(given[each]) for each in _SUBJECTS if given.get(each))
            show_change(output, result, Change(name, result), Change)
        elif isinstance(result, list) and row is not None:
            show(output, result, row)

    names = {each.name for each in options}
    annotations = hints | {
        "namesrv": NameServers,
        "access_key": AccessKeyName,
        "secret_key_file": SecretFile,
        "output": Output,
    }
    run.__annotations__ = {name: annotations[name] for name in annotations if name in names}
    run.__dict__["__signature__"] = inspect.Signature(options)
    first, *others = function.__name__.split("_")
    app.command(run, name="-".join((first, *others)), alias=first + "".join(map(str.title, others)))


def _option(name: str, default: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)


def time_text(time_ms: int) -> str:
    """A time as text; empty when there is none."""
    if time_ms <= 0:
        return ""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
