"""Follows the links of pages: to files of the repository and to headings of pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from website.document import Document, read
from website.repository import is_external, split_target


def broken_links(root: Path, document: Document) -> Iterator[str]:
    """A line for each link or picture of a page that leads nowhere."""
    for target in (*document.links, *document.pictures):
        if is_external(target):
            continue
        path, anchor = split_target(document.path, target)
        if target.startswith("/") or path.parts[0] == ".." or not (root / path).exists():
            yield f"{document.path}: {target}: there is no such file"
        elif anchor and (path.suffix != ".md" or anchor not in read(root, path).anchors):
            yield f"{document.path}: {target}: there is no such heading"


def external_links(documents: Iterable[Document]) -> list[str]:
    return sorted({link for each in documents for link in each.links if is_external(link)})


def linked_files(documents: Iterable[Document]) -> list[PurePosixPath]:
    """Files and folders that pages link to, and that are no pages."""
    found = {
        split_target(each.path, link)[0]
        for each in documents
        for link in each.links
        if not is_external(link)
    }
    return sorted(path for path in found if path.suffix != ".md")
