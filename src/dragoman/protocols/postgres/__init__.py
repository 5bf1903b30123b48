"""PostgreSQL's replication protocol: bytes to messages and values, without input or output.

It decodes pgoutput 1 to 4, COPY in text format, and the replication messages inside COPY BOTH.
Types come from the catalogue of the database; values become JSON without loss of precision.
"""
