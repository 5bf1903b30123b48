"""What commits and group subscriptions share."""

from __future__ import annotations

from typing import Final

#: What groups of this protocol are called in the registry of all groups.
OWNER: Final = "minibroker"
