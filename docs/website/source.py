"""Pages for files and folders of the repository that documents link to."""

from __future__ import annotations

from html import escape
from pathlib import Path, PurePosixPath

from website.render import coloured, lexer_of_file

_SKIPPED = frozenset({"__pycache__", "node_modules", "target", "build"})


def source_html(root: Path, path: PurePosixPath) -> str:
    title = f"<h1><code>{escape(str(path))}</code></h1>\n"
    place = root / path
    if place.is_dir():
        return title + coloured(_listing(place), lexer_of_file("", ""))
    text = place.read_text()
    return title + coloured(text, lexer_of_file(path.name, text))


def _listing(folder: Path) -> str:
    names = (each.relative_to(folder) for each in sorted(folder.rglob("*")) if each.is_file())
    return "".join(f"{name}\n" for name in names if not _SKIPPED.intersection(name.parts))
