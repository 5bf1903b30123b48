"""Goal: documents that repeat the code agree with it, and links lead somewhere.

Method: tables are made again and compared, links are followed to files and headings of this tree.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest
from website.contents import unlisted
from website.document import read
from website.links import broken_links
from website.repository import page_paths

from dragoman.config.listeners import LISTENER_NAMES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dragoman"
PAGES = page_paths()
DECISIONS = sorted(ROOT.glob("docs/decisions/0*.md"))


def _program(name: str) -> ModuleType:
    """One of those that write documents."""
    specification = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _tables() -> ModuleType:
    return _program("tables")


# ---- tables


def test_table_of_limits_is_that_of_the_code() -> None:
    tables = _tables()
    page = tables.LIMITS_PAGE.read_text()
    assert page == tables.with_tables(page, tables.LIMITS_TABLES), "run `make docs`"


def test_table_of_figures_is_that_of_the_code() -> None:
    tables = _tables()
    page = tables.HISTORY_PAGE.read_text()
    assert page == tables.with_tables(page, tables.HISTORY_TABLES), "run `make docs`"


def test_bounds_of_the_history_are_those_of_the_code() -> None:
    from dragoman.telemetry.history.figures import BUDGETS

    page = _tables().HISTORY_PAGE.read_text()
    for bound in BUDGETS.values():
        assert f"| {bound:,}" in page
    assert f"These {sum(BUDGETS.values()):,} series" in page


def test_limits_table_has_every_limit() -> None:
    from dragoman import limits

    table = _tables().limits_table()
    names = [name for name in vars(limits) if name.isupper()]
    assert len(names) > 50
    for name in names:
        assert table.count(f"| `{name}` |") == 1, name


def test_classes_of_the_test_kit_are_those_of_the_code() -> None:
    program = _program("testing_kit")
    page = program.PAGE.read_text()
    assert page == program.with_classes(page), "run `make docs`"
    for row in page.splitlines():
        assert not re.fullmatch(r"\| `.+` \|\s+\|", row), f"{row} has no docstring"


def test_table_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place for the table"):
        _tables().with_tables("# Nothing here\n", _tables().LIMITS_TABLES)


# ---- what packages and modules say about themselves


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def test_every_module_with_code_says_what_it_is() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.read_text().strip():
            assert _docstring(path), f"{path} has no docstring"


def test_every_package_says_what_is_in_it() -> None:
    """In more than a title: there is no other map of the modules."""
    for path in SOURCE.rglob("__init__.py"):
        assert len(_docstring(path).splitlines()) > 2, path


def test_modules_that_a_package_names_exist() -> None:
    """In its list: `- `name`: …; `name`: …` or `- `name` has …`."""
    named = 0
    for path in SOURCE.rglob("__init__.py"):
        for item in re.findall(r"^- .+(?:\n  .+)*", _docstring(path), re.MULTILINE):
            (head,) = re.findall(r"^- ((?:`\w+`(?:, )?)*)", item)
            for name in re.findall(r"`(\w+)`", head) + re.findall(r"`(\w+)`:", item):
                named += 1
                module = path.parent / f"{name}.py"
                assert module.exists() or (path.parent / name).is_dir(), f"{path}: {name}"
    assert named > 50


# ---- the limits themselves


def test_no_limit_is_defined_twice() -> None:
    """A merge can leave two definitions, of which the later wins without a word."""
    source = (ROOT / "src/dragoman/limits.py").read_text()
    names = re.findall(r"^([A-Z][A-Z0-9_]*) =", source, re.MULTILINE)
    assert sorted(names) == sorted(set(names))


# ---- links


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_pictures_lead_somewhere(page: PurePosixPath) -> None:
    assert list(broken_links(ROOT, read(ROOT, page))) == []


def test_every_page_is_in_the_table_of_contents() -> None:
    assert unlisted(ROOT, PAGES) == []


_MENTION = re.compile(r"\bdocs/[\w/.-]+\.(?:md|svg)\b(?:#[\w-]+)?|\bdocs/decisions/\d{4}\b")


def test_pages_that_code_and_deployment_name_exist() -> None:
    """In comments and messages, which are no links."""
    named = 0
    for folder in ("src", "deploy", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if not path.is_file() or path.suffix not in (".py", ".yml", ".yaml", ".toml", ".json"):
                continue
            for mention in _MENTION.findall(path.read_text()):
                named += 1
                name, _, anchor = mention.partition("#")
                if name[-1].isdigit():
                    assert list(ROOT.glob(f"{name}-*.md")), f"{path} names {mention}"
                    continue
                assert (ROOT / name).exists(), f"{path} names {mention}"
                if anchor:
                    anchors = read(ROOT, PurePosixPath(name)).anchors
                    assert anchor in anchors, f"{path} names {mention}"
    assert named > 20


def test_pages_were_found() -> None:
    assert len(PAGES) > 20


# ---- decisions


@pytest.mark.parametrize("index", ["ARCHITECTURE.md", "docs/decisions/README.md"])
def test_every_decision_is_in_the_index_with_its_title(index: str) -> None:
    text = (ROOT / index).read_text()
    for path in DECISIONS:
        number, _, title = path.read_text().partition("\n")[0].removeprefix("# ").partition(". ")
        assert path.name.startswith(f"{int(number):04d}-")
        assert f"{path.name}) | {title} |" in text


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decision_is_one_page_with_the_usual_parts(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    for part in ("Status: ", "## Context", "## Decision", "## Consequences"):
        assert part in text


def test_every_dependency_has_a_decision() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = "\n".join(path.read_text().lower() for path in DECISIONS)
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=!~\[]", requirement)[0]
        assert name.lower() in texts, f"no decision mentions {name}"


# ---- ARCHITECTURE


def test_architecture_is_read_in_one_sitting() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= 15_000


def test_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert len(named) > 40
    (handlers,) = re.findall(r"`handlers/` stands for `([\w/]+/)`", text)
    for name in named:
        path = SOURCE / re.sub(r"^handlers/", handlers, name)
        assert path.exists(), name


def test_picture_of_the_layers_is_the_contract() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    picture = text.partition("## Layers\n\n```\n")[2].partition("```")[0]
    rows = [re.split(r"  +", line.strip())[0].split(" · ") for line in picture.splitlines()]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [each["layers"] for each in contracts if each["id"] == "layers"]
    wanted = [row.split(" | ") for row in layers]
    # The foundations share the last line.
    foundations = [name for row in wanted[len(rows) - 1 :] for name in row]
    assert rows == [*wanted[: len(rows) - 1], foundations]


# ---- the table of protocols, and the picture


def test_protocol_table_has_the_ports_of_the_listeners() -> None:
    text = (ROOT / "docs/reference/compatibility.md").read_text()
    ports = {row.name: row.port for row in LISTENER_NAMES}
    for protocol, listeners in {
        "Kafka": ("kafka",),
        "RocketMQ": ("rocketmq", "rocketmq-broker"),
        "Cursus": ("cursus",),
        "minibroker": ("minibroker",),
        "mlog": ("mlog",),
    }.items():
        expected = ", ".join(str(ports[name]) for name in listeners)
        assert f"| {protocol} | {expected} |" in text


def test_protocol_table_names_the_versions_that_are_tested() -> None:
    text = (ROOT / "docs/reference/compatibility.md").read_text()
    constraints = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    for client in ("confluent-kafka", "kafka-python", "aiokafka"):
        short = ".".join(constraints[client].split(".")[:2])
        assert f"{client} {short}" in text


def test_picture_of_the_readme_is_what_its_program_draws() -> None:
    diagram = _program("diagram")
    assert diagram.PICTURE.read_text() == diagram.picture(), "run `make docs`"
