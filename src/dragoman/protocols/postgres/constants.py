"""Settings of sessions, and versions of the protocol, on which `values.py` relies."""

from __future__ import annotations

from typing import Final

#: Settings of every session whose rows are read, the replicating one too. With them a value has one
#: text only, whatever the database, the role or the server is configured with.
SESSION_SETTINGS: Final = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
}

#: Release of PostgreSQL → version of pgoutput's protocol that it speaks.
PROTOCOL_VERSIONS: Final = {10: 1, 14: 2, 15: 3, 16: 4}
#: PostgreSQL's epoch, 2000-01-01, in microseconds since 1970.
EPOCH_US: Final = 946_684_800_000_000


def protocol_version(server_version: int) -> int:
    """The newest that a server speaks; `server_version` as in libpq, such as 160004."""
    return max((v for since, v in PROTOCOL_VERSIONS.items() if since <= server_version // 10_000))
