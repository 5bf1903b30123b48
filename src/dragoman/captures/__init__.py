"""Captures of databases in a cluster: their definitions, and the node that runs each capture.

A capture is defined in the metadata, like a topic. Its name maps to a partition of the internal
topic of positions, and the leader of the partition runs the capture as a process of its own. The
package `cdc` is that process. This package never loads the driver of a database.

- The service adds, describes, commands and removes captures, on any node.
- The supervisor starts, watches and stops the processes of the captures that this node runs.
- Processes implement the supervisor's port to the operating system. Node and process exchange
  control messages: JSON, one value to a line. A process connects to its own node (`kafka_access`)
  and logs in as a principal of its own (`logins`), which has the rights of its capture (`rights`).
- The internal topic of positions records the progress of each capture.
- The definition says which rows of which database become which records; patterns in it select
  tables and columns. Topics are derived from tables, and overlaps of two captures are detected.
- Addresses of databases are parsed like libpq does, and their secrets are removed before display. A
  policy restricts the hosts, files and authentication that an address may make the node use.
"""
