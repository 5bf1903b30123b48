"""The simulated world: every port of `dragoman.world`, driven by one seed.

Given the same seed a run repeats operation for operation, so a failure is reported as its seed.
"""
