"""TLS between a transport and the protocol of a connection.

`connection` is the layer, `handshakes` bounds those in progress, `contexts` loads certificates and
follows their files, and `peer_certificate` has the names in a client's certificate.

uvloop's own layer, and asyncio's, take 54 to 256 KB per connection, cannot begin once bytes have
been read, and bound neither the number of handshakes nor the time that they take from a loop turn
(decision 0022).
"""
