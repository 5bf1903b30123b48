"""Snapshots: existing rows of tables, sent beside the changes of the WAL.

- The taker decides which table is read next, and implements the port of the stream.
- The reader reads chunks of rows by key, each in one transaction.
- A chunk is read from the database, and becomes records at its mark in the stream.
- The window determines which rows of a chunk are still valid at the mark.
- The state of each table is part of the position record.
"""
