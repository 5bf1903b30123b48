"""Change data capture: a process that streams changes of PostgreSQL into topics.

The process is a client of both: a logical replication client of the database and a transactional
producer of the broker. A node starts it as `python -m dragoman.cdc` (the package `captures`).

- A capture runs one session after the other; a session streams from the stored position until an
  error ends it.
- The package `source` talks to the database; `events` turns rows into records; `snapshot` reads
  the rows that tables have already, beside the stream.
- The stream turns messages of pgoutput into events in commit order. Large transactions that are
  still in progress are spooled to files.
- The writer commits whole source transactions, together with the position.
- `tables` lists the tables of a database for those who choose some, in a process of its own.
- The doctor explains why a database cannot be captured, with the remedy, and drops what a capture
  has created. It is a process of its own, too.

A node must not load the driver of a database, so there are two packages: `captures`, which the node
loads, and this one, which uses the clients.
"""
