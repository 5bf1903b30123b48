"""HTML of a page's Markdown, and of code in colour."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from os.path import relpath
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

from website.document import Document
from website.repository import address, is_external, picture_address, split_target

#: Pygments' styles for a light and a dark page.
LIGHT_STYLE, DARK_STYLE = "friendly", "github-dark"
#: Longer files are shown without colours, which cost seconds.
_COLOURED_CHARACTERS_MAX = 200_000


def html_of(document: Document) -> str:
    tokens = list(_with_addresses(document))
    renderer = _Renderer(MarkdownIt("commonmark"))
    renderer.anchors = iter([each.anchor for each in document.headings])
    return str(renderer.render(tokens, MarkdownIt("commonmark").options, {}))


def relative(target: str, page: str) -> str:
    """An address of the site as a link from one of its pages."""
    return relpath(target, page.rpartition("/")[0] or ".")


def _with_addresses(document: Document) -> Iterator[Token]:
    """Tokens with addresses of the site for paths of the repository."""
    page = address(document.path)
    for token in document.tokens:
        if token.type != "inline":
            yield token
            continue
        children = [_child(each, document, page) for each in token.children or []]
        yield token.copy(children=children)


def _child(token: Token, document: Document, page: str) -> Token:
    name = {"link_open": "href", "image": "src"}.get(token.type, "")
    target = str(token.attrs.get(name, ""))
    if not target:
        return token
    if is_external(target):
        return token.copy(attrs={**token.attrs, "rel": "noreferrer"})
    path, anchor = split_target(document.path, target)
    place = picture_address(path) if token.type == "image" else address(path)
    link = "" if place == page else relative(place, page)
    return token.copy(attrs={**token.attrs, name: link + (f"#{anchor}" if anchor else "")})


class _Renderer(RendererHTML):
    """Its methods are called by the type of a token."""

    anchors: Iterator[str]

    def heading_open(self, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
        self._anchor = next(self.anchors)
        return f'<{tokens[index].tag} id="{escape(self._anchor)}">'

    def heading_close(self, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
        link = f'<a class="anchor" href="#{escape(self._anchor)}" aria-label="Link to here">#</a>'
        return f"{link}</{tokens[index].tag}>\n"

    def table_open(self, _tokens: Sequence[Token], _index: int, _options: Any, _env: Any) -> str:
        # A wide table scrolls by itself, and keys reach it.
        return '<div class="table" tabindex="0"><table>\n'

    def table_close(self, _tokens: Sequence[Token], _index: int, _options: Any, _env: Any) -> str:
        return "</table></div>\n"

    def fence(self, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
        token = tokens[index]
        return coloured(token.content, _lexer(token.info.strip(), token.content))

    def code_inline(self, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
        # Long names may break after their parts.
        text = re.sub(r"(?<=[_./,=])(?=\w{3})", "\0", tokens[index].content)
        return f"<code>{escape(text).replace(chr(0), '<wbr>')}</code>"

    def html_block(self, _tokens: Sequence[Token], _index: int, _options: Any, _env: Any) -> str:
        return ""

    def html_inline(self, _tokens: Sequence[Token], _index: int, _options: Any, _env: Any) -> str:
        return ""


def _lexer(language: str, code: str) -> Lexer:
    is_session = language in ("sh", "console") and code.startswith("$ ")
    return get_lexer_by_name("console" if is_session else language or "text", stripnl=False)


def lexer_of_file(name: str, text: str) -> Lexer:
    try:
        if len(text) <= _COLOURED_CHARACTERS_MAX:
            return get_lexer_for_filename(name, stripnl=False)
    except ClassNotFound:
        pass
    return get_lexer_by_name("text", stripnl=False)


def coloured(code: str, lexer: Lexer) -> str:
    html: str = highlight(code, lexer, HtmlFormatter(nowrap=True))
    return f'<pre class="code" tabindex="0"><code>{html}</code></pre>\n'


def style_of_code() -> str:
    """CSS of the colours, for light and dark pages."""
    light = HtmlFormatter(style=LIGHT_STYLE).get_style_defs(".code")
    dark = HtmlFormatter(style=DARK_STYLE).get_style_defs(".code")
    nested = "".join(f"  {line}\n" for line in _colours(dark))
    return (
        "\n".join(_colours(light))
        + "\n@media (prefers-color-scheme: dark) {\n"
        + f":root:not([data-theme=light]) {{\n{nested}}}\n}}\n"
        + f":root[data-theme=dark] {{\n{nested}}}\n"
    )


def _colours(css: str) -> list[str]:
    """Rules of the words of code, without the ground and frame that the page has of its own."""
    return [line for line in css.splitlines() if line.startswith(".code .")]
