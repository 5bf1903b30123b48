"""Definitions of captures, and the control messages between a capture's process and its node.

- The definition says which rows of which database become which records.
- Addresses of databases are parsed as libpq does, and their secrets are removed before display.
- A policy restricts what an address may make the node do: its hosts, its secrets, its
  authentication.
- Patterns select tables and columns; routing maps tables to topics; overlap detects two captures
  that would write to one topic.
- Control messages are JSON, one value to a line.
"""
