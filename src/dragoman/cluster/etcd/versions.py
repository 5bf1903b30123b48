"""Which etcd is trusted with metadata.

3.5.0 to 3.5.2 may corrupt data under load; until 3.5.6 and 3.4.23 further ways to lose or diverge
were found. See etcd's notes on data inconsistency in 3.5.
"""

from __future__ import annotations

import re

from dragoman.errors import ConfigError

_OLDEST = {(3, 4): 23, (3, 5): 6}


def check_version(text: str) -> None:
    """Raises `ConfigError` for an etcd that is not to be trusted, or that says nothing sensible."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise ConfigError(f"metadata.etcd.endpoints: no etcd answers, but one of version {text!r}")
    major, minor, patch = map(int, found.groups())
    if (major, minor) >= min(_OLDEST) and patch >= _OLDEST.get((major, minor), 0):
        return
    raise ConfigError(
        f"etcd {text} may lose metadata: 3.4.23, 3.5.6 or newer is needed "
        "(for tests, metadata.etcd.allow.bad.version=true lets it be used)"
    )
