"""Public clients of the protocols that a node speaks: one module per protocol.

Each module re-exports names of `dragoman.protocols.<protocol>.client`. Every client exists for
asyncio and for blocking code.
"""
