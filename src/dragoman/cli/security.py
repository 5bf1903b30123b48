"""`dragoman security`: what protects the cluster as a whole."""

from __future__ import annotations

from cyclopts import App

app = App(name="security", help="The key that encrypts secrets.")
app.command("dragoman.cli.security_key:app", name="key", help="Make, rotate and show the key.")
