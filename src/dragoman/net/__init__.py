"""Sockets: listeners, connections, and how much they may hold. Names no protocol."""
