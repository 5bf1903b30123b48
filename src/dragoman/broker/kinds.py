"""What has a coordinator."""

from __future__ import annotations

from enum import Enum
from typing import Final

#: In place of a node's number.
NOBODY: Final = -1


class Kind(Enum):
    GROUP = "group"
    TRANSACTION = "transaction"
