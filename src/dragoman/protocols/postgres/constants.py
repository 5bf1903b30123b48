"""What has to be agreed with the server before rows mean what `values.py` takes them for."""

from __future__ import annotations

from typing import Final

#: For every session whose rows are read, the replicating one too: then a value has one text only,
#: whatever the database, the role or the server is set to.
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
#: PostgreSQL counts from 2000-01-01, everybody else from 1970.
EPOCH_US: Final = 946_684_800_000_000


def protocol_version(server_version: int) -> int:
    """The highest that a server speaks; `server_version` as libpq has it, such as 160004."""
    return max((v for since, v in PROTOCOL_VERSIONS.items() if since <= server_version // 10_000))
