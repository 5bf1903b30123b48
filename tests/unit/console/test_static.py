"""Goal: the pages work as they are served: every module exists with the names that others take from
it, nothing is left over, nothing comes from elsewhere, text is never markup, and the commands that
pages name exist.

Method: the files are searched.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dragoman.console
from dragoman.cli.tree import commands
from dragoman.console.guard import POLICY

STATIC = Path(dragoman.console.__file__).parent / "static"
SCRIPTS = sorted(STATIC.rglob("*.js"))
FILES = sorted(path for path in STATIC.rglob("*.*") if path.is_file())
#: What makes markup, or code, of text.
_UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|setHTMLUnsafe"
    r"|createContextualFragment|\beval\b|new Function|setTimeout\(\s*[\"'`]|javascript:"
)
_IMPORT = re.compile(
    r"""^\s*(?:import|export)\b[^;()=]*?["']([^"']+)["']|\bimport\(\s*["'`]([^"'`]+)""", re.M
)
_TEMPLATE = "pages/${"
_BYTES_MAX = 1_500_000
#: The name space of drawings is never requested.
_NAME_SPACE = "http://www.w3.org/2000/svg"


def named(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


def test_files_are_there() -> None:
    assert {"index.html", "app.js", "style.css"} <= set(map(named, FILES))


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_every_imported_module_exists(path: Path) -> None:
    for wanted in map("".join, _IMPORT.findall(path.read_text())):
        if _TEMPLATE in wanted:
            # The frame's own table of pages, below.
            assert path.name == "app.js"
            continue
        assert wanted.startswith("."), f"{wanted} is not a file of the console"
        assert (path.parent / wanted).resolve().is_file(), wanted


def test_every_page_of_the_frame_exists() -> None:
    text = (STATIC / "app.js").read_text()
    pages = re.findall(r'\["([\w/]+\.js)", ', text)
    assert len(pages) >= 4
    for each in pages:
        assert (STATIC / "pages" / each).is_file(), each


def test_what_the_page_refers_to_exists() -> None:
    text = (STATIC / "index.html").read_text()
    for each in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert (STATIC.parent / each).is_file(), each
    # The policy forbids what is in line.
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style| style=| on\w+=", text)
    assert "'unsafe" not in POLICY


@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text().replace(_NAME_SPACE, "")
    assert not re.search(r"""["'`(=\s](?:https?:)?//[\w$]""", _without_comments(text, path))


def _without_comments(text: str, path: Path) -> str:
    return re.sub(r"^\s*//.*$|/\*\*.*?\*/", "", text, flags=re.M) if path.suffix == ".js" else text


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_text_never_becomes_markup_or_code(path: Path) -> None:
    assert not _UNSAFE.findall(path.read_text())


def test_first_load_is_small() -> None:
    assert sum(path.stat().st_size for path in FILES) < _BYTES_MAX


_NAMES = re.compile(r'import \{ ([^}]+) \} from "([^"]+)"')
_EXPORT = re.compile(r"^export (?:async )?(?:function\*?|const|class) (\w+)", re.M)
#: What the frame calls of each page.
_OF_A_PAGE = "show"


def test_exactly_what_is_imported_is_exported() -> None:
    imported = set()
    for path in SCRIPTS:
        text = path.read_text()
        for names, module in _NAMES.findall(text):
            for name in names.split(", "):
                imported.add(((path.parent / module).resolve(), name))
                assert len(re.findall(rf"\b{re.escape(name)}\b", text)) > 1, f"{path}: {name}"
    exported = {(path, name) for path in SCRIPTS for name in _EXPORT.findall(path.read_text())}
    assert imported - exported == set()
    left_over = {(path.name, name) for path, name in exported - imported}
    assert {each for each in left_over if each[1] != _OF_A_PAGE} == set()


def test_every_style_is_used() -> None:
    style = re.sub(r"\{[^{}]*\}", " ", (STATIC / "style.css").read_text())
    scripts = "".join(path.read_text() for path in SCRIPTS)
    # Colours of lines are numbered.
    classes = {each for each in re.findall(r"\.([a-z][\w-]*)", style) if not each[-1].isdigit()}
    assert {each for each in classes if not re.search(rf"[\"'` ]{each}[\"'` ]", scripts)} == set()


#: Commands as scripts write them: a call that adds the server, and a text.
_CALL = re.compile(r'\bcommand\(state, "([^"]+)"((?:(?!command\()[^;])*)')
_TEXT = re.compile(r"[`\"]dragoman ([a-z -]+?)(?= \$\{| --?\w|[`\"])([^`\"]*)")
_OPTION = re.compile(r"[\"` ](--?[a-z][a-z-]*)(?=[\"` ])")


def test_commands_of_pages_exist_with_their_options() -> None:
    known = {each.path: each.app for each in commands()}
    found = set()
    for path in SCRIPTS:
        text = _without_comments(path.read_text(), path)
        for name, words in _CALL.findall(text) + _TEXT.findall(text):
            where = f"{path.name}: dragoman {name}"
            assert name in known, where
            options = {
                each for one in known[name].assemble_argument_collection() for each in one.names
            }
            assert set(_OPTION.findall(words)) <= options, where
            found.add(name)
    assert len(found) > 30
