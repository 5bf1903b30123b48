"""Entry point: `python examples/demo`, or `python -m demo` with `examples` on the path."""

from __future__ import annotations

import sys
from pathlib import Path


def run() -> int:
    if not __package__:
        # Run as a folder, Python puts that folder itself on the path, where modules such as
        # `kafka.py` would hide libraries of the same name.
        sys.path[0] = str(Path(__file__).parents[1])
    from demo.command import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
