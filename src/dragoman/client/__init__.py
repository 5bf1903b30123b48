"""Public clients of the protocols that a node speaks: one module per protocol.

Each module re-exports names of `dragoman.protocols.<protocol>.client`. Every client has a class for
asyncio and one for blocking code.
"""
