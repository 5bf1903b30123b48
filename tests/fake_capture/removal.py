"""Stands for what takes away slots and publications: finds what the doctor does."""

from __future__ import annotations

import sys

from fake_capture.doctor import main

if __name__ == "__main__":
    sys.exit(main())
