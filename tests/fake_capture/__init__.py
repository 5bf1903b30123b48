"""Stands for what captures a database: `python -m fake_capture` speaks as `dragoman.cdc` does.

What it shall do is in the name of its first table; without one that is known it streams.
"""
