"""`dragoman debug`: what a bug report needs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman import __version__
from dragoman.cli.output import Output, Table, note, show
from dragoman.cli.serve import read_configuration
from dragoman.cli.status import FAILED, OK, CommandError
from dragoman.cli.support import archive, directory, machine, node
from dragoman.cli.support.collection import Collection, Missing
from dragoman.cli.target import DEFAULT_SERVER, Server
from dragoman.config.layers import Flags, load
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError

app = App(name="debug", help="Collect what a bug report needs.")


class File(msgspec.Struct, frozen=True):
    path: str
    size: int


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle has, and what it lacks: the first of its files."""

    path: str
    version: str
    created_at: str
    are_names_hidden: bool
    seconds: float
    files: tuple[File, ...]
    missing: tuple[Missing, ...]


@app.command
def bundle(
    data: str | None = None,
    /,
    *,
    output_file: Annotated[
        str, Parameter(help="The new file; default: dragoman-bundle-….tar.gz.")
    ] = "",
    config: Annotated[str, Parameter(help="Configuration file of the node.")] = "",
    log_file: Annotated[str, Parameter(help="Log of the node, of which the end is added.")] = "",
    redact_names: Annotated[
        bool,
        Parameter(negative="", help="Replace names of topics, groups, users and clients."),
    ] = False,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> int:
    """Write one file for a bug report: from a running node, a data directory, or both.

    Secrets are hidden; records are never read. The file is not sent anywhere. The exit status is 1
    if neither the node nor the directory could be read.

    Parameters
    ----------
    data
        Data directory. With it, the node is only asked if --server or --context is given.

    Examples
    --------
    dragoman debug bundle --output-file bundle.tar.gz
    dragoman debug bundle dragoman-data --redact-names --output-file directory.tar.gz
    """
    began = time.monotonic()
    now = datetime.now(UTC)
    root = f"dragoman-bundle-{now:%Y%m%dT%H%M%SZ}"
    path = output_file or f"{root}.tar.gz"
    files = Collection()
    machine.collect(files, config=config, log_file=log_file, directory=data)
    if data is not None:
        directory.collect(data, _settings(config), files)
    if data is None or server.server or server.context:
        node.collect(server, files)
    files.files["missing.json"] = msgspec.json.encode(files.missing)
    found = archive.redacted(files.files, names=redact_names)
    manifest = Bundle(
        path=path,
        version=__version__,
        created_at=now.isoformat(timespec="seconds"),
        are_names_hidden=redact_names,
        seconds=round(time.monotonic() - began, 3),
        files=tuple(File(name, len(content)) for name, content in found.items()),
        missing=tuple(msgspec.json.decode(found["missing.json"], type=list[Missing])),
    )
    first = {"manifest.json": msgspec.json.format(msgspec.json.encode(manifest))}
    size = archive.write(path, root, first | found)
    show(output, manifest, Bundle, *_parts(manifest))
    note(
        output,
        f"wrote {path}: {len(found) + 1} files, {size:,} bytes. Look at it before you send it.",
    )
    return OK if _has_any(found) else FAILED


def _settings(config: str) -> Settings:
    """For the ports and the files that a directory's checks look at."""
    try:
        if not config:
            return Settings()
        return load(file=read_configuration(config), environment={}, flags=Flags()).settings
    except (ConfigError, CommandError):
        # The bundle has the reason, as the file of settings that is missing.
        return Settings()


def _has_any(files: Mapping[str, bytes]) -> bool:
    return "node/cluster.json" in files or "directory/files.json" in files


def _parts(found: Bundle) -> list[Table]:
    parts = [Table(("FILE", "BYTES"), [(each.path, each.size) for each in found.files])]
    if found.missing:
        parts.append(Table(("MISSING", "WHY"), [(each.path, each.why) for each in found.missing]))
    return parts
