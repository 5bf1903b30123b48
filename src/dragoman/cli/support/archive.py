"""The file of a bundle: a gzipped tar with everything hidden that must not leave the machine."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Mapping

from dragoman.cli.status import CommandError
from dragoman.cli.support.names import Names
from dragoman.cli.support.secrets import Json, hide_in_json, hide_in_text


def redacted(files: Mapping[str, bytes], *, names: bool) -> dict[str, bytes]:
    """The files without secrets; with `names` also without names of topics, groups and so on."""
    texts: dict[str, str] = {}
    values: dict[str, Json] = {}
    for path, data in files.items():
        text = data.decode("utf-8", "replace")
        if path.endswith(".json"):
            try:
                values[path] = hide_in_json(json.loads(text))
                continue
            except (ValueError, RecursionError):
                # Not JSON after all.
                pass
        texts[path] = hide_in_text(text)
    if names:
        found = Names()
        for path, value in values.items():
            found.learn_json(path, value)
        for text in texts.values():
            found.learn_text(text)
        found.settle()
        values = {path: found.replace_in_json(value) for path, value in values.items()}
        texts = {path: found.replace_in(text) for path, text in texts.items()}
    texts |= {
        path: json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        for path, value in values.items()
    }
    return {path: texts[path].encode("utf-8", "replace") for path in files}


def write(path: str, root: str, files: Mapping[str, bytes]) -> int:
    """Write a new file that only this user may read, and return its size. Raises `CommandError`."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"{path} exists already; name another --output-file") from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    now = int(time.time())
    with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), now, 0o600
            archive.addfile(entry, io.BytesIO(data))
    return os.stat(path).st_size
