"""Builds the site into a directory: `python -m website build/site`."""

from __future__ import annotations

import sys
from pathlib import Path

from website.document import DocumentError
from website.site import build


def main(arguments: list[str]) -> int:
    (into,) = arguments
    try:
        site = build(Path(into).resolve())
    except DocumentError as error:
        print(error, file=sys.stderr)
        return 1
    listing = Path(into).with_name("external-links.txt")
    listing.write_text("".join(f"{link}\n" for link in site.external))
    print(f"{into}/index.html: {site.pages} pages, {site.sources} sources, {site.size_bytes:,} B")
    print(f"{listing}: links to other sites, which are not followed")
    return 0


sys.exit(main(sys.argv[1:]))
