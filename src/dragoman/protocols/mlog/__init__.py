"""mlog: codec and connection without input or output, handlers, client.

The fields of each message are a table, from which both encodings work: JSON as Go writes it, and
protobuf 3. Replication messages of the original are decoded and answered, too.
"""
