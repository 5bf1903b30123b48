"""Builds the site and checks it: each page is in the contents, and each link leads somewhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from string import Template
from urllib.parse import unquote

from website.contents import Entry, Section, read_contents, reading_order, unlisted
from website.document import Document, DocumentError, read
from website.links import broken_links, external_links, linked_files
from website.render import html_of, relative, style_of_code
from website.repository import (
    HOME,
    ROOT,
    address,
    is_external,
    page_paths,
    picture_address,
    split_target,
)
from website.source import source_html

_THEME = Path(__file__).parent / "theme"
_TEMPLATE = Template((_THEME / "page.html").read_text())
#: Deepest headings that a page's own table of contents shows, and from how many on it has one.
_OUTLINE_LEVEL_MAX, _OUTLINE_HEADINGS_MIN = 3, 3


@dataclass(frozen=True)
class Site:
    """What was built."""

    pages: int
    sources: int
    size_bytes: int
    external: list[str]


def build(into: Path, root: Path = ROOT) -> Site:
    """Build the site anew. Raises `DocumentError` with every fault of links and contents."""
    documents = [read(root, path) for path in page_paths(root)]
    faults = [fault for each in documents for fault in broken_links(root, each)]
    faults += [
        f"{path}: docs/README.md does not list it" for path in unlisted(root, page_paths(root))
    ]
    if faults:
        raise DocumentError("\n".join(faults))
    if into.exists():
        shutil.rmtree(into)
    sections = read_contents(root)
    for document in documents:
        _write(into, address(document.path), _page(document, sections))
    sources = linked_files(documents)
    for path in sources:
        place = address(path)
        _write(into, place, _filled(place, str(path), source_html(root, path), sections, path))
    for picture in {
        split_target(each.path, name)[0] for each in documents for name in each.pictures
    }:
        target = into / picture_address(picture)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / picture, target)
    _write(into, "style.css", (_THEME / "style.css").read_text() + style_of_code())
    for name in ("site.js", "icon.svg"):
        shutil.copyfile(_THEME / name, into / name)
    _write(into, "search.js", _search_index(documents))
    if faults := list(broken_addresses(into)):
        raise DocumentError("\n".join(faults))
    files = [each for each in into.rglob("*") if each.is_file()]
    return Site(
        pages=len(documents),
        sources=len(sources),
        size_bytes=sum(each.stat().st_size for each in files),
        external=external_links(documents),
    )


def _write(into: Path, place: str, text: str) -> None:
    path = into / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# ---- pages


def _page(document: Document, sections: tuple[Section, ...]) -> str:
    return _filled(
        address(document.path),
        document.title,
        html_of(document),
        sections,
        document.path,
        outline=_outline(document),
        turn=_turn(document.path, sections),
    )


def _filled(
    place: str,
    title: str,
    content: str,
    sections: tuple[Section, ...],
    path: PurePosixPath,
    *,
    outline: str = "",
    turn: str = "",
) -> str:
    return _TEMPLATE.substitute(
        title=escape(title if path == HOME else f"{title} · Dragoman"),
        root=escape(relative(".", place) + "/"),
        navigation=_navigation(place, sections),
        content=content,
        outline=outline,
        turn=turn,
        path=escape(str(path)),
    )


def _navigation(place: str, sections: tuple[Section, ...]) -> str:
    parts: list[str] = []
    for section in sections:
        places = {address(each.path) for top in section.entries for each in (top, *top.below)}
        is_open = " open" if place in places or (place == "index.html" and not parts) else ""
        items = "".join(_item(each, place) for each in section.entries)
        title = escape(section.title)
        parts.append(f"<details{is_open}><summary>{title}</summary><ul>{items}</ul></details>\n")
    return "".join(parts)


def _item(entry: Entry, place: str) -> str:
    """A page, with those below it while one of them is read."""
    target = address(entry.path)
    below = ""
    if place == target or place in {address(each.path) for each in entry.below}:
        below = "".join(_item(each, place) for each in entry.below)
    nested = f"<ul>{below}</ul>" if below else ""
    current = ' aria-current="page"' if target == place else ""
    link = escape(relative(target, place))
    return f'<li><a href="{link}"{current}>{escape(entry.title)}</a>{nested}</li>'


def _outline(document: Document) -> str:
    shown = [each for each in document.headings[1:] if each.level <= _OUTLINE_LEVEL_MAX]
    if len(shown) < _OUTLINE_HEADINGS_MIN:
        return ""
    links = ((each.level, escape(each.anchor), escape(each.text)) for each in shown)
    items = "".join(
        f'<li class="level-{level}"><a href="#{anchor}">{text}</a></li>'
        for level, anchor, text in links
    )
    return (
        f'<nav class="outline" aria-label="On this page"><p>On this page</p><ul>{items}</ul></nav>'
    )


def _turn(path: PurePosixPath, sections: tuple[Section, ...]) -> str:
    """Links to the page before and to the one after."""
    order = reading_order(sections)
    paths = [each.path for each in order]
    if path not in paths:
        return ""
    index, place = paths.index(path), address(path)
    parts: list[str] = []
    for name, neighbour in (("before", index - 1), ("after", index + 1)):
        if 0 <= neighbour < len(order):
            link = escape(relative(address(order[neighbour].path), place))
            title = escape(order[neighbour].title)
            parts.append(f'<a class="{name}" href="{link}">{title}</a>')
    return "".join(parts)


# ---- search


def _search_index(documents: list[Document]) -> str:
    """A script, because pages opened from files may load scripts only."""
    rows = [
        [
            address(document.path) + ("" if index == 0 else f"#{passage.heading.anchor}"),
            document.title,
            "" if index == 0 else passage.heading.text,
            " ".join(passage.text.split()),
        ]
        for document in documents
        for index, passage in enumerate(document.passages())
    ]
    return f"searchIndex = {json.dumps(rows, ensure_ascii=False, separators=(',', ':'))};\n"


# ---- check


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        for name in ("href", "src"):
            if name in values:
                (self.targets if tag == "a" else self.loaded).append(values[name])


def broken_addresses(built: Path) -> Iterator[str]:
    """A line for each link of the built pages that leads nowhere, and for each request to another
    site that showing a page would make.
    """
    pages: dict[Path, _Addresses] = {}
    for path in sorted(built.rglob("*.html")):
        pages[path] = _Addresses()
        pages[path].feed(path.read_text())
    for path, found in pages.items():
        name = path.relative_to(built)
        yield from (f"{name}: loads {each}" for each in found.loaded if is_external(each))
        for target in (*found.targets, *found.loaded):
            if is_external(target):
                continue
            file, _, anchor = target.partition("#")
            reached = (path.parent / unquote(file)).resolve() if file else path
            if not reached.is_file():
                yield f"{name}: {target}: there is no such file"
            elif anchor and anchor not in pages[reached].anchors:
                yield f"{name}: {target}: there is no such heading"
