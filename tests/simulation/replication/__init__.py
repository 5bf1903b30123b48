"""A cluster of data nodes in simulation: faults, clients, checks, mutants that must be caught."""
