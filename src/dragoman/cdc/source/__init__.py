"""PostgreSQL as the source of a capture: everything that is asked of the database.

- Connections use addresses that are secured; refusals of the database are explained to operators.
- The replication connection delivers the WAL as messages of pgoutput.
- Publication and slot are created, extended and dropped here.
- Tables come from the catalogue, with the key that each is read by.
- Identity checks that the database, its timeline and its slot are those of the position.
- The WAL guard watches how much WAL the slot retains.
- Notifications are received with LISTEN.
"""
