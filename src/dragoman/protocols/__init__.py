"""Wire protocols, one folder each: kafka, rocketmq, cursus, minibroker, mlog and postgres.

The folders have the same shape. Constants, messages, codec, connection and errors do no input or
output; `handlers` turns requests into calls of the broker; `client` is the other end of the wire.
The README of a folder draws the frame and lists what is not supported. Protocols do not import each
other. PostgreSQL's folder decodes what a database sends, and has no handlers.
"""
