"""Whole clusters in simulation: unchanged nodes, their clients, faults, and what must hold."""
