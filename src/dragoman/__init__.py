"""Dragoman: one durable, replicated log that clients of five messaging protocols share.

Packages, from the bottom up: `log` keeps records in files. `cluster` agrees on metadata. `broker`
gives both their meaning: topics, groups, transactions, replication. `protocols` translates each
wire into calls of the broker, `net` carries its bytes, and `api` serves HTTP. `captures` decides
which node captures which database, and `cdc` is the process that captures PostgreSQL; `spark` and
`pipelines` read and write topics as tables. `client` has the public clients, `testing` an
in-process broker and a simulated world, `cli` the commands. `server` puts a node together: it is
the only module that knows every concrete class.

Beside the packages are the foundations (the error hierarchy, every fixed bound, names for integers
and strings, the ports to time, randomness, files and sockets, checksums, framing, varints), the
repair of data directories that no node uses, and the connections of a node to its peers.
"""

__version__ = "0.1.0"
