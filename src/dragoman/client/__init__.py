"""Clients of the protocols that a node speaks; each module re-exports one."""
