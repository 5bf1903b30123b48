"""Which names users can have, wherever a name comes from: a credential that is created, a token, a
certificate, a network, or a setting.
"""

from __future__ import annotations

from typing import Final

from dragoman.limits import USER_NAME_BYTES_MAX

#: `User:*` is every principal, and `User:ANONYMOUS` is a client without a name.
_RESERVED: Final = ("*", "ANONYMOUS")


def problem_of(name: str) -> str:
    """Why no user can have this name; empty: one can."""
    if not name:
        return "the name of a user is empty"
    if len(name.encode(errors="surrogatepass")) > USER_NAME_BYTES_MAX:
        return f"the name of a user has at most {USER_NAME_BYTES_MAX} bytes"
    if name in _RESERVED:
        return f"{name!r} names no user: it has a meaning of its own in rules"
    if not name.isprintable() or name != name.strip():
        return f"the name {name!a} has invisible characters"
    return ""
