"""The documentation as a site of static pages: `make site` writes `build/site`.

The Markdown of the repository is the only source, and `docs/README.md` is the table of contents:
its sections are those of the navigation, and the first link of each item is a page. The site works
from files and from any static server, and asks no other site for anything.

- `document` parses a page: headings with their anchors, links, text to search.
- `repository` says which files are pages, and where each lies in the site.
- `contents` reads the table of contents.
- `links` follows the links of all pages.
- `render` makes HTML of a page; `source` of a file that a page links to.
- `site` builds and checks the whole.
"""
