"""Goal: the site shows what the Markdown says, finds every fault of links, and needs no network.

Method: a small repository in a temporary folder, built and read; the real one is built once.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

import pytest
from website.contents import read_contents
from website.document import DocumentError, parse
from website.repository import ROOT, address
from website.site import broken_addresses, build

HOME = "# Dragoman\n\nRead [on](docs/README.md).\n"
CONTENTS = """\
# Documentation

## Guides

- [One](guides/one.md): the [other](guides/two.md).
- [Two](guides/two.md#limits-1).
- [Choices](decisions/README.md).
"""
ONE = """\
# One

<!-- table: written by a program -->
![a picture](../picture.svg)
See [the limits](two.md#limits-1), [the top](#one), [a file](../../src/a.py), [all](../../src)
and [a site](https://example.org/x).

```sh
$ dragoman --help
```
"""
TWO = "# Two\n\n## Limits\n\nfirst\n\n## Limits\n\n| a | b |\n|---|---|\n| `x` | *y* |\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "README.md": HOME,
        "docs/README.md": CONTENTS,
        "docs/guides/one.md": ONE,
        "docs/guides/two.md": TWO,
        "docs/decisions/README.md": "# Decisions\n\n[1](0001-a.md)\n",
        "docs/decisions/0001-a.md": "# 1. A\n",
        "docs/picture.svg": "<svg/>",
        "src/a.py": "print('<a>')\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_links_of_the_repository_are_links_of_the_site(root: Path) -> None:
    site = build(root / "site", root)
    page = (root / "site/guides/one.html").read_text()
    for link in ("two.html#limits-1", "#one", "../source/src/a.py.html", "../source/src.html"):
        assert f'href="{link}"' in page
    assert 'src="../picture.svg"' in page
    assert "written by a program" not in page
    assert site.external == ["https://example.org/x"]
    assert (site.pages, site.sources) == (6, 2)


def test_navigation_has_the_sections_and_their_pages(root: Path) -> None:
    (section,) = read_contents(root)
    assert section.title == "Guides"
    assert [(each.title, str(each.path)) for each in section.entries] == [
        ("One", "docs/guides/one.md"),
        ("Two", "docs/guides/two.md"),
        ("Choices", "docs/decisions/README.md"),
    ]
    assert [each.title for each in section.entries[2].below] == ["1. A"]


def test_page_links_to_those_before_and_after(root: Path) -> None:
    build(root / "site", root)
    page = (root / "site/guides/two.html").read_text()
    assert '<a class="before" href="one.html">One</a>' in page
    assert '<a class="after" href="../decisions/index.html">Choices</a>' in page


def test_search_finds_passages_by_their_headings(root: Path) -> None:
    build(root / "site", root)
    text = (root / "site/search.js").read_text()
    rows = json.loads(text.removeprefix("searchIndex = ").removesuffix(";\n"))
    assert ["guides/two.html#limits-1", "Two", "Limits", "a b x y"] in rows
    assert ["guides/two.html#limits", "Two", "Limits", "first"] in rows


@pytest.mark.parametrize(
    ("page", "text", "fault"),
    [
        ("docs/guides/one.md", "# One\n[x](three.md)", "three.md: there is no such file"),
        (
            "docs/guides/one.md",
            "# One\n[x](two.md#limit)",
            "two.md#limit: there is no such heading",
        ),
        ("docs/guides/one.md", "# One\n![x](x.png)", "x.png: there is no such file"),
        ("docs/guides/one.md", "# One\n[x](../../../x.md)", "x.md: there is no such file"),
        ("docs/guides/one.md", "# One\n<b>x</b>", "HTML in Markdown"),
        ("docs/guides/one.md", "no title", "the first heading is not a title"),
        ("docs/guides/three.md", "# Three", "docs/README.md does not list it"),
    ],
)
def test_fault_ends_the_build(root: Path, page: str, text: str, fault: str) -> None:
    (root / page).write_text(text)
    with pytest.raises(DocumentError, match=fault):
        build(root / "site", root)


def test_headings_have_the_anchors_of_forges() -> None:
    text = "# A `b_c` & d\n\n## Who, why?\n\n## Who, why?\n\n```\n# no heading\n```\n"
    document = parse(PurePosixPath("a.md"), text)
    assert [each.anchor for each in document.headings] == ["a-b_c--d", "who-why", "who-why-1"]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("README.md", "index.html"),
        ("docs/README.md", "contents.html"),
        ("docs/guides/security.md", "guides/security.html"),
        ("docs/runbooks/README.md", "runbooks/index.html"),
        ("ARCHITECTURE.md", "architecture.html"),
        ("src/dragoman/protocols/kafka/README.md", "protocols/kafka.html"),
        ("tests/unit/test_layers.py", "source/tests/unit/test_layers.py.html"),
    ],
)
def test_address_follows_the_place_in_the_repository(path: str, place: str) -> None:
    assert address(PurePosixPath(path)) == place


def test_built_page_that_loads_from_another_site_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<script src="https://example.org/x.js"></script>')
    assert list(broken_addresses(tmp_path)) == ["a.html: loads https://example.org/x.js"]


# ---- the real one


class _Ids(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]


def test_site_of_this_repository_is_whole(tmp_path: Path) -> None:
    site = build(tmp_path / "site")
    assert site.pages > 80
    assert site.size_bytes < 12_000_000
    for page in (tmp_path / "site").rglob("*.html"):
        ids = _Ids()
        ids.feed(page.read_text())
        assert len(ids.ids) == len(set(ids.ids)), page


def test_site_needs_no_other_site() -> None:
    for file in (ROOT / "docs/website/theme").iterdir():
        text = file.read_text()
        without_names = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"//\S", without_names), file
        assert "@import" not in text
        assert "url(" not in text
