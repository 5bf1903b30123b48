"""mlog: a codec and a connection that do no input or output, handlers and client.

Both encodings, JSON as Go writes it and protobuf 3, work from one table of each message's fields.
Replication messages of the original are also decoded and answered.
"""
