"""Cursus: frames, text commands and binary batches, without input or output.

The codec turns frames into values; the connection is one end of the wire, for server and client;
compressed frames carry a codec that users may register; error texts are those of the original.
"""
