"""Snapshots: the rows that tables have already, sent beside the changes of the WAL.

- The taker decides which table is read next, and answers the stream.
- The reader reads chunks of rows by key, each in one transaction.
- A chunk goes from the look at the database to its mark in the stream, and becomes records there.
- The window knows which rows of a chunk are still true at the mark.
- The state of each table is part of the position record.
"""
