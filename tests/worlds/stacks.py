"""Stacks that refused requests leave behind.

An error refers to the stack that raised it, and the stack to the connection and its request. An
error that is kept by something in that stack is a cycle, which waits for the garbage collector with
all the bytes of the request.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def no_stack_left() -> Iterator[None]:
    """Fails if what runs meanwhile leaves frames to the collector."""
    # What is there already is not looked at again. Freezing it would do as well, but to unfreeze it
    # would hand the collector all that tests/conftest.py keeps from it, for the rest of the run.
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [each.f_code.co_qualname for each in gc.garbage if isinstance(each, FrameType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []
