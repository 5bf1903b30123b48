"""Sockets: listeners, connections, and bounds on what they hold. It names no protocol.

- A channel moves bytes between a transport and a session, and pauses reading for several reasons.
- Sessions either answer in the order of requests or match replies by number.
- The listener `any` detects the protocol of a connection from its first bytes.
- One memory budget covers all connections. Stalled peers that hold memory are disconnected when
  others wait for it. The number of connections is bounded, in total and per address.
- Nodes are connected by framed links, with requests and one-way messages.
- An HTTP client talks to etcd; a resolver gives IPv4 addresses to protocols with four-byte hosts.
"""
