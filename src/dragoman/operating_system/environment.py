"""The environment of processes that a node starts."""

from __future__ import annotations

from collections.abc import Mapping

#: Variables that a process of the node inherits: how to run, and where the system's libraries find
#: what belongs to them. Others may be secrets, such as those that `env:` references name.
_INHERITED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("KRB5_CONFIG", "KRB5CCNAME", "KRB5_KTNAME", "LOCALDOMAIN", "RES_OPTIONS"),
    )
)
_INHERITED_PREFIXES = ("LC_", "PYTHON", "OPENSSL_", "MALLOC_", "COVERAGE_", "COV_CORE_")


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that a node starts, without secrets of the node."""
    return {
        name: text
        for name, text in environment.items()
        if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
