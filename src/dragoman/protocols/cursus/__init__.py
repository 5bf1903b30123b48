"""Cursus: frames with text commands and binary batches; codec, connection, handlers and client.

Codec and connection do no input or output, and serve both ends of the wire. Users may register
compressions of frames. Error texts are those of the original.
"""
