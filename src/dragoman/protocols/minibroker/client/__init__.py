"""The minibroker client; `dragoman.client.minibroker` has its public names.

One connection carries everything and is re-established; a subscription is an endless iterator of
records. There are classes for asyncio and for blocking code.
"""
