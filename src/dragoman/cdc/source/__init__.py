"""PostgreSQL as the source of a capture: all requests to the database except those of snapshots.

- Connections use secured addresses; errors of the database are explained to operators.
- The replication connection receives the WAL as messages of pgoutput.
- Publication and slot are created, extended and dropped. Tables come from the catalogue, with the
  key that each is read by.
- The WAL guard watches how much WAL the slot retains.
- Notifications are received with LISTEN.
"""
