"""The table of contents, from the sections and lists of `docs/README.md`.

An item stands for the page of its first link. A page `README.md` of a folder has the pages of that
folder that it links to below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

from markdown_it.token import Token

from website.document import Document, plain_text, read
from website.repository import CONTENTS, HOME, split_target


@dataclass(frozen=True)
class Entry:
    title: str
    path: PurePosixPath
    below: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Section:
    title: str
    entries: tuple[Entry, ...]


def read_contents(root: Path) -> tuple[Section, ...]:
    document = read(root, CONTENTS)
    sections: list[tuple[str, list[Entry]]] = []
    is_first = False
    for before, token in pairwise(document.tokens):
        if before.type == "heading_open" and before.tag == "h2":
            sections.append((plain_text(token), []))
        elif before.type == "list_item_open":
            is_first = True
        elif token.type == "inline" and is_first and sections:
            is_first = False
            if entry := _entry(root, document, token):
                sections[-1][1].append(entry)
    return tuple(Section(title, tuple(entries)) for title, entries in sections if entries)


def _entry(root: Path, document: Document, item: Token) -> Entry | None:
    children = item.children or []
    for index, token in enumerate(children):
        if token.type == "link_open":
            path, _ = split_target(document.path, str(token.attrs["href"]))
            if path.suffix != ".md":
                return None
            return Entry(children[index + 1].content, path, _below(root, path))
    return None


def _below(root: Path, path: PurePosixPath) -> tuple[Entry, ...]:
    if path.name != "README.md":
        return ()
    targets = [split_target(path, target)[0] for target in read(root, path).links]
    pages = dict.fromkeys(
        each for each in targets if each.suffix == ".md" and each.parent == path.parent
    )
    return tuple(Entry(read(root, each).title, each) for each in pages if each != path)


def reading_order(sections: tuple[Section, ...]) -> list[Entry]:
    """Every page of the contents once, from first to last."""
    found: dict[PurePosixPath, Entry] = {}
    for section in sections:
        for entry in section.entries:
            for each in (entry, *entry.below):
                found.setdefault(each.path, each)
    return list(found.values())


def unlisted(root: Path, pages: list[PurePosixPath]) -> list[PurePosixPath]:
    """Pages that no reader of the contents finds."""
    listed = {entry.path for entry in reading_order(read_contents(root))}
    return [path for path in pages if path not in listed and path not in (CONTENTS, HOME)]
