"""Which tests a worker of xdist runs together: those of a file, or of a folder with one session.

A fixture of a module or a session is made in every worker that runs one of its tests, so tests that
share an expensive one stay in one worker. The groups of `--dist=loadgroup` cannot say so: pytest
9.2 ignores them without a word (pytest-xdist issue 1386), and each test goes where there is room.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

#: Folders whose tests share a fixture of the session.
ONE_SESSION = ("tests/integration/spark/",)


class SessionScheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        for folder in ONE_SESSION:
            if nodeid.startswith(folder):
                return folder
        scope: str = super()._split_scope(nodeid)
        return scope
