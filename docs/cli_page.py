"""Writes the lists of commands and of their options in docs/reference/cli.md.

    python docs/cli_page.py            rewrite them (`make docs`)

They come from the tree of commands: docstrings, options with their defaults, and examples.
`tests/unit/cli/test_cli_reference.py` compares.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from cyclopts.argument import Argument

from dragoman.cli.client_security import BrokerTarget
from dragoman.cli.contexts import VARIABLES
from dragoman.cli.serve import DESCRIPTION, node_parser
from dragoman.cli.target import Target
from dragoman.cli.tree import Command, commands

PAGE = Path(__file__).parent / "reference" / "cli.md"
_BEGIN, _END = "<!-- {}: written by docs/cli_page.py -->", "<!-- end {} -->"
#: Commands whose options argparse parses.
_OF_NODES = ("serve", "config show")
#: Sections of options that many commands share, with the type that declares them.
_SHARED = {Target: "Options of commands over HTTP", BrokerTarget: "Options of commands on a broker"}
_ROCKETMQ = "Options of rocketmq commands"
_ROCKETMQ_NAMES = ("--namesrv", "--access-key", "--secret-key-file")
_SECTIONS = re.compile(r"\n(Parameters|Examples)\n-+\n.*", re.DOTALL)


def index() -> str:
    rows = ["| command | does |", "|---|---|"]
    for each in commands():
        title = f"dragoman {each.path}"
        rows.append(f"| [`{title}`](#{_anchor(title)}) | {_cell(_lower(_summary(each)))} |")
    return "\n".join(rows)


def options() -> str:
    """A section for each command, after those of shared options."""
    found = commands()
    lines: list[str] = []
    for kind, title in _SHARED.items():
        example = next(each for each in found if kind in _shared_kinds(each))
        shared = [each for each in _arguments(example) if _is_field(each, kind)]
        lines += [f"### {title}", "", *_table(shared, with_variables=True), ""]
    example = next(each for each in found if each.path.startswith("rocketmq "))
    shared = [each for each in _arguments(example) if each.names[0] in _ROCKETMQ_NAMES]
    lines += [f"### {_ROCKETMQ}", "", *_table(shared, with_variables=True), ""]
    for command in found:
        lines += [*_section(command), ""]
    return "\n".join(lines).rstrip()


def _section(command: Command) -> Iterator[str]:
    title = f"dragoman {command.path}"
    yield f"### {title}"
    yield ""
    yield _description(command)
    yield ""
    yield f"`{_synopsis(command)}`"
    yield ""
    yield "```"
    yield from command.examples
    yield "```"
    if command.aliases:
        yield ""
        yield f"Also {', '.join(f'`{each}`' for each in command.aliases)}."
    if command.path in _OF_NODES:
        yield ""
        yield from _node_table(command)
        return
    arguments = _arguments(command)
    kinds = _shared_kinds(command)
    is_rocketmq = command.path.startswith("rocketmq ")
    own = [
        each
        for each in arguments
        if not any(_is_field(each, kind) for kind in kinds)
        and each.names[0] != "--output"
        and not (is_rocketmq and each.names[0] in _ROCKETMQ_NAMES)
    ]
    if own:
        yield ""
        yield from _table(own)
    titles = [_SHARED[kind] for kind in kinds] + ([_ROCKETMQ] if is_rocketmq else [])
    also = [f"[{each[0].lower()}{each[1:]}](#{_anchor(each)})" for each in titles]
    output = next((each for each in arguments if each.names[0] == "--output"), None)
    if output is not None:
        also.append(f"`--output` [{'|'.join(output.get_choices() or ())}](#forms-of-data)")
    if also:
        yield ""
        yield f"{'And' if own else 'Takes'} {', '.join(also)}."


def _synopsis(command: Command) -> str:
    words = ["dragoman", *command.path.split()]
    if command.path not in _OF_NODES:
        positional = [each for each in _arguments(command) if not each.names[0].startswith("-")]
        words += [_names(each).strip("`") for each in positional]
    return " ".join([*words, "[OPTIONS]"])


def _arguments(command: Command) -> list[Argument]:
    found = command.app.assemble_argument_collection(parse_docstring=True)
    return [each for each in found if each.names and each.names != ("*",)]


def _shared_kinds(command: Command) -> list[type]:
    """Types of shared options that the command declares, or extends."""
    hints = [each.hint for each in command.app.assemble_argument_collection()]
    types = [each for each in hints if isinstance(each, type)]
    return [kind for kind in _SHARED if any(issubclass(each, kind) for each in types)]


def _is_field(argument: Argument, kind: type) -> bool:
    field = argument.keys[0] if argument.keys else ""
    is_renamed = argument.names[0] != "--" + field.replace("_", "-")
    return field in kind.__dataclass_fields__ and not is_renamed


def _table(arguments: Iterable[Argument], *, with_variables: bool = False) -> Iterator[str]:
    variable = " or from the environment |" if with_variables else ""
    yield f"| argument or option | default |{variable} meaning |"
    yield f"|---|---|{'---|' if with_variables else ''}---|"
    for each in arguments:
        cells = [_names(each), _default(each)]
        if with_variables:
            cells.append(_variable(each))
        text = " ".join((each.parameter.help or "").split())
        yield f"| {' | '.join([*cells, _cell(text)])} |"


def _names(argument: Argument) -> str:
    if not argument.names[0].startswith("-"):
        many = "..." if argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL else ""
        name = f"{argument.names[0]}{many}"
        return f"`{name}`" if argument.required or many else f"`[{name}]`"
    first, *others = argument.names
    value = _value(argument)
    return ", ".join([f"`{first}{value}`", *(f"`{each}`" for each in others)])


def _value(argument: Argument) -> str:
    if choices := argument.get_choices():
        return " " + r"\|".join(choices)
    text = str(argument.hint)
    if argument.hint is bool:
        return ""
    words = ((int, " N"), (float, " N"))
    for kind, word in words:
        if argument.hint is kind or f"{kind.__name__}" in re.findall(r"[a-z]+", text):
            return word
    name = argument.names[0].lstrip("-").rpartition("-")[2].upper()
    return f" {name}"


def _default(argument: Argument) -> str:
    value = argument.field_info.default
    if argument.required:
        return "required"
    if value in (inspect.Parameter.empty, None, "", (), False):
        return ""
    if value is True:
        return "yes"
    return f"`{value}`"


def _variable(argument: Argument) -> str:
    names = list(argument.parameter.env_var or ())
    field = argument.keys[0] if argument.keys else ""
    if field in VARIABLES or field == "context":
        names.append(f"DRAGOMAN_{field.upper()}")
    return ", ".join(f"`{each}`" for each in names)


def _node_table(command: Command) -> Iterator[str]:
    yield "| option | meaning |"
    yield "|---|---|"
    for action in node_parser(command.path, DESCRIPTION, command.function)._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        metavar = f" {action.metavar}" if action.metavar else ""
        yield f"| `{_cell(action.option_strings[0] + metavar)}` | {_cell(action.help or '')} |"
    if command.path == "config show":
        yield "| `--origin` | show the origin of each value |"
        yield r"| `--output table\|json\|csv` | `table` is TOML that `--config` reads |"


def _text(function: Callable[..., object]) -> str:
    """The docstring without its sections."""
    return _SECTIONS.sub("", inspect.getdoc(function) or "").strip()


def _summary(command: Command) -> str:
    if command.path == "serve":
        return "run a node"
    first = " ".join(_text(command.function).partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")


def _description(command: Command) -> str:
    if command.path == "serve":
        return DESCRIPTION
    paragraphs = _text(command.function).split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


LISTS: dict[str, Callable[[], str]] = {"commands": index, "options": options}


def with_lists(page: str) -> str:
    """The page with its lists as they should be. Raises `ValueError` when one has no place."""
    for name, make in LISTS.items():
        before, begin, rest = page.partition(_BEGIN.format(name))
        _, end, after = rest.partition(_END.format(name))
        if not begin or not end:
            raise ValueError(f"no place for the list {name!r}")
        page = f"{before}{begin}\n{make()}\n{end}{after}"
    return page


def main(arguments: Sequence[str]) -> int:
    assert not arguments
    PAGE.write_text(with_lists(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
