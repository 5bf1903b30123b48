"""The event loop of a process of its own: uvloop's, or asyncio's where there is none.

uvloop has no wheel for the newest Python and none for Windows. A node works on either loop, and is
slower on asyncio's.
"""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop()
    return uvloop.new_event_loop()
