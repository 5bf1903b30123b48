"""Which files of the repository are pages, and where each lies in the site."""

from __future__ import annotations

import posixpath
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
#: The table of contents.
CONTENTS = PurePosixPath("docs/README.md")
HOME = PurePosixPath("README.md")

_PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "examples/**/*.md",
    "deploy/**/*.md",
    "src/dragoman/**/README.md",
)


def page_paths(root: Path = ROOT) -> list[PurePosixPath]:
    """Every page, from the root of the repository."""
    found = {path for pattern in _PATTERNS for path in root.glob(pattern)}
    return sorted(
        PurePosixPath(path.relative_to(root).as_posix())
        for path in found
        if not path.name.startswith(".")
    )


def address(path: PurePosixPath) -> str:
    """Where a file of the repository lies in the site."""
    if path == HOME:
        return "index.html"
    if path == CONTENTS:
        return "contents.html"
    if path.suffix != ".md":
        return f"source/{path}.html"
    if path.parts[:3] == ("src", "dragoman", "protocols"):
        return f"protocols/{path.parts[3]}.html"
    place = path.relative_to("docs") if path.parts[0] == "docs" else path
    if place.name == "README.md":
        return str(place.with_name("index.html"))
    return str(place.with_name(place.name.lower()).with_suffix(".html"))


def picture_address(path: PurePosixPath) -> str:
    """Where a picture lies in the site."""
    return str(path.relative_to("docs") if path.parts[0] == "docs" else path)


def split_target(page: PurePosixPath, target: str) -> tuple[PurePosixPath, str]:
    """The file and the anchor that a link of a page leads to."""
    name, _, anchor = target.partition("#")
    joined = posixpath.normpath(posixpath.join(page.parent, name)) if name else str(page)
    return PurePosixPath(joined), anchor


def is_external(target: str) -> bool:
    return "://" in target or target.startswith("mailto:")
