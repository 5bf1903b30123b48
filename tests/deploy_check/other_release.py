"""`dragoman` as a node of another release: the same program with another number."""

from __future__ import annotations

import sys

import dragoman

dragoman.__version__ = "9.9.9"

if __name__ == "__main__":
    from dragoman.cli.main import main

    sys.exit(main())
