"""The Cursus client; `dragoman.client.cursus` has its public names.

It offers an idempotent producer, members of consumer groups, event streams, transactions and topic
administration. There are classes for asyncio and for blocking code.
"""
