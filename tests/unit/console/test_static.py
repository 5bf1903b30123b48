"""Goal: the pages work as they are served: every module exists, nothing comes from elsewhere, and
text is never markup.

Method: the files are searched.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dragoman.console
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
    return re.sub(r"^\s*//.*$", "", text, flags=re.M) if path.suffix == ".js" else text


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_text_never_becomes_markup_or_code(path: Path) -> None:
    assert not _UNSAFE.findall(path.read_text())


def test_first_load_is_small() -> None:
    assert sum(path.stat().st_size for path in FILES) < _BYTES_MAX
