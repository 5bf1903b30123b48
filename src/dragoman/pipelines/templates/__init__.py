"""Templates of projects, which are the folders beside this file.

A placeholder in the files becomes the absolute path of the project, since Spark needs absolute
paths.
"""

from __future__ import annotations

from pathlib import Path

from dragoman.errors import ConfigError

_HERE = Path(__file__).parent
_FOLDER = "PROJECT-FOLDER"


def write_project(directory: Path, template: str) -> list[Path]:
    """Copy a template and return its files. Raises `ConfigError` when one of them exists."""
    source = _HERE / template
    # An installation compiles the Python files, and puts the results beside them.
    files = sorted(path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc")
    targets = [directory / path.relative_to(source) for path in files]
    for target in targets:
        if target.exists():
            raise ConfigError(f"{target} exists: choose an empty folder")
    try:
        for path, target in zip(files, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text().replace(_FOLDER, str(directory.absolute()))
            target.write_text(text)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    return targets
