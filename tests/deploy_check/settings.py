"""Whether a node would take the settings of a file of `deploy/`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy_check.command import CheckError
from dragoman.config.layers import ConfigFile, Flags, load
from dragoman.config.posture import exposed
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError


def settings_of(
    environment: Mapping[str, str], file: Path | None = None, *, may_be_exposed: bool = False
) -> Settings:
    """Raises `CheckError`, also for a listener that the node would refuse to open."""
    named = ConfigFile(str(file), file.read_text()) if file is not None else None
    try:
        settings = load(file=named, environment=environment, flags=Flags()).settings
    except ConfigError as error:
        raise CheckError(str(error)) from None
    if not (may_be_exposed or settings.insecure) and exposed(settings):
        raise CheckError(f"without a login: {', '.join(each.name for each in exposed(settings))}")
    return settings
