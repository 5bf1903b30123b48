"""`dragoman` as the next release: it knows one more feature level, with an event of its own.

For tests of upgrades: `ServedNode(module="nodes.newer_release")`. Before anything else is imported,
since modules take over the level by its value.
"""

from __future__ import annotations

import sys

from dragoman.log import node

node.FEATURE_LEVEL += 1

from dragoman.cluster import events  # noqa: E402

#: Stands for an event that older nodes cannot read.
events.LEVELS[events.NodeConfigChanged] = node.FEATURE_LEVEL

if __name__ == "__main__":
    from dragoman.cli.main import main

    sys.exit(main())
