"""`dragoman cdc`: captures of databases, on a running node.

It has the commands, the options that become the definition of a capture, and the display of
captures: status tables, findings of the doctor, and progress bars of snapshots.
"""

from dragoman.cli.cdc.commands import app

__all__ = ["app"]
