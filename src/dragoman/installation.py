"""How this installation was made, what it lacks, and what installs an extra in the same way.

pip writes `direct_url.json` (PEP 610) beside the package when it was installed from a directory, a
file or a repository. Without it, the package came from an index.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

import msgspec

_NAME = "dragoman"
#: What the extra `console` installs for queries.
QUERY_MODULES = ("duckdb", "numpy", "pyarrow")


class _Directory(msgspec.Struct):
    editable: bool = False


class _Repository(msgspec.Struct):
    vcs: str = ""
    commit_id: str = ""


class DirectUrl(msgspec.Struct):
    """The part of `direct_url.json` that names the source."""

    url: str
    dir_info: _Directory | None = None
    vcs_info: _Repository | None = None


def missing_modules(names: Iterable[str]) -> list[str]:
    """Those of these modules that are not installed."""
    return [each for each in names if find_spec(each) is None]


def install_command(extra: str) -> str:
    """What to type for an extra of this package."""
    return command_for(extra, _direct_url())


def command_for(extra: str, source: DirectUrl | None) -> str:
    """The same, for a package from `source`; None: from an index."""
    wanted = f"{_NAME}[{extra}]"
    if source is None:
        return f"pip install {shlex.quote(wanted)}"
    if source.dir_info is not None and source.dir_info.editable:
        directory = unquote(urlsplit(source.url).path)
        return f"pip install -e {shlex.quote(f'{directory}[{extra}]')}"
    url = source.url
    if source.vcs_info is not None:
        url = f"{source.vcs_info.vcs}+{url}@{source.vcs_info.commit_id}"
    return f"pip install {shlex.quote(f'{wanted} @ {url}')}"


def _direct_url() -> DirectUrl | None:
    try:
        text = distribution(_NAME).read_text("direct_url.json")
        return None if text is None else msgspec.json.decode(text, type=DirectUrl)
    except (PackageNotFoundError, msgspec.DecodeError):
        # From a source tree without an installation, or a file of another form.
        return None
