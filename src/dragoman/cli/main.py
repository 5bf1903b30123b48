"""Entry point of the command `dragoman`, and the tree of its commands.

`serve` and `--version` bypass the parser of the other commands, whose import would slow the start
of a node by a tenth of a second. Every other noun is a module with an `app`, imported when one of
its commands runs.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from dragoman import __version__
from dragoman.cli.status import FAILED, OK, USAGE, CommandError, report
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from cyclopts import App

_NOUNS = {
    "produce": "Write records to a topic.",
    "consume": "Read records from a topic.",
    "sql": "Query topics with SQL.",
    "pipeline": "Pipelines on Spark: from topics and captured changes to topics and tables.",
    "topic": "List, describe, create, change and delete topics.",
    "group": "List, describe, delete and reset groups.",
    "cluster": "Show the state of the cluster, and change its nodes and replicas.",
    "cdc": "Capture databases: row changes become records.",
    "user": "Create, list and delete users, and change their credentials.",
    "acl": "Add, remove, list and test access rules.",
    "quota": "Limit what clients use: list, set, remove and test quotas.",
    "security": "Protect the cluster: whether rules are enforced, and the key of its secrets.",
    "rocketmq": "Administer RocketMQ clusters, including those of the original.",
    "bench": "Measure any broker that speaks Kafka's protocol.",
    "tls": "Make certificates for tests.",
    "top": "Show the rates, lag and health of a cluster as they change.",
    "console": "See and steer a node and its cluster in the browser.",
    "doctor": "Check a running node or a data directory, and say what to type.",
    "debug": "Collect what a bug report needs.",
    "context": "Name clusters, with their addresses and logins.",
    "completion": "Print a script that completes commands in a shell.",
    "config": "Show the settings of a node, and change those of running nodes.",
    "log": "Inspect and repair data directories without a node.",
    "import": "Import the data of other brokers.",
}
#: Nouns that are keywords of Python, with the name of their module.
_MODULES = {"import": "data_import"}


_HELP = frozenset(("--help", "-h"))
#: Shows where an unexpected error comes from, like `dragoman serve --log-level debug`.
_LOG_LEVEL = "DRAGOMAN_LOG_LEVEL"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status (see `status.py`)."""
    _open_closed_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        status = _status_of(words)
        # Flushed here, because an error from a closed pipe or a full disk could not be handled at
        # exit.
        sys.stdout.flush()
        return status
    except BrokenPipeError as error:
        # The reader, such as `head`, has closed the pipe; or something else has broken.
        if _has_reader(sys.stdout) and _has_reader(sys.stderr):
            return _unexpected(error, words)
        _discard(sys.stdout)
        return OK
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001
        # An error that no command expects: its class and text, on one line.
        try:
            return _unexpected(error, words)
        except OSError:
            _discard(sys.stderr)
            return FAILED


def _status_of(arguments: list[str]) -> int:
    try:
        return _dispatch(arguments)
    except CommandError as error:
        report(error, is_json=_wants_json(arguments))
        return error.status
    except ConfigError as error:
        wrong = CommandError(str(error), USAGE, code=error.code)
        report(wrong, is_json=_wants_json(arguments))
        return USAGE
    except SystemExit as error:
        # argparse exits this way after --help.
        return error.code if isinstance(error.code, int) else OK


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON, also when they cannot be parsed otherwise."""
    if "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    form = ""
    for index, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option == "--output" or (option == "-o" and arguments[0] == "sql"):
            form = value if equals else "".join(arguments[index + 1 : index + 2])
        elif word == "--json" and arguments[0] == "consume":
            form = "json"
    return form == "json"


def _open_closed_streams() -> None:
    """Python has no object for a standard stream that was closed before the start. The null device
    also takes its descriptor, which a file or a connection would get otherwise.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _has_reader(stream: TextIO) -> bool:
    """False for a pipe whose other end is closed, and where the system does not say."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):
        # It is no pipe.
        return True
    return not poll.poll(0)


def _discard(stream: TextIO) -> None:
    """The rest of the buffer must not be written at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _unexpected(error: Exception, arguments: list[str]) -> int:
    if isinstance(error, OSError):
        # Perhaps of the output itself.
        _discard(sys.stdout)
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        text = error.object[error.start : error.end]
        wrong = CommandError(f"an argument has bytes that are not UTF-8: {text!a}", USAGE)
        report(wrong, is_json=_wants_json(arguments))
        return USAGE
    is_debug = os.environ.get(_LOG_LEVEL) == "debug" or (
        "--log-level debug" in " ".join(arguments).replace("=", " ")
    )
    if is_debug:
        # Imported here: few commands fail in this way.
        import traceback

        traceback.print_exception(error)
    hint = "" if is_debug else f"{_LOG_LEVEL}=debug shows where"
    failure = CommandError(f"{type(error).__name__}: {error}", code="unexpected", hint=hint)
    report(failure, is_json=_wants_json(arguments))
    return FAILED


def _dispatch(arguments: list[str]) -> int:
    match arguments:
        case ["serve", *rest]:
            from dragoman.cli.serve import serve

            return serve(rest)
        case ["--version"]:
            print(f"dragoman {__version__}")
            return OK
        case _:
            return _run_command(arguments)


def _run_command(arguments: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    app = build()
    try:
        status = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise CommandError(str(error), USAGE) from None
    if _HELP.intersection(arguments):
        _print_examples(app, arguments)
    return status if isinstance(status, int) else OK


def _print_examples(app: App, arguments: Sequence[str]) -> None:
    """Print the examples of the command whose help was printed, if it was."""
    from dragoman.cli.examples import examples_of, print_examples

    _, (*_, asked), _ = app.parse_commands(arguments)
    if getattr(asked.default_command, "__name__", "") == "help_print":
        words = [each for each in arguments if each not in _HELP]
        _, (*_, command), _ = app.parse_commands(words)
        if command.default_command is not None:
            print_examples(examples_of(command.default_command))


def build() -> App:
    """The tree of commands."""
    from cyclopts import App

    app = App(
        name="dragoman",
        help="One durable log; every client uses its own protocol.",
        version=f"dragoman {__version__}",
        # Help texts in Markdown would import a Markdown parser.
        help_format="plaintext",
        result_action="return_value",
    )
    # Listed by the help. `_dispatch` runs it without this parser.
    app.command("dragoman.cli.serve:serve", name="serve", help="Run a node.", help_flags=[])
    for noun, text in _NOUNS.items():
        app.command(f"dragoman.cli.{_MODULES.get(noun, noun)}:app", name=noun, help=text)
    return app


if __name__ == "__main__":
    sys.exit(main())
