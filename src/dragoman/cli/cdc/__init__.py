"""`dragoman cdc`: captures of databases, on a running node."""

from dragoman.cli.cdc.commands import app

__all__ = ["app"]
