"""The mlog client; `dragoman.client.mlog` has its public names.

It produces, consumes from a position that survives lost connections, and finds the leader of each
topic. There are classes for asyncio and for blocking code.
"""
