"""The minibroker client; `dragoman.client.minibroker` has its public names.

One connection carries all requests and is re-established after a loss. A subscription is an endless
iterator of records. There are classes for asyncio and for blocking code.
"""
