"""What a running node says over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import quote

import msgspec

from dragoman.cli.diagnosis import node as diagnosis
from dragoman.cli.remote import group_path, topic_path
from dragoman.cli.status import CommandError
from dragoman.cli.support.collection import Collection
from dragoman.cli.target import Target
from dragoman.limits import BUNDLE_ITEMS_MAX, BUNDLE_PAGES_MAX

#: Files by path. Listings come in pages.
_DOCUMENTS: Final = {
    "livez": "/livez?format=json",
    "readyz": "/readyz?format=json",
    "cluster": "/api/v1/cluster",
    "security": "/api/v1/security",
    "keys": "/api/v1/security/key",
    "certificates": "/api/v1/security/certificates",
}
_LISTINGS: Final = ("topics", "groups", "connections", "damage", "captures", "pipelines", "users")
#: An empty question means all series of the last hour.
_FIGURES: Final = "/api/v1/figures/query"
_PATHS: Final = {"users": "security/users"}


def collect(target: Target, files: Collection) -> None:
    node = diagnosis.Probe(target)
    for name, path in _DOCUMENTS.items():
        files.gather(f"node/{name}.json", _document(node, path))
        if name == "livez" and "node/livez.json" not in files.files:
            # All others would wait for it, too.
            files.miss("node", "the node does not answer; nothing more was asked")
            return
    for name in _LISTINGS:
        path = f"/api/v1/{_PATHS.get(name, name)}"
        files.gather(f"node/{name}.json", partial(_pages, node, path))
    files.gather("node/figures.json", _document(node, _FIGURES, b"{}"))
    files.gather("node/metrics.txt", _document(node, "/metrics"))
    _describe(node, files, "topics", "name", topic_path)
    _describe(node, files, "groups", "group", group_path)
    files.gather("node/doctor.json", lambda: _encoded(list(diagnosis.checks(node))))


def _document(
    node: diagnosis.Probe, path: str, question: bytes | None = None
) -> Callable[[], bytes]:
    def ask() -> bytes:
        answer = node.ask(path, question)
        # A node that is not ready answers 503, with its checks.
        if answer.status >= 300 and not path.startswith(("/livez", "/readyz")):
            raise CommandError(f"HTTP status {answer.status}: {_problem(answer.body)}")
        return answer.body

    return ask


def _problem(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "no details"


def _pages(node: diagnosis.Probe, path: str) -> bytes:
    """All items of a listing, up to a number of pages, as one document."""
    found: dict[str, object] = {}
    items: list[object] = []
    after = ""
    for _ in range(BUNDLE_PAGES_MAX):
        page = msgspec.json.decode(_document(node, f"{path}?after={quote(after, safe='')}")())
        if not isinstance(page, dict):
            raise CommandError(f"{path} is not a listing")
        items += page.pop("items", [])
        found |= page
        after = page.get("next") or ""
        if not after:
            break
    return _encoded(found | {"items": items})


def _describe(
    node: diagnosis.Probe,
    files: Collection,
    what: str,
    key: str,
    path_of: Callable[[str], str],
) -> None:
    """The first topics or groups in detail."""
    listed = files.files.get(f"node/{what}.json")
    if listed is None:
        return
    names = [each[key] for each in msgspec.json.decode(listed)["items"]]
    if len(names) > BUNDLE_ITEMS_MAX:
        files.miss(f"node/{what}", f"only the first {BUNDLE_ITEMS_MAX} of {len(names)}")
    for number, name in enumerate(names[:BUNDLE_ITEMS_MAX], 1):
        # Numbered, because a name need not be one of a file.
        files.gather(f"node/{what}/{number}.json", _document(node, path_of(name)))


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value)
