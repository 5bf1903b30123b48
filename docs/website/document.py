"""A page as its Markdown says: headings and their anchors, links, pictures, text to search.

Markdown is CommonMark with tables, as forges show it. Of HTML only comments may be in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
_COMMENT = re.compile(r"\s*<!--.*-->\s*", re.DOTALL)


class DocumentError(Exception):
    """A page has something that the site cannot show."""


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Passage:
    """What lies between two headings, as words to search; the first has the page's title."""

    heading: Heading
    text: str


@dataclass(frozen=True)
class Document:
    #: From the root of the repository.
    path: PurePosixPath
    tokens: tuple[Token, ...]
    headings: tuple[Heading, ...]
    #: Targets as they are written.
    links: tuple[str, ...]
    pictures: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.headings[0].text

    @property
    def anchors(self) -> frozenset[str]:
        return frozenset(each.anchor for each in self.headings)

    def passages(self) -> Iterator[Passage]:
        rest = iter(self.headings)
        heading, words = next(rest), list[str]()
        # The title comes first.
        for before, token in pairwise(self.tokens[1:]):
            if token.type == "heading_open":
                yield Passage(heading, " ".join(words))
                heading, words = next(rest), []
            elif token.type == "inline" and before.type != "heading_open":
                words.append(plain_text(token))
            elif token.type in ("fence", "code_block"):
                words.append(token.content)
        yield Passage(heading, " ".join(words))


def plain_text(inline: Token) -> str:
    kept = (each for each in inline.children or [] if each.type != "html_inline")
    return "".join(" " if each.type == "softbreak" else each.content for each in kept)


@cache
def read(root: Path, path: PurePosixPath) -> Document:
    return parse(path, (root / path).read_text())


def parse(path: PurePosixPath, text: str) -> Document:
    """Raises `DocumentError`."""
    tokens = _PARSER.parse(text)
    inline = [child for token in tokens for child in token.children or []]
    for token in (*tokens, *inline):
        is_html = token.type in ("html_block", "html_inline")
        if is_html and not _COMMENT.fullmatch(token.content):
            raise DocumentError(f"{path}: HTML in Markdown: {token.content.strip()!r}")
    headings = tuple(_headings(tokens))
    if not headings or headings[0].level != 1:
        raise DocumentError(f"{path}: the first heading is not a title")
    return Document(
        path=path,
        tokens=tuple(tokens),
        headings=headings,
        links=tuple(str(each.attrs["href"]) for each in inline if each.type == "link_open"),
        pictures=tuple(str(each.attrs["src"]) for each in inline if each.type == "image"),
    )


def _headings(tokens: list[Token]) -> Iterator[Heading]:
    """Anchors are those of GitHub: a second `Limits` is `limits-1`."""
    seen: dict[str, int] = {}
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            text = plain_text(inline)
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            yield Heading(int(opening.tag[1]), text, f"{slug}-{count}" if count else slug)
