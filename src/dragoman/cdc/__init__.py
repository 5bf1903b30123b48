"""Change data capture: a process that streams changes of PostgreSQL into topics.

It is a client of both: a logical replication client of the database and a transactional producer of
the broker. It runs as `python -m dragoman.cdc`, started by a node.

- A capture runs one session after the other; a session streams from the stored position until an
  error ends it.
- The replication connection delivers pgoutput; the stream turns it into events in commit order.
  Large transactions that are still in progress are spooled to files.
- The writer commits whole source transactions, together with the position.
- Snapshots read existing rows in chunks by key, beside the stream, between watermarks in the WAL.
- Setup creates publication and slot; the doctor says why a database cannot be captured, with the
  remedy; the guard watches how much WAL the slot retains; removal drops what a capture created.
- LISTEN turns notifications into records.
"""
