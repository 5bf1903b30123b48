"""Whole quorums on virtual time under seeded faults, and the same made wrong on purpose."""
