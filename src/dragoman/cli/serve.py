"""`dragoman serve`: parses the options of a node, loads its settings, and runs the node.

`config show` takes the same options. argparse parses them, because importing the other commands'
parser would slow the start of a node.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from dragoman import limits
from dragoman.cli.status import USAGE, CommandError
from dragoman.config.layers import (
    ENVIRONMENT_FILE,
    Assignment,
    ConfigFile,
    Configuration,
    Flags,
    load,
)
from dragoman.config.listeners import listener_names, split_assignment
from dragoman.config.settings import NODE_KEYS, Settings
from dragoman.errors import ConfigError, DirectoryInUseError, FormatError
from dragoman.operating_system.platforms import require_unix

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


def _words(key: str) -> str:
    return ", ".join(NODE_KEYS[key].choices)


#: Options that set one key.
_KEY_OPTIONS = (
    ("--data", "data", "DIR", "data directory of the node"),
    ("--durability", "durability", "MODE", f"when a write is acknowledged: {_words('durability')}"),
    ("--node-id", "node.id", "N", "number of this node in its cluster"),
    ("--cluster", "cluster", "N@HOST:PORT,…", "nodes of the cluster, including this one"),
    ("--etcd", "metadata.etcd.endpoints", "URL,…", "endpoints of an etcd to keep the metadata in"),
    ("--log-format", "log.format", "FORMAT", f"format of log lines: {_words('log.format')}"),
    ("--log-level", "log.level", "LEVEL", f"lowest level of log lines: {_words('log.level')}"),
)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # Without a width, argparse would import `shutil`, which costs every start 2 ms and 0.6 MB.
    try:
        columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size().columns
    except (ValueError, OSError):
        columns = 80
    return argparse.HelpFormatter(prog, width=columns - 2)


class OneLineParser(argparse.ArgumentParser):
    """Reports errors like the other commands: one line on stderr, exit status 2."""

    def __init__(self, *, command: Callable[..., object], prog: str, description: str) -> None:
        super().__init__(
            prog=prog, description=description, allow_abbrev=False, formatter_class=_formatter
        )
        self._command = command

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        super().print_help(file)
        # Imported here: the start of a node does without.
        from dragoman.cli.examples import examples_of, print_examples

        print_examples(examples_of(self._command))

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)", USAGE)


def node_parser(
    name: str, description: str, command: Callable[..., object]
) -> argparse.ArgumentParser:
    parser = OneLineParser(command=command, prog=f"dragoman {name}", description=description)
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings")
    for option, key, metavar, text in _KEY_OPTIONS:
        parser.add_argument(option, action=_Assign, const=key, metavar=metavar, help=text)
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="NAME=HOST:PORT|off",
        help="address of a listener, or off. Once an address is given, only named listeners open"
        f" ({', '.join(listener_names())})",
    )
    parser.add_argument(
        "--advertise",
        action="append",
        default=[],
        metavar="NAME=HOST:PORT",
        help="address of a listener that is advertised to clients",
    )
    parser.add_argument(
        "--insecure",
        action=_Assign,
        nargs=0,
        const="insecure",
        help="open listeners without a login to other machines",
    )
    parser.add_argument(
        "--set",
        action=_Assign,
        metavar="KEY=VALUE",
        help="value of any key in docs/reference/configuration.md",
    )
    parser.set_defaults(assignments=[])
    return parser


class _Assign(argparse.Action):
    """Collects options that set a key in one list, so that the last one for a key wins."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        assert option_string is not None
        # A flag without a value says yes.
        key, text = self.const, values if isinstance(values, str) else "true"
        if key is None:
            key, text = split_assignment(option_string, text)
        assigned = [Assignment(option_string, key, text)]
        if option_string == "--etcd":
            assigned.append(Assignment(option_string, "metadata.quorum", "etcd"))
        namespace.assignments = [*namespace.assignments, *assigned]


def configuration(options: argparse.Namespace) -> Configuration:
    """The settings from the file, the environment and the options. Raises `ConfigError`."""
    environment = os.environ
    path = _config_path(options)
    flags = Flags(
        assignments=tuple(options.assignments),
        listen=tuple(options.listen),
        advertise=tuple(options.advertise),
    )
    return load(
        file=read_configuration(path) if path else None, environment=environment, flags=flags
    )


def _config_path(options: argparse.Namespace) -> str:
    return options.config or os.environ.get(ENVIRONMENT_FILE, "")


def read_configuration(path: str) -> ConfigFile:
    try:
        with open(path, "rb") as file:
            data = file.read(limits.CONFIG_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", USAGE) from None
    if len(data) > limits.CONFIG_FILE_BYTES_MAX:
        bound = limits.CONFIG_FILE_BYTES_MAX
        raise CommandError(f"{path} is larger than {bound} bytes: not a configuration file", USAGE)
    try:
        return ConfigFile(path, data.decode())
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 at byte {error.start}", USAGE) from None


DESCRIPTION = "Run a node until SIGTERM or SIGINT stops it. A second signal stops it at once."


def serve(arguments: Sequence[str], /) -> int:
    """Run a node and return its exit status.

    Examples
    --------
    dragoman serve --data orders-data --listen kafka=127.0.0.1:9092 --listen http=127.0.0.1:8080
    """
    options = node_parser("serve", DESCRIPTION, serve).parse_args(arguments)
    if not __debug__:
        # Assertions protect the log from errors of this program.
        raise CommandError("refusing to run without assertions: leave out python -O", USAGE)
    settings = configuration(options).settings
    try:
        return _run(settings, _config_path(options))
    except (ConfigError, DirectoryInUseError, FormatError) as error:
        if settings.log_format == "json":
            # What reads the log expects nothing else on stderr.
            logging.getLogger("dragoman.process").critical(
                "the node cannot start", extra={"error": str(error), "status": USAGE}
            )
            return USAGE
        raise CommandError(str(error), USAGE, code=error.code) from None


def _run(settings: Settings, config_path: str) -> int:
    require_unix("a node")
    # Imported after the settings are checked, so that an error in them is reported at once.
    from dragoman.telemetry.logs import configure, log_uncaught

    configure(settings.log_format, settings.log_level, sys.stderr)
    log_uncaught()
    threading.excepthook = _ended_thread
    # Imports make many objects and no garbage.
    gc.disable()
    from dragoman.data_directory import refuse_other_directory
    from dragoman.process import run

    refuse_other_directory(settings.data, filter(None, (config_path, *settings.files())))
    gc.freeze()
    gc.enable()
    return run(settings, _announce)


def _ended_thread(found: threading.ExceptHookArgs) -> None:
    from dragoman.telemetry.logs import uncaught_in_thread

    error = found.exc_value or found.exc_type()
    uncaught_in_thread(found.thread.name if found.thread is not None else "", error)


def _announce(line: str) -> None:
    # A node serves its clients, whether or not its output is read.
    with suppress(OSError):
        print(line, flush=True)
